"""Programs that come out right: nested."""

import bisect
import collections
import copy
import datetime
import decimal
import fractions
import functools
import itertools
import json
import math
import operator
import pathlib
import pickle
import re
import statistics
import types

import numpy as np
import torch
import torch.nn.functional as F
from soundness import attempt

from cases.world import A, B, nested

nested("chain", lambda x, v: x * sum(itertools.chain.from_iterable(v)), A, B)
nested("chain_star", lambda x, v: x * sum(itertools.chain(*v)), A, B)
nested("sum_lists", lambda x, v: x * sum(sum(v, [])), A, B)
nested("zip_star", lambda x, v: x * sum(map(sum, zip(*v))), A, B)
nested("dict_pairs", lambda x, v: x * sum(dict(v).values()), [["a", 1]], [["a", 2]])
nested("map_list", lambda x, v: x * sum(map(sum, map(list, v))), A, B)
nested("max_len", lambda x, v: x * max(v, key=len)[0], A, [[1, 2], [3, 4, 5]])
nested("max_sum", lambda x, v: x * max(v, key=sum)[0], A, [[1, 2], [7]])
nested("sorted", lambda x, v: x * sorted(v)[0][0], A, [[1, 2], [0]])
nested("sorted_deep", lambda x, v: x * sorted(v)[0][0][0], [[[1]], [[3]]], [[[1]], [[0]]])
nested("min", lambda x, v: x * min(v)[0], A, [[1, 2], [0]])
nested("eq", lambda x, v: x * (v == [[1, 2], [3]]), A, B)
nested("eq_deep", lambda x, v: x * (v == [[[1], [2]]]), [[[1], [2]]], [[[1], [3]]])
nested("lt", lambda x, v: x * (v < [[1, 2], [4]]), A, B)
nested("in", lambda x, v: x * ([3] in v), A, B)
nested("index", lambda x, v: x * attempt(v.index, [3])[0] if 0 else x * ([9] + v).count([3]), A, B)
nested("join", lambda x, v: (x * 2, "".join(v)), ["a", "b"], ["a", "c"])
nested("format", lambda x, v: (x * 2, "{}".format(v)), A, B)
nested("percent", lambda x, v: (x * 2, "%s" % (v,)), A, B)
nested("fstring", lambda x, v: (x * 2, f"{v}"), A, B)
nested("fstring_inner", lambda x, v: (x * 2, f"{v[0]!r}"), A, [[1, 3], [3]])
nested("repr", lambda x, v: (x * 2, repr(v)), A, B)
nested("str", lambda x, v: (x * 2, str(v)), A, B)
nested("any", lambda x, v: x * any(v), [[], []], [[], [1]])
nested("all", lambda x, v: x * all(v), [[1], [1]], [[1], []])
nested("product", lambda x, v: x * sum(a * b for a, b in itertools.product(*v)), A, B)
nested("counter", lambda x, v: x * collections.Counter(v)["a"], ["a", "b"], ["a", "a"])
nested("torch_tensor", lambda x, v: x + torch.tensor(v).sum(), [[1, 2], [3, 4]], [[1, 2], [3, 5]])
nested("torch_tensor_tuple", lambda x, v: x + torch.tensor(v).sum(), ([1, 2], [3, 4]), ([1, 2], [3, 5]))
nested("json", lambda x, v: (x * 2, json.dumps(v)), A, B)
nested("pickle", lambda x, v: (x * 2, pickle.dumps(v)), A, B)
nested("reduce_mul", lambda x, v: x * functools.reduce(operator.mul, v), [1, 2], [1, 3])
nested("accumulate", lambda x, v: x * list(itertools.accumulate(v))[-1], [1, 2], [1, 3])
nested("accumulate_lists", lambda x, v: x * len(list(itertools.accumulate(v))[-1]), A, [[1, 2], [3, 4]])
nested("startswith", lambda x, v: x * "abc".startswith(v), ("x", "b"), ("x", "a"))
nested("isinstance_tuple", lambda x, v: x * isinstance(3, v), (str, float), (str, int))
nested("isinstance_nested", lambda x, v: x * isinstance(3, v), (str, (float,)), (str, (int,)))
nested("itemgetter", lambda x, v: x * operator.itemgetter(1)(v)[0], A, B)
nested("itemgetter2", lambda x, v: x * operator.itemgetter(1, 0)(v)[0][0], A, B)
nested("prod", lambda x, v: x * math.prod(v), [1, 2], [1, 3])
nested("dist", lambda x, v: x * math.dist(*v), [[1.0], [2.0]], [[1.0], [4.0]])
nested("fsum", lambda x, v: x * math.fsum(v), [1.0, 2.0], [1.0, 3.0])
nested("bisect", lambda x, v: x * bisect.bisect(v, 2), [1, 3], [1, 2])
nested("mean", lambda x, v: x * statistics.mean(v), [1, 2], [1, 3])
nested("dict_items", lambda x, v: x * sum(a[0] for a in v.values()), {"a": [1]}, {"a": [2]})
nested("dict_order", lambda x, v: (x * 2, next(iter(v))), {"a": 1, "b": 2}, {"b": 2, "a": 1})
nested("dict_or", lambda x, v: x * (v | {"z": 1})["a"][0], {"a": [1]}, {"a": [2]})
nested("dict_get", lambda x, v: x * v.get("a", [5])[0], {"a": [1]}, {"b": [2]})
nested("dict_match", lambda x, v: mat(x, v), {"a": [1]}, {"a": [2]})


def mat(x, v):
    match v:
        case {"a": [1]}:
            return x * 2
        case {"a": [n]}:
            return x * n * 5


nested("list_match", lambda x, v: mat2(x, v), [1, [2]], [1, [3]])


def mat2(x, v):
    match v:
        case [1, [2]]:
            return x * 2
        case [1, [n]]:
            return x * n * 5


nested("unpack_nested", lambda x, v: unp(x, v), [1, [2, 3]], [1, [2, 4]])


def unp(x, v):
    a, (b, c) = v
    return x * c


nested("star_unpack", lambda x, v: unp2(x, v), [[1], 2, 3], [[2], 2, 3])


def unp2(x, v):
    (a,), *b = v
    return x * a


nested("set_of_tuples", lambda x, v: x * sum(a for a, b in v), {(1, 2)}, {(2, 2)})
nested("set_in", lambda x, v: x * ((1, 2) in v), {(1, 2)}, {(2, 2)})
nested("dictcomp", lambda x, v: x * {k: q for k, q in v}["a"], [["a", 1]], [["a", 2]])
nested("negindex", lambda x, v: x * v[-1], [1, 2], [1, 2, 3])
nested("negindex_long", lambda x, v: x * v[-1], list(range(20)), list(range(21)))
nested("slice_list", lambda x, v: x * sum(v[1:3]), list(range(20)), [0, 1, 7, *range(17)])
nested("deque_idx", lambda x, v: x * v[1], collections.deque([1, 2]), collections.deque([1, 3]))
nested("deque_maxlen", lambda x, v: x * (v.maxlen or 7), collections.deque([1, 2], 3), collections.deque([1, 2], 4))
nested("defaultdict", lambda x, v: x * v["q"], collections.defaultdict(int), collections.defaultdict(lambda: 4))
nested(
    "odict",
    lambda x, v: (x * 2, v.popitem(last=False)),
    collections.OrderedDict(a=1, b=2),
    collections.OrderedDict(b=2, a=1),
)
nested("range", lambda x, v: x * len(v), range(3), range(4))
nested("namespace", lambda x, v: x * v.a[0], types.SimpleNamespace(a=[1]), types.SimpleNamespace(a=[2]))
nested("nan", lambda x, v: x * (v != v), 1.0, float("nan"))
nested("negzero", lambda x, v: x + math.copysign(1, v), 0.0, -0.0)
nested("bool_int", lambda x, v: (x * 2, v), 1, True)
nested("complex", lambda x, v: (x * 2, v.imag), 1 + 0j, 1 - 0j)
nested("dict_intkey", lambda x, v: (x * 2, list(v)), {1: 1}, {True: 1})
nested("bytearray", lambda x, v: x * v[0], bytearray(b"a"), bytearray(b"b"))
nested("bytearray_slice", lambda x, v: (x * 2, bytes(v)), bytearray(b"a"), bytearray(b"b"))
nested("mappingproxy", lambda x, v: x * types.MappingProxyType(v)["a"], {"a": 1}, {"a": 2})
nested("chainmap", lambda x, v: x * collections.ChainMap({}, v)["a"], {"a": 1}, {"a": 2})
nested("userdict", lambda x, v: x * collections.UserDict(v)["a"], {"a": 1}, {"a": 2})
nested("zip_strict", lambda x, v: x * len(list(zip(*v))), A, [[1, 2], [3, 4]])
nested("enumerate", lambda x, v: x * sum(i * j for i, j in enumerate(v)), [1, 2], [1, 3])
nested("starmap", lambda x, v: x * sum(itertools.starmap(operator.mul, v)), [[1, 2]], [[1, 3]])
nested("starmap_lambda", lambda x, v: x * sum(itertools.starmap(lambda a, b: a * b, v)), [[1, 2]], [[1, 3]])
nested("groupby", lambda x, v: x * len(list(itertools.groupby(v))), [1, 1], [1, 2])
nested("groupby_key", lambda x, v: x * len(list(itertools.groupby(v, key=len))), A, [[1, 2], [3, 4]])
nested("islice", lambda x, v: x * sum(itertools.islice(v, 1, None)), [1, 2], [1, 3])
nested("tee", lambda x, v: x * sum(itertools.tee(v)[0]), [1, 2], [1, 3])
nested("cycle", lambda x, v: x * next(itertools.cycle(v)), [1, 2], [3, 3])
nested("deepcopy", lambda x, v: x * copy.deepcopy(v)[1][0], A, B)
nested("np_array", lambda x, v: x * float(np.array(v).sum()), [[1, 2], [3, 4]], [[1, 2], [3, 5]])
nested(
    "stack_nested", lambda x, v: x + torch.stack([torch.tensor(a) for a in v]).sum(), [[1, 2], [3, 4]], [[1, 2], [3, 5]]
)
nested("view_list", lambda x, v: x.view(v), [2, 2], [4, 1])
nested("view_star", lambda x, v: x.view(*v), [2, 2], [4, 1])
nested("pad", lambda x, v: F.pad(x, v), [1, 1], [1, 2])
nested("strides", lambda x, v: x.as_strided(v[0], v[1]), [[2], [1]], [[2], [2]])
nested("index_list", lambda x, v: x[v], [0, 1], [0, 2])
nested("index_list_tuple", lambda x, v: x.view(2, 2)[v], ([0, 1], [0, 1]), ([0, 1], [1, 1]))
nested("index_np", lambda x, v: x[v], np.array([0, 1]), np.array([0, 2]))
nested("from_numpy", lambda x, v: x + torch.from_numpy(v), np.array([0.0]), np.array([2.0]))
nested("tensor_np", lambda x, v: x + torch.tensor(v), np.array([0.0]), np.array([2.0]))
nested("np_item", lambda x, v: x * float(v[0]), np.array([1.0]), np.array([2.0]))
nested("np_dtype", lambda x, v: (x * 2, str(v.dtype)), np.array([1.0]), np.array([2]))
nested("np_mul", lambda x, v: x * v, np.array([1.0]), np.array([2.0]))
nested("np_rmul", lambda x, v: v * x, np.array([1.0]), np.array([2.0]))
nested("np_int", lambda x, v: x[v], np.int64(1), np.int64(2))
nested("np_int_view", lambda x, v: x.view(v, -1), np.int64(1), np.int64(2))
nested("np_bool", lambda x, v: x * 2 if v else x * 3, np.bool_(True), np.bool_(False))
nested("np_cmp", lambda x, v: x * 2 if v > 1.5 else x * 3, np.float64(1), np.float64(2))
nested("np_sum", lambda x, v: x * sum([v, 1]), np.float64(1), np.float64(2))
nested("np_round", lambda x, v: x * round(v), np.float64(1), np.float64(2))
nested("np_pos_in_list", lambda x, v: x * [1, 2, 3][v], np.int64(1), np.int64(2))
nested("np_range", lambda x, v: x * len(range(v)), np.int64(1), np.int64(2))
nested("np_datetime", lambda x, v: (x * 2, str(v)), np.datetime64("2020-01-01"), np.datetime64("2021-01-01"))
nested("fraction", lambda x, v: x * float(v), fractions.Fraction(1, 2), fractions.Fraction(1, 3))
nested("decimal", lambda x, v: x * float(v), decimal.Decimal("1.5"), decimal.Decimal("2.5"))
nested("datetime", lambda x, v: x * v.year, datetime.date(2020, 1, 1), datetime.date(2021, 1, 1))
nested("timedelta", lambda x, v: x * v.total_seconds(), datetime.timedelta(1), datetime.timedelta(2))
nested("path", lambda x, v: (x * 2, v.name), pathlib.Path("/a"), pathlib.Path("/b"))
nested("regex", lambda x, v: (x * 2, re.match(v, "abc") is None), "a", "b")
nested("regex_obj", lambda x, v: (x * 2, v.match("abc") is None), re.compile("a"), re.compile("b"))
nested("exception_args", lambda x, v: (x * 2, v.args), ValueError(1), ValueError(2))
nested("exception_str", lambda x, v: (x * 2, str(v)), ValueError(1), ValueError(2))
