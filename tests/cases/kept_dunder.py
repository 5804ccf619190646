"""Programs that come out right: dunder."""

import copy
import math
import operator
import os

import torch

from cases.world import dunder, k

dunder("add_0", "__add__", lambda x, o: x * (o + 1), [k(1), k(2)])
dunder("radd_1", "__radd__", lambda x, o: x * (1 + o), [k(1), k(2)])
dunder("iadd_2", "__iadd__", lambda x, o: x * operator.iadd(o, 1), [k(1), k(2)])


def iadd(x, o):
    o += 1
    return x * o


dunder("iadd_3", "__iadd__", iadd, [k(1), k(2)])
dunder("len_4", "__len__", lambda x, o: x * len(o), [k(1), k(2)])
dunder("len_5", "__len__", lambda x, o: x * 2 if o else x * 3, [None, k(0)])
dunder("bool_6", "__bool__", lambda x, o: x * 2 if o else x * 3, [None, k(False)])
dunder("bool_7", "__bool__", lambda x, o: x * 2 if not o else x * 3, [None, k(False)])
dunder("bool_8", "__bool__", lambda x, o: x * 2 if any([o]) else x * 3, [None, k(False)])
dunder("bool_9", "__bool__", lambda x, o: x * 2 if bool(o) else x * 3, [None, k(False)])
dunder("eq_10", "__eq__", lambda x, o: x * 2 if o == 3 else x * 3, [None, k(True)])
dunder("eq_11", "__eq__", lambda x, o: x * 2 if o != 3 else x * 3, [None, k(True)])
dunder("eq_12", "__eq__", lambda x, o: x * 2 if 3 == o else x * 3, [None, k(True)])
dunder("eq_13", "__eq__", lambda x, o: x * 2 if 3 in [o] else x * 3, [None, k(True)])
dunder("eq_14", "__eq__", lambda x, o: x * 2 if [o] == [3] else x * 3, [None, k(True)])
dunder("eq_16", "__eq__", lambda x, o: x * [o, 3, 5].count(3), [None, k(True)])
dunder("lt_17", "__lt__", lambda x, o: x * 2 if o < 3 else x * 3, [k(True), k(False)])
dunder("lt_18", "__lt__", lambda x, o: x * 2 if 3 > o else x * 3, [k(True), k(False)])
dunder("gt_19", "__gt__", lambda x, o: x * 2 if max(3, o) == 3 else x * 3, [k(True), k(False)])
dunder("contains_20", "__contains__", lambda x, o: x * 2 if 3 in o else x * 3, [k(True), k(False)])
dunder("iter_21", "__iter__", lambda x, o: x * sum(o), [lambda s: iter([1]), lambda s: iter([2])])
dunder("iter_22", "__iter__", lambda x, o: x * (3 in o), [lambda s: iter([1]), lambda s: iter([3])])
dunder("getitem_23", "__getitem__", lambda x, o: x * o[0], [k(1), k(2)])
dunder("getattr_24", "__getattr__", lambda x, o: x * o.zz, [k(1), k(2)])
dunder("getattr_25", "__getattr__", lambda x, o: x * getattr(o, "zz", 5), [None, k(2)])
dunder("getattr_26", "__getattr__", lambda x, o: x * hasattr(o, "zz"), [None, k(2)])
dunder("getattribute_27", "__getattribute__", lambda x, o: x * o.zz, [None, k(2)])
dunder("call_28", "__call__", lambda x, o: x * o(), [k(1), k(2)])
dunder("hash_30", "__hash__", lambda x, o: x * hash(o), [k(1), k(2)])
dunder("index_31", "__index__", lambda x, o: x * [1, 2, 3][o], [k(1), k(2)])
dunder("index_32", "__index__", lambda x, o: x[o:], [k(1), k(2)])
dunder("index_33", "__index__", lambda x, o: x * sum(range(o)), [k(1), k(2), k(3)])
dunder("float_34", "__float__", lambda x, o: x * float(o), [k(1.0), k(2.0)])
dunder("float_35", "__float__", lambda x, o: x * math.sqrt(o), [k(1.0), k(4.0)])
dunder("int_36", "__int__", lambda x, o: x * int(o), [k(1), k(2)])
dunder("str_37", "__str__", lambda x, o: (x * 2, str(o)), [k("a"), k("b")])
dunder("repr_38", "__repr__", lambda x, o: (x * 2, str(o)), [k("a"), k("b")])
dunder("repr_39", "__repr__", lambda x, o: (x * 2, repr([o])), [k("a"), k("b")])
dunder("repr_40", "__repr__", lambda x, o: (x * 2, f"{[o]}"), [k("a"), k("b")])
dunder("repr_41", "__repr__", lambda x, o: (x * 2, "%s" % o), [k("a"), k("b")])
dunder("repr_42", "__repr__", lambda x, o: (x * 2, "{}".format(o)), [k("a"), k("b")])
dunder("format_43", "__format__", lambda x, o: (x * 2, f"{o}"), [k("a"), k("b")])


def with_(x, o):
    with o as v:
        return x * v


class Ex:
    def __exit__(s, *a):
        return None


dunder("enter_45", "__enter__", lambda x, o: with_(x, o), [k(1), k(2)], base=Ex)
dunder("abs_46", "__abs__", lambda x, o: x * abs(o), [k(1), k(2)])
dunder("neg_47", "__neg__", lambda x, o: x * -o, [k(1), k(2)])
dunder("round_48", "__round__", lambda x, o: x * round(o), [k(1), k(2)])
dunder("rmul_49", "__rmul__", lambda x, o: x * o, [k(1), k(2)])
dunder("rmatmul_50", "__rmatmul__", lambda x, o: x @ o, [k(1), k(2)])
dunder("missing_51", "__missing__", lambda x, o: x * o["q"], [k(1), k(2)], base=dict)
dunder("getitem_52", "__getitem__", lambda x, o: x * o["q"], [k(1), k(2)], base=dict)
dunder("getitem_53", "__getitem__", lambda x, o: x * o[0], [k(1), k(2)], base=list)
dunder("iter_54", "__iter__", lambda x, o: x * len(list(o)), [None, lambda s: iter([1])], base=list)
dunder("len_55", "__len__", lambda x, o: x * len(o), [None, k(3)], base=list)
dunder("iter_56", "__iter__", lambda x, o: x * sum([*o]), [None, lambda s: iter([1])], base=dict)
dunder("setattr_57", "__setattr__", lambda x, o: setit(x, o), [None, lambda s, n, v: object.__setattr__(s, n, v + 1)])


def setit(x, o):
    o.q = 1
    return x * o.q


dunder(
    "setitem_58",
    "__setitem__",
    lambda x, o: setitem(x, o),
    [None, lambda s, n, v: dict.__setitem__(s, n, v + 1)],
    base=dict,
)


def setitem(x, o):
    o["q"] = 1
    return x * dict.__getitem__(o, "q")


dunder(
    "delitem_59",
    "__delitem__",
    lambda x, o: delit(x, o),
    [
        k(None),
        None,
    ],
    base=dict,
)


def delit(x, o):
    o["q"] = 1
    del o["q"]
    return x * len(o)


dunder("copy_60", "__copy__", lambda x, o: x * copy.copy(o), [k(1), k(2)])
dunder("deepcopy_61", "__deepcopy__", lambda x, o: x * copy.deepcopy(o), [k(1), k(2)])
dunder("init_62", "__init__", lambda x, o: x * type(o)().__dict__.get("v", 7), [None, lambda s: s.__dict__.update(v=2)])
dunder("new_63", "__new__", lambda x, o: x * (type(type(o)()) is int), [None, staticmethod(lambda c: 3)])
dunder(
    "torch_function_65",
    "__torch_function__",
    lambda x, o: torch.add(x, o),
    [classmethod(lambda c, f, t, a=(), k=None: 3), classmethod(lambda c, f, t, a=(), k=None: 4)],
)
dunder("next_66", "__next__", lambda x, o: x * next(o), [k(1), k(2)])
dunder("reversed_67", "__reversed__", lambda x, o: x * list(reversed(o))[0], [k([1]), k([2])])
dunder("divmod_68", "__divmod__", lambda x, o: x * divmod(o, 2), [k(1), k(2)])
dunder("instancecheck_69", "__instancecheck__", lambda x, o: x * 2, [None])
dunder("fspath_70", "__fspath__", lambda x, o: (x * 2, os.fspath(o)), [k("a"), k("b")])
dunder("bytes_71", "__bytes__", lambda x, o: (x * 2, bytes(o)), [k(b"a"), k(b"b")])
dunder("length_hint_72", "__length_hint__", lambda x, o: x * operator.length_hint(o), [k(1), k(2)])
dunder("trunc_73", "__trunc__", lambda x, o: x * math.trunc(o), [k(1), k(2)])
dunder("floor_74", "__floor__", lambda x, o: x * math.floor(o), [k(1), k(2)])
dunder(
    "lt_75",
    "__lt__",
    lambda x, o: (x * 2, sorted([o, 1, 2], key=lambda v: 0 if v is o else v)[0] is o),
    [k(True), k(False)],
)
dunder("lt_76", "__lt__", lambda x, o: x * (sorted([5, o])[0] is o), [k(True), k(False)])
dunder("gt_77", "__gt__", lambda x, o: x * (sorted([o, 5])[0] is o), [k(True), k(False)])
dunder("class_getitem_78", "__class_getitem__", lambda x, o: x * type(o)[0], [classmethod(k(1)), classmethod(k(2))])
dunder("dir_79", "__dir__", lambda x, o: x * len(dir(o)), [k(["a"]), k(["a", "b"])])
dunder(
    "keys_80",
    "keys",
    lambda x, o: x * len({**o}),
    [lambda s: ["a"], lambda s: ["a", "b"]],
    base=type("B", (), {"__getitem__": lambda s, i: 1}),
)
