"""The native form of a mock says what its Python does, and there is none where it does more."""

from __future__ import annotations

import pytest

from magpy_codegen import direct_form, make_function
from magpy_codegen._direct import Made
from magpy_runtime._native import NativeGuard, RecordSlots

OUT, OBJ, TUPLE, LIST, DICT = Made
NAMESPACE = {"weight": "W", "c_len": len}


def mock(*lines, bound="(v2, v3, ) = bound", run="(o0, o1, ) = run(v3, weight, v2)"):
    return "\n".join(["def mock(bound, run):", *[f"    {line}" for line in (bound, run, *lines) if line], ""])


@pytest.mark.parametrize(
    ("source", "result"),
    [
        (mock("return o0"), (OUT, 0)),
        (mock("return None"), (OBJ, (-1, None))),
        (mock("return v3"), (OBJ, (1, None))),
        (mock("return weight"), (OBJ, (-1, "W"))),
        (mock("return 2.5"), (OBJ, (-1, 2.5))),
        (mock("n1 = tuple([o1, o0, o1])", "return n1"), (TUPLE, ((OUT, 1), (OUT, 0), (OUT, 1)))),
        (mock("n1 = tuple([])", "return n1"), (TUPLE, ())),
        (mock("n1 = []", "n1 += [o1, 1]", "return n1"), (LIST, ((OUT, 1), (OBJ, (-1, 1))))),
        (mock("n1 = []", "return n1"), (LIST, ())),
        (
            mock("n1 = {}", "n1['a'] = o0", "n2 = []", "n2 += [o1]", "n1[1] = n2", "return n1"),
            (DICT, ((OUT, 0), (LIST, ((OUT, 1),))), ("a", 1)),
        ),
        (mock("return -2"), (OBJ, (-1, -2))),
        (mock("return o0, {}, ()"), (TUPLE, ((OUT, 0), (DICT, (), ()), (TUPLE, ())))),
        (
            mock("return c_len, (o1, ), {'a': v2, 'b': -1.5}, (v3, o0, )"),
            (
                TUPLE,
                (
                    (OBJ, (-1, len)),
                    (TUPLE, ((OUT, 1),)),
                    (DICT, ((OBJ, (0, None)), (OBJ, (-1, -1.5))), ("a", "b")),
                    (TUPLE, ((OBJ, (1, None)), (OUT, 0))),
                ),
            ),
        ),
    ],
)
def test_the_form(source, result):
    inputs, outputs, found, actions = direct_form(source, NAMESPACE)
    assert inputs == ((1, None), (-1, "W"), (0, None)) and outputs == 2 and found == result and actions == ()

    run = lambda *args: (args, [*args])
    python = make_function(source, "mock", dict(NAMESPACE), "mock")(("x", "y"), run)
    assert native((inputs, outputs, found, actions), run, "x", "y") == python
    assert type(native((inputs, outputs, found, actions), run, "x", "y")) is type(python)


def test_actions():
    source = mock(
        "list_append(v2, o0)",
        "n1 = tuple([o1, v3])",
        "list_append(v2, n1)  # file.py:5",
        "dict_clear(v3)",
        "return v2, -1",
    )
    namespace = {**NAMESPACE, "list_append": list.append, "dict_clear": dict.clear}
    form = direct_form(source, namespace)
    first, second = ((OBJ, (0, None)), (OUT, 0)), ((OBJ, (0, None)), (TUPLE, ((OUT, 1), (OBJ, (1, None)))))
    assert form[3] == ((list.append, first), (list.append, second), (dict.clear, ((OBJ, (1, None)),)))
    run = lambda *args: (1, 2)
    found, wanted = [], []
    assert native(form, run, found, {5: 6}) == make_function(source, "mock", namespace, "mock")((wanted, {5: 6}), run)
    assert found == wanted == [1, (2, {})]


def test_without_outputs():
    source = mock("list_append(v2, v3)", "return v3", run="if run is not None: run(v3, weight)")
    namespace = {**NAMESPACE, "list_append": list.append}
    form = direct_form(source, namespace)
    assert form[:3] == (((1, None), (-1, "W")), 0, (OBJ, (1, None)))
    python = make_function(source, "mock", namespace, "mock")
    for run in (None, lambda *args: seen.append(args)):
        found, wanted, seen = [], [], []
        assert native(form, run, found, 5) == python((wanted, 5), run) == 5
        assert found == wanted == [5] and (run is None or seen == [(5, "W"), (5, "W")])


def native(direct, run, *args):
    from magpy_runtime import CountSlots, Dispatcher, RecordCache

    class Served(Dispatcher):
        def serve(self, args, kwargs):
            raise LookupError("not served natively")

    class Record(RecordSlots):
        pass

    steps = [(0, 0, -1, (), None, len(args)), (1, 1, -1, (), None, ())]
    steps += [(7, 2, 16, (), number, number) for number in range(len(args))]
    record, served = Record(), Served()
    record.run = run
    record.native = NativeGuard(steps, (), lambda: None, all, lambda a, b: a == b, None, direct)
    assert record.native.direct
    served.cache, served.statistics = RecordCache(8), CountSlots()
    served.cache.records = (record,)
    result = served.dispatch(args, {})
    assert record.hits == served.statistics.hits == 1
    return result


@pytest.mark.parametrize(
    "source",
    [
        mock("list_append(weight, o0)", "return o0"),
        mock("n1 = {}", "n1['self'] = n1", "return n1"),
        mock("n1 = []", "n1 += [n1]", "return n1"),
        mock("n1 = []", "n2 = tuple([n1, n1])", "return n2"),
        mock("n1 = []", "return o0"),
        mock("n1 = {}", "n1['a'] = 1", "n1['a'] = 2", "return n1"),
        mock("n1 = {}", "n1[weight] = 1", "return n1"),
        mock("n1 = {}", "n1[1.5] = 1", "return n1"),
        mock("n1 = weight.copy()", "return n1"),
        mock("return o0.data"),
        mock("return o0 + 1"),
        mock("return unknown"),
        mock("return {**v2}"),
        mock("return {1: v2}"),
        mock("return -v2"),
        mock("return o0", run="if run is not None: run(v2)"),
        mock("return v2", run="if run is not None: weight(v2)"),
        mock("return v2", run="if weight is not None: run(v2)"),
        mock("c_len(v2, key=v3)", "return o0"),
        mock("weight.append(v2)", "return o0"),
        mock("v2(v3)", "return o0"),
        mock("n1 = tuple([o1])", "c_len(n1)", "return n1"),
        mock("c_len(v2, v2, v2, v2, v2, v2, v2, v2, v2)", "return o0"),
        mock("return v2", run=""),
        mock("n1 = []", "return n1", run=""),
        mock("return o0", run="(o0, o1, ) = run(v2, *weight)"),
        mock("return o0", run="(o0, o1, ) = run(v2, key=weight)"),
        mock("return o0", run="(o0, o1, ) = run(v2)\n    (o0, o1, ) = run(v2)"),
        mock("if v2: return o0", "return o1"),
        mock("pass"),
    ],
)
def test_no_form(source):
    assert direct_form(source, NAMESPACE) is None


def test_a_result_of_another_length_is_not_taken():
    direct = (((0, None),), 2, (OUT, 1))
    for outputs in ((1,), [1, 2, 3], {1: 2}, None, 5):
        with pytest.raises(LookupError):
            native(direct, lambda x: outputs, "x")
