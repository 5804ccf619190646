import pytest

numpy = pytest.importorskip("numpy")

from magpy_annotations import Read, default_registry  # noqa: E402


def test_contents_are_read_as_a_whole_and_metadata_are_not() -> None:
    registry = default_registry()
    total = registry.lookup(numpy.ndarray.sum)
    shape = registry.lookup(vars(numpy.ndarray)["shape"])
    assert total is not None and total.inputs[0].value_read is Read.DEEP
    assert shape is not None and shape.inputs[0].value_read is Read.LENGTH


def test_outputs_that_are_passed_are_updated() -> None:
    add = default_registry().lookup(numpy.add)
    assert add is not None
    bound = add.bind(3, ["out"])
    assert bound is not None and [each.in_place for each in bound] == [False, False, True, True]


@pytest.mark.parametrize("name", ["fill", "sort", "__setitem__", "__iadd__", "resize", "put"])
def test_methods_that_update(name: str) -> None:
    annotation = default_registry().lookup(getattr(numpy.ndarray, name))
    assert annotation is not None and annotation.inputs[0].in_place


def test_every_method_that_changes_an_array_says_so() -> None:
    registry = default_registry()
    for name in dir(numpy.ndarray):
        annotation = registry.lookup(vars(numpy.ndarray).get(name))
        if annotation is None or not callable(getattr(numpy.ndarray, name)) or annotation.inputs[0].in_place:
            continue
        for arguments in ((), (1,), (0, 1), (numpy.ones(3),), (slice(None), 7)):
            array = numpy.array([3.0, 1.0, 2.0])
            try:
                getattr(numpy.ndarray, name)(array, *arguments)
            except Exception:
                continue
            assert array.tolist() == [3.0, 1.0, 2.0], name
