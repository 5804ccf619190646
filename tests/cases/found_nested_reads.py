"""Programs that came out wrong: nested reads."""

import functools
import heapq
import operator

import numpy as np

from cases.world import A, B, dunder, k, nested

dunder(
    "eq_15",
    "__eq__",
    lambda x, o: x * 2 if {"a": o} == {"a": 3} else x * 3,
    [None, k(True)],
)
nested(
    "map_sum",
    lambda x, v: x * sum(map(sum, v)),
    A,
    B,
)
nested(
    "map_len",
    lambda x, v: x * sum(map(len, v)),
    A,
    [[1, 2], [3, 4]],
)
nested(
    "filter_none",
    lambda x, v: x * len(list(filter(None, v))),
    [[], [1]],
    [[], []],
)
nested(
    "reduce",
    lambda x, v: x * sum(functools.reduce(operator.add, v)),
    A,
    B,
)
nested(
    "heap",
    lambda x, v: x * heapq.nsmallest(1, v)[0][0],
    A,
    [[1, 2], [0]],
)
nested(
    "dict_repr",
    lambda x, v: (x * 2, str(v)),
    {"a": [1]},
    {"a": [2]},
)
nested(
    "memoryview_sum",
    lambda x, v: x * sum(memoryview(v)),
    bytearray(b"a"),
    bytearray(b"b"),
)
nested(
    "np_shape",
    lambda x, v: x * v.shape[0],
    np.array([1.0]),
    np.array([2.0, 3.0]),
)
