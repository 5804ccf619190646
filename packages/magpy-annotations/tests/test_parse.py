import pytest

from magpy_annotations import AnnotationError, ParseError, parse, parse_catalogue, render

LINES = [
    "m.f() -> new",
    "m.f(self: none inplace, object: none) -> constant",
    "m.f(self: key, key: hashed, default?: none) -> item self[key] else default",
    'm.f(self: none) -> attribute self["start"]',
    "m.f(self: items) -> item self[-1]",
    "m.f(self: key inplace, key: hashed) -> constant at [key]",
    "m.f(iterable: items iterated each(__lt__), *, key?: none called, reverse?) -> new",
    "m.f(a: on(__iadd__, __add__), b: on(__radd__)) -> delegated",
    "m.f(self: none inplace, value: items iterated) -> same self inplace",
    "m.f(*args: on(__lt__), key?: none called) -> element args",
    "m.f(iterable?: items iterated) -> new or iterable",
    'm.f(a: alike, **more: none) -> unknown; impure; note "a \\"quoted\\" \\\\ note\\nin two lines"',
    "m.f(object: type) -> constant | () -> new; impure; optional",
    'm.f(self: inplace, *args) -> same self inplace; node inplace random mutates(noise, out) why "tagged"',
    "m.f(message) -> constant; effect",
]


@pytest.mark.parametrize("line", LINES)
def test_text_that_is_read_is_written_again(line: str) -> None:
    assert render(parse(line)) == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m.f(a: sideways) -> new", "unknown read or flag 'sideways'"),
        ("m.f(a) -> sideways", "unknown relation 'sideways'"),
        ("m.f(a) -> new; sideways", "unknown property 'sideways'"),
        ("m.f(a) -> new; node sideways", "unknown kind of node"),
        ("m.f(a) new", "'->' expected"),
        ("m.f(a) -> new new", "unexpected 'new'"),
        ("m.f(a) -> item a[b]", "the key 'b' is no input"),
        ("m.f(a) -> new; note plain", "a quoted text expected"),
        ('m.f(a) -> new; note "open', "cannot read"),
        ("m.{f, g}(a) -> new", "one target expected"),
        ("m.f(", "expected before None"),
    ],
)
def test_what_is_no_annotation(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_a_catalogue_has_owners_braces_comments_and_long_entries() -> None:
    text = """
# a comment
owner builtins.str

{lower, upper}(self)
    -> constant
owner builtins
{int, float}.{real, imag}(self) -> constant; note "# not a comment"
"""
    found = parse_catalogue(text, owner="me")
    assert [each.target for each in found] == [
        "builtins.str.lower",
        "builtins.str.upper",
        "builtins.int.real",
        "builtins.int.imag",
        "builtins.float.real",
        "builtins.float.imag",
    ]
    assert {each.owner for each in found} == {"me"}
    assert found[2].note == "# not a comment"


def test_errors_say_where() -> None:
    with pytest.raises(AnnotationError, match=r"list\.ann:3: "):
        parse_catalogue("owner m\n\nf(a) -> sideways", source="list.ann")
    with pytest.raises(AnnotationError, match=r"list\.ann:1: .*two inputs"):
        parse_catalogue("f(a, a) -> new", source="list.ann")
