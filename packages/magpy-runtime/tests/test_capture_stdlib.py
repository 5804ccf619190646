"""The standard library's own code under capture: the same results, and exactly one after for each before."""

import argparse
import ast
import asyncio
import base64
import calendar
import collections
import colorsys
import configparser
import contextlib
import copy
import csv
import dataclasses
import datetime
import difflib
import email
import enum
import fnmatch
import fractions
import functools
import graphlib
import heapq
import html
import html.parser
import inspect
import io
import json
import json.decoder
import json.scanner
import logging
import pickle
import pprint
import queue
import re
import shlex
import statistics
import string
import struct
import tempfile
import textwrap
import tokenize
import traceback
import types
import typing
import unittest
import urllib.parse
import uuid
import xml.etree.ElementTree
import zipfile

import pytest

try:
    import re._compiler as re_compiler
except ImportError:
    import sre_compile as re_compiler

SOURCE = inspect.getsource(textwrap) + inspect.getsource(heapq)


def json_python():
    data = {"a": [1, 2.5, None, True, "x\u00e9\n"], "b": {"c": []}}
    text = "".join(json.JSONEncoder(indent=1).iterencode(data))
    decoder = json.JSONDecoder()
    decoder.parse_string = json.decoder.py_scanstring
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    out = [text, decoder.decode(text)]
    try:
        decoder.decode("[1, }")
    except json.JSONDecodeError as error:
        out.append(str(error))
    return out


def re_compile():
    pattern = re_compiler.compile(r"(?P<a>x+|[^a-z\d]{2,3}?)\b(?:foo|ba[rz])(?=z)|(?<!q)\w*")
    return pattern.pattern, pattern.groupindex, re.sub(r"\w", lambda m: m[0].upper(), "a-b"), re.escape("a.b")


def dataclass_module():
    @dataclasses.dataclass(order=True, frozen=True, slots=True)
    class P:
        x: int
        y: list = dataclasses.field(default_factory=list)
        z: typing.ClassVar[int] = 3

    p = P(1)
    try:
        p.x = 2
    except dataclasses.FrozenInstanceError as error:
        message = str(error)
    return p, dataclasses.replace(p, x=3), dataclasses.asdict(p), P(0) < p, hash(P(1, ())), message


def collections_module():
    T = collections.namedtuple("T", "a b", defaults=[2])
    counter = collections.Counter("mississippi")
    chain = collections.ChainMap({"a": 1}, {"b": 2})
    user = collections.UserDict(a=1)
    user["b"] = 2
    strange = collections.UserString("ab")
    return T(1)._replace(b=5), counter.most_common(2), counter + counter, dict(chain), dict(user), str(strange * 2)


def ordered_dict_python():
    # The pure Python class behind the C accelerated one.
    source = inspect.getsource(collections)
    start = source.index("class _OrderedDictKeysView")
    stop = source.index("try:\n    from _collections import OrderedDict")
    space = dict(vars(collections))
    exec(source[start:stop], space)
    d = space["OrderedDict"]([("a", 1), ("b", 2), ("c", 3)])
    d.move_to_end("a")
    d.popitem(last=False)
    d["z"] = 9
    return list(d.items()), repr(d), list(reversed(d)), d == space["OrderedDict"](d)


def text_modules():
    return (
        textwrap.fill("some words that are to be wrapped " * 3, 20),
        textwrap.dedent("  a\n   b"),
        string.Template("$a ${b}").substitute(a=1, b=2),
        string.Formatter().vformat("{0!r:>5} {x[0]}", ("q",), {"x": [1]}),
        list(difflib.unified_diff("abc", "adc", lineterm="")),
        shlex.split('a \'b c\' "d\\"e" # f', comments=True),
        html.unescape("&amp;&#65;"),
        fnmatch.translate("a*[!b]?"),
        pprint.pformat({"a": list(range(30)), "b": {"c": ("x" * 70,)}}),
    )


def ast_module():
    tree = ast.parse(SOURCE)

    class Renamer(ast.NodeTransformer):
        def visit_Name(self, node):
            return ast.copy_location(ast.Name(id=node.id + "_", ctx=node.ctx), node)

    return len(ast.dump(tree)), ast.unparse(Renamer().visit(tree))[:200], ast.literal_eval("{'a': [1, -2j]}")


def tokenize_module():
    return [t[:2] for t in tokenize.generate_tokens(io.StringIO(inspect.getsource(heapq.merge)).readline)]


def argparse_module():
    parser = argparse.ArgumentParser(prog="p", exit_on_error=False)
    sub = parser.add_subparsers(dest="cmd")
    one = sub.add_parser("one")
    one.add_argument("--n", type=int, choices=[1, 2])
    one.add_argument("rest", nargs="*")
    out = [vars(parser.parse_args(["one", "--n", "1", "a", "b"])), parser.format_help()]
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            parser.parse_args(["one", "--n", "x"])
        except (argparse.ArgumentError, SystemExit) as error:
            out.append(str(error))
    return out, err.getvalue()


def numbers():
    import _pydecimal

    return (
        _pydecimal.Decimal("1.25").sqrt(),
        str(_pydecimal.Decimal(2) ** _pydecimal.Decimal("0.5") / 3),
        fractions.Fraction("3/4") + fractions.Fraction(1.5) ** 2,
        statistics.stdev([1, 2, 3.5]),
        statistics.quantiles(range(10), n=4),
        colorsys.rgb_to_hls(0.2, 0.4, 0.6),
    )


def dates():
    import _pydatetime_shim as shim

    dt = shim.datetime(2024, 2, 29, 12, 30, tzinfo=shim.timezone.utc)
    return (
        dt.isoformat(),
        str(dt + shim.timedelta(days=366, hours=5)),
        dt.strftime("%Y %j"),
        calendar.TextCalendar().formatmonth(2024, 2),
        datetime.datetime.fromisoformat("2020-01-01").weekday(),
    )


def contextlib_module():
    log = []

    @contextlib.contextmanager
    def manager(name):
        log.append(name)
        try:
            yield name
        except KeyError:
            log.append("caught")
        finally:
            log.append("-" + name)

    with contextlib.ExitStack() as stack:
        for name in "abc":
            stack.enter_context(manager(name))
        stack.push(lambda *exc: log.append(exc[0] is None))
        raise KeyError
    with contextlib.nullcontext(), contextlib.closing(io.StringIO()), contextlib.suppress(OSError):
        raise OSError

    @manager("decorator")
    def decorated():
        return 1

    return log, decorated()


def functools_module():
    @functools.singledispatch
    def f(x):
        return "object"

    @f.register
    def _(x: int):
        return "int"

    @functools.lru_cache(maxsize=2)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @functools.total_ordering
    class V:
        def __init__(self, v):
            self.v = v

        def __lt__(self, other):
            return self.v < other.v

        def __eq__(self, other):
            return self.v == other.v

        @functools.cached_property
        def double(self):
            return 2 * self.v

    return (
        f(1),
        f("a"),
        f(True),
        fib(10),
        fib.cache_info(),
        V(1) >= V(0),
        V(2).double,
        sorted([3, 1], key=functools.cmp_to_key(lambda a, b: b - a)),
    )


def enum_module():
    class Color(enum.Enum):
        RED = enum.auto()
        BLUE = enum.auto()
        ALIAS = 1

        def describe(self):
            return self.name.lower()

    class Perm(enum.Flag):
        R = 1
        W = 2

    return (
        str(Color(1)),
        Color.ALIAS.describe(),
        list(map(repr, Color)),
        repr(Perm.R | Perm.W),
        Perm.R in Perm(3),
        Color["BLUE"].value,
    )


def inspect_module():
    def f(a, /, b: int = 2, *args, c, **kw) -> str: ...

    signature = inspect.signature(f)
    bound = signature.bind(1, c=3, d=4)
    bound.apply_defaults()
    return str(signature), dict(bound.arguments), inspect.getmodule(inspect).__name__, inspect.getdoc(inspect.signature)


def copies():
    class Node:
        def __init__(self, value):
            self.value, self.next = value, None

    a = Node([1, {2: 3}])
    a.next = a
    b = copy.deepcopy(a)
    buffer = io.BytesIO()
    pickle._Pickler(buffer).dump({"a": [1, (2, 3), b"x"], "b": datetime.date(2020, 1, 1)})
    return b.next is b, b.value, copy.copy([1]), pickle._Unpickler(io.BytesIO(buffer.getvalue())).load()


def parsers():
    config = configparser.ConfigParser()
    config.read_string("[a]\nx = 1\ny = %(x)s2\n[b]\nz: on")
    message = email.message_from_string("From: a@b\nSubject: =?utf-8?q?h=C3=A9?=\nContent-Type: text/plain\n\nbody")

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, attrs))

    seen = []
    Parser().feed("<a href='x'>t<br/></a><!-- c -->")
    tree = xml.etree.ElementTree.fromstring("<r><a k='1'>t</a><a/></r>")
    rows = list(csv.DictReader(io.StringIO("a,b\n1,2\n")))
    return (
        config["a"]["y"],
        config.getboolean("b", "z"),
        message["subject"],
        message.get_payload(),
        seen,
        [e.get("k") for e in tree.iter("a")],
        xml.etree.ElementTree.tostring(tree),
        rows,
        urllib.parse.urlsplit("http://u:p@h:80/p?q=1#f").port,
        urllib.parse.urlencode({"a": [1, 2], "b": "x y"}, doseq=True),
        urllib.parse.urljoin("http://a/b/c", "../d"),
    )


def heaps_and_graphs():
    return (
        heapq.nsmallest(2, [5, 1, 4], key=lambda v: -v),
        list(heapq.merge([1, 4], [2, 3], key=lambda v: v)),
        list(graphlib.TopologicalSorter({"a": {"b"}, "b": {"c"}}).static_order()),
        heapq._heapreplace_max([5, 1], 3) if hasattr(heapq, "_heapreplace_max") else None,
    )


def encodings():
    return (
        base64.b32encode(b"hello"),
        base64.a85encode(b"hello"),
        str(uuid.uuid5(uuid.NAMESPACE_DNS, "a")),
        struct.unpack("<I", struct.pack("<I", 5)),
        "héllo".encode("punycode"),
        b"h\xc3\xa9".decode("utf-8-sig"),
    )


def logs_and_tracebacks():
    stream = io.StringIO()
    logger = logging.Logger("mine")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        {}["k"]
    except KeyError as error:
        logger.warning("w %s", 1)
        text = traceback.format_exception_only(error)
    return stream.getvalue(), text


def files():
    with tempfile.TemporaryDirectory() as folder:
        name = folder + "/a.zip"
        with zipfile.ZipFile(name, "w") as archive:
            archive.writestr("x.txt", "data" * 100, zipfile.ZIP_DEFLATED)
        with zipfile.ZipFile(name) as archive:
            return archive.namelist(), len(archive.read("x.txt")), archive.testzip()


def unit_tests():
    class Case(unittest.TestCase):
        def test_ok(self):
            self.assertEqual([1], [1])

        def test_bad(self):
            with self.assertRaises(ZeroDivisionError):
                1 / 0
            self.assertEqual(1, 2)

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    return result.testsRun, len(result.failures), len(result.errors)


def typing_module():
    T = typing.TypeVar("T")

    class G(typing.Generic[T]):
        x: "typing.Optional[T]"

    @typing.runtime_checkable
    class Proto(typing.Protocol):
        def close(self): ...

    class N(typing.NamedTuple):
        a: int
        b: str = "x"

    return str(G[int]), typing.get_type_hints(N), isinstance(io.StringIO(), Proto), typing.Union[int, None, int], N(1)


def asyncio_module():
    async def produce(q):
        for i in range(5):
            await q.put(i)
            await asyncio.sleep(0)
        await q.put(None)

    async def consume(q):
        out = []
        while (item := await q.get()) is not None:
            out.append(item)
        return out

    async def main():
        q = asyncio.Queue(2)
        async with asyncio.TaskGroup() as group:
            group.create_task(produce(q))
            got = group.create_task(consume(q))
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(5)
        except TimeoutError:
            return got.result()

    return asyncio.run(main())


def queues_and_namespaces():
    q = queue.PriorityQueue()
    for v in (3, 1, 2):
        q.put(v)
    n = types.SimpleNamespace(a=1)
    return [q.get() for _ in range(3)], repr(n), types.new_class("K", (), {}, lambda ns: ns.update(a=1)).a


WORKLOADS = [
    json_python,
    re_compile,
    dataclass_module,
    collections_module,
    ordered_dict_python,
    text_modules,
    ast_module,
    tokenize_module,
    argparse_module,
    numbers,
    dates,
    contextlib_module,
    functools_module,
    enum_module,
    inspect_module,
    copies,
    parsers,
    heaps_and_graphs,
    encodings,
    logs_and_tracebacks,
    files,
    unit_tests,
    typing_module,
    asyncio_module,
    queues_and_namespaces,
]


@pytest.fixture(autouse=True)
def pure_datetime(monkeypatch):
    """The pure Python datetime under one name on all versions."""
    import sys

    try:
        import _pydatetime as module
    except ImportError:
        source = inspect.getsource(datetime)
        module = types.ModuleType("_pydatetime_shim")
        monkeypatch.setitem(sys.modules, "_pydatetime_shim", module)
        exec(source[: source.index("try:\n    from _datetime import *")], vars(module))
    monkeypatch.setitem(sys.modules, "_pydatetime_shim", module)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.__name__)
def test_same_result(workload, make_watch):
    workload()  # caches of the library are filled
    native = repr(workload())
    watch = make_watch(keep=False)
    assert repr(watch.run(workload)) == native
    assert watch.befores > 20
    assert repr(workload()) == native


def test_compiler_in_python_is_captured(make_watch):
    watch = make_watch(keep=False)
    watch.run(exec, compile(SOURCE, "<library>", "exec"), {"__name__": "library"})
    assert watch.befores > 100
