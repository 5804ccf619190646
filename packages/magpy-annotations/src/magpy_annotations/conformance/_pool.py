"""What operations are tried on: arguments of all kinds, and an instance or two of each owner."""

from __future__ import annotations

import collections
import datetime
import functools
import itertools
import operator
import re
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from magpy_annotations import hidden


class Instance:
    """A plain object with an attribute."""

    def __init__(self) -> None:
        self.x = [1]

    def get(self) -> list[int]:
        """What it holds."""
        return self.x


def _one(*args: Any) -> int:
    return 1


class Sequence:
    """A sequence by protocol."""

    def __getitem__(self, index: int) -> int:
        if index > 2:
            raise IndexError
        return index


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


Maker = Callable[[], Any]

POOL: tuple[tuple[str, Maker], ...] = (
    ("1", lambda: 1),
    ("[[1], [2], [3]]", lambda: [[1], [2], [3]]),
    ("'ab'", lambda: "ab"),
    ("{'a': [1], 1: [2]}", lambda: {"a": [1], 1: [2]}),
    ("iter([1, 2])", lambda: iter([1, 2])),
    ("(1, 'ab')", lambda: (1, "ab")),
    ("None", lambda: None),
    ("[3, 1, 2]", lambda: [3, 1, 2]),
    ("[('a', 1), ('b', 2)]", lambda: [("a", 1), ("b", 2)]),
    ("{1, 2}", lambda: {1, 2}),
    ("2.5", lambda: 2.5),
    ("b'ab'", lambda: b"ab"),
    ("'x'", lambda: "x"),
    ("Instance()", Instance),
    ("len", lambda: len),
    ("one", lambda: _one),
    ("int", lambda: int),
    ("slice(0, 2)", lambda: slice(0, 2)),
    ("1j", lambda: 1j),
)
"""Arguments of all kinds, the likelier ones first."""

SELVES: dict[str, tuple[tuple[str, Maker], ...]] = {
    "builtins.list": (
        ("[[1], [2], [3]]", lambda: [[1], [2], [3]]),
        ("[3, 1, 2]", lambda: [3, 1, 2]),
        ("[]", list),
    ),
    "builtins.tuple": (("([1], [2])", lambda: ([1], [2])), ("(1, 'ab')", lambda: (1, "ab"))),
    "builtins.dict": (("{'a': [1], 1: [2]}", lambda: {"a": [1], 1: [2]}), ("{}", dict)),
    "builtins.set": (("{1, 2}", lambda: {1, 2}),),
    "builtins.frozenset": (("frozenset({1, 2})", lambda: frozenset({1, 2})),),
    "builtins.str": (("'ab'", lambda: "ab"), ("'%s'", lambda: "%s")),
    "builtins.bytes": (("b'ab'", lambda: b"ab"),),
    "builtins.int": (("5", lambda: 5),),
    "builtins.bool": (("True", lambda: True),),
    "builtins.float": (("2.5", lambda: 2.5),),
    "builtins.complex": (("1j", lambda: 1j),),
    "builtins.range": (("range(3)", lambda: range(3)),),
    "builtins.slice": (("slice(0, 2)", lambda: slice(0, 2)),),
    "builtins.bytearray": (("bytearray(b'ab')", lambda: bytearray(b"ab")),),
    "builtins.enumerate": (("enumerate([[1]])", lambda: enumerate([[1]])),),
    "builtins.zip": (("zip([[1]], [[2]])", lambda: zip([[1]], [[2]], strict=False)),),
    "builtins.map": (("map(len, [[1]])", lambda: map(len, [[1]])),),
    "builtins.filter": (("filter(None, [[1]])", lambda: filter(None, [[1]])),),
    "builtins.reversed": (("reversed(([1], [2]))", lambda: reversed(([1], [2]))),),
    "builtins.object": (("Instance()", Instance),),
    "builtins.type": (("int", lambda: int),),
    "builtins.BaseException": (("ValueError([1])", lambda: ValueError([1])),),
    "builtins.property": (("property(one)", lambda: property(_one)),),
    "builtins.staticmethod": (("staticmethod(one)", lambda: staticmethod(_one)),),
    "builtins.classmethod": (("classmethod(one)", lambda: classmethod(_one)),),
    "collections.deque": (("deque([[1], [2]])", lambda: collections.deque([[1], [2]])),),
    "collections.OrderedDict": (("OrderedDict(a=[1])", lambda: collections.OrderedDict(a=[1], b=[2])),),
    "functools.partial": (("partial(one, [1])", lambda: functools.partial(_one, [1])),),
    "itertools.chain": (("chain([[1]], [[2]])", lambda: itertools.chain([[1]], [[2]])),),
    "itertools.islice": (("islice([[1], [2]], 1)", lambda: itertools.islice([[1], [2]], 1)),),
    "itertools.cycle": (("cycle([[1], [2]])", lambda: itertools.cycle([[1], [2]])),),
    "itertools.count": (("count(2)", lambda: itertools.count(2)),),
    "itertools.repeat": (("repeat([1], 2)", lambda: itertools.repeat([1], 2)),),
    "itertools.product": (("product([1], [2])", lambda: itertools.product([1], [2])),),
    "itertools.groupby": (("groupby([1, 1])", lambda: itertools.groupby([1, 1])),),
    "itertools.accumulate": (("accumulate([1, 2])", lambda: itertools.accumulate([1, 2])),),
    "itertools.zip_longest": (("zip_longest([1], [])", lambda: itertools.zip_longest([1], [])),),
    "magpy_annotations.hidden.dict_keys": (("{'a': [1]}.keys()", lambda: {"a": [1]}.keys()),),
    "magpy_annotations.hidden.dict_values": (("{'a': [1]}.values()", lambda: {"a": [1]}.values()),),
    "magpy_annotations.hidden.dict_items": (("{'a': [1]}.items()", lambda: {"a": [1]}.items()),),
    "magpy_annotations.hidden.list_iterator": (("iter([[1], [2]])", lambda: iter([[1], [2]])),),
    "magpy_annotations.hidden.tuple_iterator": (("iter(([1],))", lambda: iter(([1],))),),
    "magpy_annotations.hidden.set_iterator": (("iter({1})", lambda: iter({1})),),
    "magpy_annotations.hidden.dict_keyiterator": (("iter({'a': 1})", lambda: iter({"a": 1})),),
    "magpy_annotations.hidden.dict_valueiterator": (("iter({'a': [1]}.values())", lambda: iter({"a": [1]}.values())),),
    "magpy_annotations.hidden.dict_itemiterator": (("iter({'a': [1]}.items())", lambda: iter({"a": [1]}.items())),),
    "magpy_annotations.hidden.range_iterator": (("iter(range(3))", lambda: iter(range(3))),),
    "magpy_annotations.hidden.str_ascii_iterator": (("iter('ab')", lambda: iter("ab")),),
    "magpy_annotations.hidden.mappingproxy": (("mappingproxy({'a': [1]})", lambda: hidden.mappingproxy({"a": [1]})),),
    "magpy_annotations.hidden.method": (("Instance().get", lambda: Instance().get),),
    "magpy_annotations.hidden.SimpleNamespace": (("SimpleNamespace(a=[1])", lambda: hidden.SimpleNamespace(a=[1])),),
    "builtins.super": (("super(list, [])", lambda: super(list, [])),),
    "builtins.memoryview": (("memoryview(b'ab')", lambda: memoryview(b"ab")),),
    "collections.defaultdict": (("defaultdict(list)", lambda: collections.defaultdict(list, a=[1])),),
    "_collections._deque_iterator": (("iter(deque([[1]]))", lambda: iter(collections.deque([[1]]))),),
    "_collections._deque_reverse_iterator": (("reversed(deque([[1]]))", lambda: reversed(collections.deque([[1]]))),),
    "_collections._tuplegetter": (("Pair.first", lambda: vars(Pair)["first"]),),
    "datetime.date": (("date(2024, 1, 2)", lambda: datetime.date(2024, 1, 2)),),
    "datetime.datetime": (("datetime(2024, 1, 2)", lambda: datetime.datetime(2024, 1, 2)),),
    "datetime.time": (("time(1)", lambda: datetime.time(1)),),
    "datetime.timedelta": (("timedelta(1)", lambda: datetime.timedelta(1)),),
    "datetime.timezone": (("timezone.utc", lambda: datetime.UTC),),
    "itertools.combinations": (("combinations([1, 2], 1)", lambda: itertools.combinations([1, 2], 1)),),
    "itertools.combinations_with_replacement": (
        ("combinations_with_replacement([1], 2)", lambda: itertools.combinations_with_replacement([1], 2)),
    ),
    "itertools.permutations": (("permutations([1, 2])", lambda: itertools.permutations([1, 2])),),
    "itertools.compress": (("compress([[1]], [1])", lambda: itertools.compress([[1]], [1])),),
    "itertools.dropwhile": (("dropwhile(callable, [[1]])", lambda: itertools.dropwhile(callable, [[1]])),),
    "itertools.takewhile": (("takewhile(one, [[1]])", lambda: itertools.takewhile(_one, [[1]])),),
    "itertools.filterfalse": (("filterfalse(callable, [[1]])", lambda: itertools.filterfalse(callable, [[1]])),),
    "itertools.starmap": (("starmap(one, [[1]])", lambda: itertools.starmap(_one, [[1]])),),
    "itertools.pairwise": (("pairwise([1, 2])", lambda: itertools.pairwise([1, 2])),),
    "operator.itemgetter": (("itemgetter(0)", lambda: operator.itemgetter(0)),),
    "operator.attrgetter": (("attrgetter('x')", lambda: operator.attrgetter("x")),),
    "operator.methodcaller": (("methodcaller('copy')", lambda: operator.methodcaller("copy")),),
    "re.Pattern": (("re.compile('a')", lambda: re.compile("a")),),
    "re.Match": (("re.match('a', 'ab')", lambda: re.match("a", "ab")),),
    "_struct.Struct": (("Struct('b')", lambda: struct.Struct("b")),),
    "_thread.LockType": (("Lock()", threading.Lock),),
    "_thread.RLock": (("RLock()", threading.RLock),),
    "magpy_annotations.hidden.GenericAlias": (("list[int]", lambda: list[int]),),
    "magpy_annotations.hidden.UnionType": (("int | str", lambda: int | str),),
    "magpy_annotations.hidden.NotImplementedType": (("NotImplemented", lambda: NotImplemented),),
    "magpy_annotations.hidden.NoneType": (("None", lambda: None),),
    "magpy_annotations.hidden.ellipsis": (("...", lambda: ...),),
    "magpy_annotations.hidden.builtin_function_or_method": (("len", lambda: len),),
    "magpy_annotations.hidden.bytes_iterator": (("iter(b'ab')", lambda: iter(b"ab")),),
    "magpy_annotations.hidden.bytearray_iterator": (("iter(bytearray(b'a'))", lambda: iter(bytearray(b"a"))),),
    "magpy_annotations.hidden.callable_iterator": (("iter(one, 2)", lambda: iter(_one, 2)),),
    "magpy_annotations.hidden.cell": (("cell([1])", lambda: hidden.cell([1])),),
    "magpy_annotations.hidden.cmp_key": (("cmp_to_key(one)(2)", lambda: functools.cmp_to_key(_one)(2)),),
    "magpy_annotations.hidden.code": (("one.__code__", lambda: _one.__code__),),
    "magpy_annotations.hidden.dict_reverseitemiterator": (
        ("reversed({1: 2}.items())", lambda: reversed({1: 2}.items())),
    ),
    "magpy_annotations.hidden.dict_reversekeyiterator": (("reversed({1: 2})", lambda: reversed({1: 2})),),
    "magpy_annotations.hidden.dict_reversevalueiterator": (
        ("reversed({1: 2}.values())", lambda: reversed({1: 2}.values())),
    ),
    "magpy_annotations.hidden.function": (("one", lambda: _one),),
    "magpy_annotations.hidden.generator": (("generator", lambda: (each for each in [[1], [2]])),),
    "magpy_annotations.hidden.getset_descriptor": (("int.real", lambda: vars(int)["real"]),),
    "magpy_annotations.hidden.member_descriptor": (("slice.start", lambda: vars(slice)["start"]),),
    "magpy_annotations.hidden.method_descriptor": (("list.append", lambda: list.append),),
    "magpy_annotations.hidden.wrapper_descriptor": (("int.__add__", lambda: int.__add__),),
    "magpy_annotations.hidden.method_wrapper": (("(1).__add__", lambda: (1).__add__),),
    "magpy_annotations.hidden.classmethod_descriptor": (("dict.fromkeys", lambda: vars(dict)["fromkeys"]),),
    "magpy_annotations.hidden.grouper": (("next(groupby([1, 1]))[1]", lambda: next(itertools.groupby([1, 1]))[1]),),
    "magpy_annotations.hidden.list_reverseiterator": (("reversed([[1], [2]])", lambda: reversed([[1], [2]])),),
    "magpy_annotations.hidden.longrange_iterator": (("iter(range(1 << 80))", lambda: iter(range(1 << 80))),),
    "magpy_annotations.hidden.lru_cache_wrapper": (("lru_cache(one)", lambda: functools.lru_cache(_one)),),
    "magpy_annotations.hidden.module": (("ModuleType('m')", lambda: hidden.module("m")),),
    "magpy_annotations.hidden.sequence_iterator": (("iter(Sequence())", lambda: iter(Sequence())),),
    "magpy_annotations.hidden.str_iterator": (("iter('\u00e9')", lambda: iter("\u00e9")),),
    "magpy_annotations.hidden.tee": (("tee([[1]])[0]", lambda: itertools.tee([[1]])[0]),),
}
"""What methods are tried on, by the owner's path."""


BY_NAME: dict[str, tuple[tuple[str, Maker], ...]] = {
    "name": (("'x'", lambda: "x"), ("'__class__'", lambda: "__class__"), ("'__new__'", lambda: "__new__")),
    "format_spec": (("''", str),),
    "instance": (("Pair([1], [2])", lambda: Pair([1], [2])), ("[[1]]", lambda: [[1]]), *POOL[:1]),
    "buffer": (("b'a'", lambda: b"a"), ("bytearray(b'a')", lambda: bytearray(b"a"))),
    "format": (("'b'", lambda: "b"),),
    "tb": (("None", lambda: None),),
}
"""What inputs of certain names are given, whatever the operation."""
