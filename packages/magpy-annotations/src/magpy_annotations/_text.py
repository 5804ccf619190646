"""The text form of an annotation: one line, stable, and what :mod:`magpy_annotations._parse` reads back."""

from __future__ import annotations

from magpy_annotations._model import Annotation, Input, OpNode, Output, Read, Relation


def render(annotation: Annotation) -> str:
    """The annotation as one line; its forms are separated by ``|``. The owner is not part of it."""
    forms = [_render_form(form, node=form.as_op_node) for form in (annotation, *annotation.overloads)]
    tail = "; optional" if annotation.optional else ""
    return annotation.target + " | ".join(forms) + tail


def _render_form(form: Annotation, *, node: OpNode | None) -> str:
    parts = [f"({', '.join(_parameters(form))}) -> {_render_output(form)}"]
    if node is not None:
        words = [f"node {node.kind.value}"]
        words += ["random"] if node.random else []
        words += [f"mutates({', '.join(node.mutates)})"] if node.mutates else []
        words += [f"why {quote(node.why)}"] if node.why else []
        parts.append(" ".join(words))
    if not form.pure_closure:
        parts.append("impure")
    if form.effect:
        parts.append("effect")
    if form.note:
        parts.append(f"note {quote(form.note)}")
    return "; ".join(parts)


def _parameters(form: Annotation) -> list[str]:
    shown = [_render_input(each) for each in form.inputs if not each.keyword_only]
    by_name = [_render_input(each) for each in form.inputs if each.keyword_only]
    if form.rest is not None:
        shown.append("*" + _render_input(form.rest))
    elif by_name:
        shown.append("*")
    shown += by_name
    if form.keywords is not None:
        shown.append("**" + _render_input(form.keywords))
    return shown


def _render_input(each: Input) -> str:
    words = [] if each.value_read is Read.DEEP else [each.value_read.value]
    words += ["inplace"] if each.in_place else []
    words += ["called"] if each.called else []
    words += ["iterated"] if each.iterated else []
    words += ["hashed"] if each.hashed else []
    words += ["alike"] if each.alike else []
    words += [f"on({', '.join(each.operators)})"] if each.operators else []
    words += [f"each({', '.join(each.element_operators)})"] if each.element_operators else []
    name = each.name + ("?" if each.optional else "")
    return f"{name}: {' '.join(words)}" if words else name


def _render_output(form: Annotation) -> str:
    output: Output = form.output
    names = {each.name for each in form.all_inputs()}
    key = _render_key(output.key, names)
    match output.relation:
        case Relation.NEW:
            text = "new" if output.of is None else f"new or {output.of}"
        case Relation.ITEM:
            text = f"item {output.of}[{key}]"
        case Relation.ATTRIBUTE:
            text = f"attribute {output.of}[{key}]"
        case _:
            text = output.relation.value if output.of is None else f"{output.relation.value} {output.of}"
    if output.key is not None and output.relation not in {Relation.ITEM, Relation.ATTRIBUTE}:
        text += f" at [{key}]"
    if output.default is not None:
        text += f" else {output.default}"
    return text + (" inplace" if output.in_place else "")


def _render_key(key: str | int | None, names: set[str]) -> str:
    return key if isinstance(key, str) and key in names else quote(key) if isinstance(key, str) else str(key)


def quote(text: str) -> str:
    """A string literal of the text form."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
