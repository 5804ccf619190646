"""What guards call: comparisons and lookups that run no user code, metadata of tensors, modes."""

from __future__ import annotations

import collections
import struct
import types
import weakref

import pytest
import torch

from magpy_runtime import ABSENT, ModeCheck, TensorCheck, guard_helpers, memory_places, metadata
from magpy_runtime._checks import members_match

HELPERS = guard_helpers()
same_value = HELPERS["same_value"]
keys_match = HELPERS["keys_match"]
member_get = HELPERS["member_get"]
plain_value = HELPERS["plain_value"]
storages_match = HELPERS["storages_match"]


def refuse(*args):
    raise AssertionError("user code runs")


def hostile(base):
    names = (
        "__eq__ __hash__ __len__ __bool__ __getitem__ __iter__ __int__ __float__ __complex__ __bytes__ __str__ __repr__"
    )
    members = dict.fromkeys([*names.split(), "__index__", "__getattribute__", "keys"], refuse)
    return type("Hostile", (base,), {**members, "__class__": property(refuse)})


NAN = float("nan")
VALUES = [
    0, 1, 2, 10**30, True, False, 0.0, -0.0, 1.0, NAN, float("inf"), 5e-324, 0j, complex(-0.0, 0.0), complex(0.0, -0.0), 1j,
    "", "a", b"", b"a", (), (1,), (True,), (1.0,), (0.0,), (-0.0,), ((1,),), range(0), range(1), range(0, 2, 2), None,
    torch.device("cpu"), torch.device("cpu", 0), torch.device("meta"), torch.finfo(torch.float32), torch.finfo(torch.float64),
    torch.iinfo(torch.int8), torch.Size([1]), torch.Size([2]), torch.float32,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_values_are_the_same_by_type_and_bits(number):
    one = VALUES[number]
    for other, value in enumerate(VALUES):
        assert same_value(one, value) is (number == other), (one, value)


def test_equal_values_of_another_object():
    for one, other in [
        (10**30, int("1" + "0" * 30)), (1.5, float("1.5")), (NAN, struct.unpack("d", struct.pack("d", NAN))[0]),
        ("ab", "".join("ab")),
        ((1, (2.5, "a")), tuple([1, (float("2.5"), "a")])),
        (range(1, 5), range(1, 5)), (torch.device("cpu"), torch.device("cpu")),
        (torch.Size([1, 2]), torch.Size([1, 2])), (torch.finfo(torch.half), torch.finfo(torch.float16)),
    ]:  # fmt: skip
        assert same_value(one, other) and same_value(other, one)


def test_objects_of_users_are_only_the_same_by_identity():
    kind = hostile(int)
    one, other = int.__new__(kind, 1), int.__new__(kind, 1)
    assert same_value(one, one) and not same_value(one, other) and not same_value(one, 1) and not same_value(1, one)
    assert not same_value([], []) and not same_value(frozenset([1]), frozenset([True]))


def test_numpy_scalars():
    numpy = pytest.importorskip("numpy")
    same = [
        (numpy.float64(1.5), numpy.float64(1.5)),
        (numpy.float32("nan"), numpy.float32("nan")),
        (numpy.dtype("<i8"), numpy.dtype("i8")),
    ]
    different = [
        (numpy.float64(1.5), 1.5), (numpy.float64(0.0), numpy.float64(-0.0)), (numpy.int32(1), numpy.int64(1)),
        (numpy.bool_(True), numpy.int8(1)), (numpy.complex128(complex(0.0, -0.0)), numpy.complex128(0)),
        (numpy.timedelta64(1, "h"), numpy.timedelta64(60, "m")), (numpy.dtype("f4"), numpy.dtype("f8")),
    ]  # fmt: skip
    for one, other in same:
        assert same_value(one, other)
    for one, other in different:
        assert not same_value(one, other) and not same_value(other, one), (one, other)


def test_keys_in_order():
    table = {"a": 1, 2: 2, (3, "x"): 3, None: 4, 1.5: 5}
    assert keys_match(table, tuple(table))
    assert keys_match({}, ())
    assert not keys_match(table, tuple(reversed(table))) and not keys_match(table, tuple(table)[:-1])
    assert (
        not keys_match({1: 0}, (True,)) and not keys_match({0.0: 0}, (-0.0,)) and not keys_match({(1,): 0}, ((1.0,),))
    )
    assert keys_match({1, 2}, tuple({1, 2})) and keys_match(frozenset("a"), ("a",)) and not keys_match({1}, (2,))
    ordered = collections.OrderedDict.fromkeys("abc")
    ordered.move_to_end("a")
    assert keys_match(ordered, ("b", "c", "a")) and not keys_match(ordered, ("a", "b", "c"))
    assert keys_match(collections.defaultdict(list, a=1), ("a",)) and keys_match(collections.Counter("ab"), ("a", "b"))


@pytest.mark.parametrize("base", [dict, set, frozenset, collections.OrderedDict])
def test_keys_of_subclasses_run_no_code(base):
    obj = base.__new__(hostile(base), *([[1]] if base is frozenset else []))
    if base is set:
        set.add(obj, 1)
    elif base is not frozenset:
        base.__setitem__(obj, 1, 1)
    assert keys_match(obj, (1,)) and not keys_match(obj, (2,)) and not keys_match(obj, ())


def test_keys_of_users_are_compared_by_identity():
    class Key:
        __hash__ = object.__hash__
        __eq__ = refuse

    one, other = Key(), Key()
    assert keys_match({one: 1}, (one,)) and not keys_match({one: 1}, (other,)) and not keys_match({one: 1}, (1,))


def test_cells_and_references():
    cell = types.CellType(None)
    assert HELPERS["cell_get"](cell) is None
    del cell.cell_contents
    assert HELPERS["cell_get"](cell) is ABSENT
    kind = type("Ref", (weakref.ref,), {"__call__": refuse})
    obj = hostile(object)()
    reference = kind(obj)
    assert HELPERS["referent_get"](reference) is obj
    del obj
    assert HELPERS["referent_get"](reference) is ABSENT


def test_members():
    class Slotted:
        __slots__ = ("a",)
        __getattribute__ = refuse
        b = property(refuse)

    obj = Slotted()
    assert member_get(obj, "a") is ABSENT
    vars(Slotted)["a"].__set__(obj, 5)
    assert member_get(obj, "a") == 5
    assert member_get(obj, "b") is member_get(obj, "missing") is ABSENT, "Python descriptors are not run"
    assert member_get(collections.deque(maxlen=3), "maxlen") == 3
    assert member_get(torch.ones(3)[1:], "storage_offset") == 1


@pytest.mark.parametrize(
    ("base", "value"),
    [(int, 5), (float, -0.0), (complex, 1j), (str, "a"), (bytes, b"a"), (int, 0), (bytes, b""), (str, "")],
)
def test_plain_values_of_subclasses(base, value):
    found = plain_value(base.__new__(hostile(base), value))
    assert type(found) is base and repr(found) == repr(value)
    assert plain_value(value) is value


def test_no_plain_value():
    assert plain_value(hostile(object)()) is ABSENT and plain_value([]) is ABSENT


def inside(manager):
    return manager


MODES = {
    "grad": lambda: torch.no_grad(),
    "inference": lambda: torch.inference_mode(),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "function mode": lambda: torch.overrides.BaseTorchFunctionMode(),
    "dispatch mode": lambda: torch.utils._python_dispatch.TorchDispatchMode(),
    "torch functions off": lambda: torch._C.DisableTorchFunctionSubclass(),
    "dtype": lambda: switched(torch.set_default_dtype, torch.float64, torch.get_default_dtype()),
    "deterministic": lambda: switched(torch.use_deterministic_algorithms, True, False),
}


class switched:
    def __init__(self, switch, new, old):
        self.switch, self.new, self.old = switch, new, old

    def __enter__(self):
        self.switch(self.new)

    def __exit__(self, *args):
        self.switch(self.old)


@pytest.mark.parametrize("name", MODES)
def test_each_mode_is_noticed(name):
    check = ModeCheck()
    assert check()
    with MODES[name]():
        assert not check()
        if name not in ("device", "function mode", "dispatch mode"):  # with those on there is no record
            assert ModeCheck()()
    assert check()


def test_a_mode_that_was_on():
    with torch.no_grad():
        check = ModeCheck()
        assert check()
    assert not check()


def base():
    return torch.arange(6.0).reshape(2, 3)


CHANGES = {
    "type": lambda: torch.nn.Parameter(base(), requires_grad=False),
    "subclass": lambda: base().as_subclass(type("Sub", (torch.Tensor,), {})),
    "dtype": lambda: base().double(),
    "device": lambda: base().to("meta"),
    "shape": lambda: base().reshape(3, 2),
    "rank": lambda: base().reshape(1, 2, 3),
    "stride": lambda: base().t().contiguous().t(),
    "gradient": lambda: base().requires_grad_(),
    "layout": lambda: base().to_sparse(),
    "compressed": lambda: base().to_sparse_csr(),
    "conjugate": lambda: base().to(torch.complex64).conj(),
    "negative": lambda: torch._neg_view(base()),
    "inference": lambda: inference(),
    "no tensor": lambda: [1],
    "None": lambda: None,
}


def inference():
    with torch.inference_mode():
        return base()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_metadata_of_tensors(name, fast):
    x = base()
    entry = metadata(x)
    if not fast:
        x.requires_grad_()  # the run changed it: what it was on entry counts
    check = TensorCheck([x], [entry])
    assert (check._guards is not None) is fast
    assert check(base()) and check(base() + 1)
    other = CHANGES[name]()
    assert not check(other)
    if isinstance(other, torch.Tensor):
        again = TensorCheck([other], [metadata(other)])
        assert again(other) and not again(base())


def test_dimensions_of_sparse_tensors():
    one, other = torch.eye(3).to_sparse(), torch.eye(3).to_sparse(1)
    check = TensorCheck([one], [metadata(one)])
    assert check(torch.eye(3).to_sparse()) and not check(other)


@pytest.mark.parametrize("name", ["leaf", "offset"])
def test_metadata_that_tensor_guards_do_not_compare(name):
    x = base().requires_grad_()
    changed = {
        "leaf": lambda: base().requires_grad_() * 1,
        "offset": lambda: torch.zeros(7)[1:].view(2, 3).requires_grad_(),
    }
    assert metadata(x) == metadata(base().requires_grad_()) != metadata(changed[name]())


@pytest.mark.parametrize("fast", [True, False])
def test_a_tensor_that_comes_twice(fast):
    one, other = base(), base()
    entry = [metadata(one), metadata(other)]
    if not fast:
        one.requires_grad_()
    check = TensorCheck([one, other], entry)
    x, y = base(), base()
    assert check(x, y) and check(y, x) and not check(x, x)


def test_a_tensor_that_was_resized_during_the_run():
    x = torch.zeros(2)
    entry = metadata(x)
    x.resize_(4)
    check = TensorCheck([x], [entry])
    assert check(torch.ones(2)) and not check(torch.ones(4))


def test_metadata_of_a_subclass_run_no_code():
    class Loud(torch.Tensor):
        __torch_function__ = classmethod(refuse)

    x = base()
    entry = metadata(x)
    odd = torch.Tensor._make_subclass(Loud, base())
    assert not TensorCheck([x], [entry])(odd)
    x.requires_grad_()
    assert not TensorCheck([x], [entry])(odd)


def test_shared_memory():
    x, y = torch.zeros(4), torch.zeros(4)
    sparse = torch.eye(2).to_sparse()
    apart, shared = memory_places([x, y]), memory_places([x, x[1:]])
    assert storages_match(apart, y, x) and not storages_match(apart, x, x[1:])
    assert storages_match(shared, y, y[1:]) and not storages_match(shared, x, y)
    assert not storages_match(shared, y, y[2:]), "they overlap elsewhere"
    assert storages_match(memory_places([x, sparse, x]), y, sparse, y)
    assert not storages_match(memory_places([x, sparse, x]), y, sparse, x)
    assert memory_places([]) == () and storages_match(())


def test_helpers_are_functions_by_their_names():
    assert HELPERS["ABSENT"] is ABSENT
    assert all(callable(value) for name, value in HELPERS.items() if name != "ABSENT")
    assert guard_helpers() is not HELPERS


def test_members_of_a_set_come_in_any_order() -> None:
    assert members_match({"a", "b", 1}, (1, "b", "a"))
    assert not members_match({"a", "b"}, ("a", "c")) and not members_match({"a"}, ("a", "b"))
    assert not members_match({True}, (1,)) and members_match(frozenset(), ())
    assert members_match({"a": 1, "b": 2}, ("a", "b")) and not members_match({"a": 1, "b": 2}, ("b", "a"))
