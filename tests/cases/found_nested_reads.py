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
    found="only the keys of a dictionary count as its elements",
)
nested(
    "map_sum",
    lambda x, v: x * sum(map(sum, v)),
    A,
    B,
    found="elements are applied before the container's items have nodes, so that they count as new",
)
nested(
    "map_len",
    lambda x, v: x * sum(map(len, v)),
    A,
    [[1, 2], [3, 4]],
    found="elements are applied before the container's items have nodes, so that they count as new",
)
nested(
    "filter_none",
    lambda x, v: x * len(list(filter(None, v))),
    [[], [1]],
    [[], []],
    found="filter(None, ...) does not read the truth of elements",
)
nested(
    "reduce",
    lambda x, v: x * sum(functools.reduce(operator.add, v)),
    A,
    B,
    found="elements are applied before the container's items have nodes, so that they count as new",
)
nested(
    "heap",
    lambda x, v: x * heapq.nsmallest(1, v)[0][0],
    A,
    [[1, 2], [0]],
    found="the elements that an iterator gives to C code are not read",
)
nested(
    "dict_repr",
    lambda x, v: (x * 2, str(v)),
    {"a": [1]},
    {"a": [2]},
    found="only the keys of a dictionary count as its elements",
)
nested(
    "memoryview_sum",
    lambda x, v: x * sum(memoryview(v)),
    bytearray(b"a"),
    bytearray(b"b"),
    found="a memoryview of an external buffer is new",
)
nested(
    "np_shape",
    lambda x, v: x * v.shape[0],
    np.array([1.0]),
    np.array([2.0, 3.0]),
    found="a C getter gives a new object each time, and the one that the program has has no node",
)
