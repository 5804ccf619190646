import pytest

from magpy_annotations import Annotation, AnnotationError, Input, Output, Read, Relation, parse


def test_one_input_for_each_argument() -> None:
    form = parse("m.f(self: none, key, default?: none, *, last?: none) -> item self[key] else default")
    assert [each.name for each in form.bind(2) or ()] == ["self", "key"]
    assert [each.name for each in form.bind(2, ["last"]) or ()] == ["self", "key", "last"]
    assert [each.name for each in form.bind(1, ["default", "key"]) or ()] == ["self", "default", "key"]


@pytest.mark.parametrize(("positional", "keywords"), [(1, ()), (4, ()), (2, ("other",)), (3, ("key",))])
def test_no_inputs_for_a_call_that_does_not_fit(positional: int, keywords: tuple[str, ...]) -> None:
    form = parse("m.f(self: none, key, default?: none, *, last?: none) -> item self[key] else default")
    assert form.bind(positional, keywords) is None


def test_variadic_inputs_take_what_is_left() -> None:
    form = parse("m.f(a, *rest: none, **more: items) -> new")
    assert [each.name for each in form.bind(3, ["x"]) or ()] == ["a", "rest", "rest", "more"]


def test_the_form_that_fits_a_call() -> None:
    form = parse("builtins.type(object: type) -> constant | (name, bases, dict) -> new; impure")
    assert form.for_call(1) is form
    three = form.for_call(3)
    assert three is not None and not three.pure_closure
    assert form.for_call(2) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Annotation(target="m.f", inputs=(Input(name="a"), Input(name="a"))), "two inputs are named 'a'"),
        (lambda: Annotation(target="m..f"), "not a dotted path"),
        (lambda: Annotation(target="m.f", output=Output(relation=Relation.SAME)), "needs an input"),
        (lambda: Annotation(target="m.f", output=Output(relation=Relation.SAME, of="b")), "'b' is no input"),
        (lambda: Annotation(target="m.f", output=Output(relation=Relation.CONSTANT, of="b")), "speaks of no input"),
        (lambda: Annotation(target="m.f", inputs=(Input(name="a", value_read=Read.KEY),)), "names none"),
        (
            lambda: Annotation(target="m.f", inputs=(Input(name="a"),), output=Output(relation=Relation.ITEM, of="a")),
            "key",
        ),
        (
            lambda: Annotation(
                target="m.f", inputs=(Input(name="a"),), output=Output(relation=Relation.SAME, of="a", in_place=True)
            ),
            "an input that is updated",
        ),
        (lambda: Annotation(target="m.f", output=Output(relation=Relation.DELEGATED)), "operators"),
        (lambda: Annotation(target="m.f", inputs=(Input(name="a", optional=True), Input(name="b"))), "without default"),
        (lambda: Annotation(target="m.f", overloads=(Annotation(target="m.g"),)), "another operation"),
    ],
)
def test_contradictions_are_refused(make: object, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        make()  # type: ignore[operator]


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(AnnotationError) as caught:
        Annotation(target="m..f", inputs=(Input(name="a"), Input(name="a")))
    assert len(str(caught.value).splitlines()) == 2


def test_who_does_not_follow_operators_takes_everything_as_read() -> None:
    assert Input(name="a", value_read=Read.TYPE, operators=("__bool__",)).alone is Read.DEEP
    assert Input(name="a", value_read=Read.TYPE).alone is Read.TYPE
