import pytest

pytest.importorskip("hypothesis")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from magpy_annotations import (  # noqa: E402
    Annotation,
    Input,
    OpKind,
    OpNode,
    Output,
    Read,
    Relation,
    parse,
    render,
)

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
