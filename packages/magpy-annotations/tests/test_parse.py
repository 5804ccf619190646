import pytest
from hypothesis import given
from hypothesis import strategies as st

from magpy_annotations import (
    Annotation,
    AnnotationError,
    Input,
    OpKind,
    OpNode,
    Output,
    ParseError,
    Read,
    Relation,
    parse,
    parse_catalogue,
    render,
)

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


names = st.from_regex(r"[a-z]{1,3}", fullmatch=True)


@st.composite
def annotations(draw: st.DrawFn) -> Annotation:
    chosen = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    first_optional = draw(st.integers(0, len(chosen)))
    first_named = draw(st.integers(1, len(chosen)))
    inputs = tuple(
        Input(
            name=name,
            value_read=draw(st.sampled_from([each for each in Read if each is not Read.KEY])),
            in_place=draw(st.booleans()),
            called=draw(st.booleans()),
            iterated=draw(st.booleans()),
            hashed=draw(st.booleans()),
            alike=draw(st.booleans()),
            operators=draw(st.sampled_from([(), ("__add__",), ("__add__", "__radd__")])),
            element_operators=draw(st.sampled_from([(), ("__eq__",)])),
            optional=at >= first_optional,
            keyword_only=at >= first_named,
        )
        for at, name in enumerate(chosen)
    )
    output = draw(
        st.sampled_from(
            [
                Output(),
                Output(of=chosen[0]),
                Output(relation=Relation.CONSTANT),
                Output(relation=Relation.UNKNOWN),
                Output(relation=Relation.ELEMENT, of=chosen[0], default=chosen[-1]),
                Output(relation=Relation.ITEM, of=chosen[0], key=chosen[-1]),
                Output(relation=Relation.ITEM, of=chosen[0], key=3),
                Output(relation=Relation.ATTRIBUTE, of=chosen[0], key="__dict__"),
            ]
        )
    )
    node = draw(st.none() | st.builds(OpNode, kind=st.sampled_from(OpKind), random=st.booleans(), why=st.text()))
    return Annotation(
        target="m." + draw(names),
        inputs=inputs,
        rest=draw(st.none() | st.just(Input(name="rest"))),
        keywords=draw(st.none() | st.just(Input(name="more", value_read=Read.NONE))),
        output=output,
        as_op_node=node,
        pure_closure=draw(st.booleans()),
        effect=draw(st.booleans()),
        optional=draw(st.booleans()),
        note=draw(st.text()),
    )


@given(annotations())
def test_any_annotation_survives_its_text(annotation: Annotation) -> None:
    text = render(annotation)
    assert "\n" not in text
    assert parse(text) == annotation
