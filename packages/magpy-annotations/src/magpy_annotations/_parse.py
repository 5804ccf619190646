"""Reads annotations from text; the grammar stands in the package's README.

A catalogue file is a sequence of entries below ``owner`` lines, which give the path that the entries' names continue.
An entry goes on over indented lines. Braces stand for several names: ``{lower, upper}(self) -> constant``.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator

from magpy_annotations._model import Annotation, AnnotationError, Input, OpKind, OpNode, Output, Read, Relation

_TOKEN = re.compile(
    r'\s*(?:(?P<word>[A-Za-z_]\w*|-?\d+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<mark>->|\*\*|[()\[\]{},:;|*?.]))'
)
_READS = {each.value: each for each in Read}
_KINDS = {each.value: each for each in OpKind}
_NAMES_AN_INPUT = {Relation.SAME, Relation.ELEMENT, Relation.ITEM, Relation.ATTRIBUTE}
_ESCAPES = {"n": "\n"}


class ParseError(AnnotationError):
    """Text that is no annotation, with the place where reading stopped."""


def parse(text: str, *, owner: str = "") -> Annotation:
    """Reads one annotation.

    Args:
        text: One entry with its full target.
        owner: Who registers it.

    Raises:
        ParseError: When the text is no entry, or one for several targets.
        AnnotationError: When the entry contradicts itself.
    """
    targets, annotation = _Reader(text).entry(owner)
    if len(targets) != 1:
        raise ParseError(f"one target expected: {text!r}")
    return annotation


def parse_catalogue(text: str, *, owner: str = "", source: str = "<catalogue>") -> list[Annotation]:
    """Reads a catalogue file.

    Args:
        text: Its text.
        owner: Who registers the entries.
        source: The file's name, for messages.

    Raises:
        AnnotationError: With file and line.
    """
    found: list[Annotation] = []
    prefix = ""
    for line, entry in _logical_lines(text):
        if entry.startswith("owner "):
            prefix = entry.removeprefix("owner ").strip() + "."
            continue
        try:
            targets, annotation = _Reader(entry).entry(owner)
            found += [_retarget(annotation, prefix + target) for target in targets]
        except AnnotationError as error:
            raise type(error)(f"{source}:{line}: {error}") from None
    return found


def _retarget(annotation: Annotation, target: str) -> Annotation:
    forms = tuple(dataclasses.replace(form, target=target) for form in annotation.overloads)
    return dataclasses.replace(annotation, target=target, overloads=forms)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    start, parts = 0, list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        if not raw.strip() or raw.lstrip().startswith("#"):
            continue
        if raw[0].isspace() and parts:
            parts.append(raw.strip())
            continue
        if parts:
            yield start, " ".join(parts)
        start, parts = number, [raw.strip()]
    if parts:
        yield start, " ".join(parts)


class _Reader:
    """One entry, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[str] = []
        end = len(text.rstrip())
        while self._at < end:
            match = _TOKEN.match(text, self._at)
            if match is None:
                raise ParseError(f"cannot read {text[self._at : self._at + 20]!r}")
            self._tokens.append(match.group().strip())
            self._at = match.end()
        self._at = 0

    def entry(self, owner: str) -> tuple[list[str], Annotation]:
        """The entry's targets and its annotation, made out to the first of them."""
        targets = self._targets()
        forms = [self._form(targets[0], owner)]
        while self._take("|"):
            forms.append(self._form(targets[0], owner))
        if self._peek() is not None:
            raise ParseError(f"unexpected {self._peek()!r} in {self._text!r}")
        first, *others = forms
        if any(form.optional for form in forms):
            first = dataclasses.replace(first, optional=True)
        others = [dataclasses.replace(form, optional=False) for form in others]
        return targets, dataclasses.replace(first, overloads=tuple(others))

    def _targets(self) -> list[str]:
        parts = [self._names()]
        while self._take("."):
            parts.append(self._names())
        return [".".join(path) for path in itertools.product(*parts)]

    def _names(self) -> list[str]:
        if not self._take("{"):
            return [self._word()]
        names = [self._word()]
        while self._take(","):
            names.append(self._word())
        self._need("}")
        return names

    def _form(self, target: str, owner: str) -> Annotation:
        self._need("(")
        inputs: list[Input] = []
        rest = keywords = None
        by_name = False
        while not self._take(")"):
            if self._take("**"):
                keywords = self._input(keyword_only=False)
            elif self._take("*"):
                by_name = True
                if self._peek() not in {",", ")"}:
                    rest = self._input(keyword_only=False)
            else:
                inputs.append(self._input(keyword_only=by_name))
            if self._peek() != ")":
                self._need(",")
        self._need("->")
        output = self._output({each.name for each in (*inputs, *filter(None, (rest, keywords)))})
        node: OpNode | None = None
        pure, effect, optional, note = True, False, False, ""
        while self._take(";"):
            match self._word():
                case "impure":
                    pure = False
                case "effect":
                    effect = True
                case "optional":
                    optional = True
                case "note":
                    note = self._string()
                case "node":
                    node = self._node()
                case word:
                    raise ParseError(f"unknown property {word!r} in {self._text!r}")
        return Annotation(
            target=target,
            inputs=tuple(inputs),
            rest=rest,
            keywords=keywords,
            output=output,
            as_op_node=node,
            pure_closure=pure,
            effect=effect,
            optional=optional,
            note=note,
            owner=owner,
        )

    def _input(self, *, keyword_only: bool) -> Input:
        name = self._word()
        optional = self._take("?")
        read, flags = Read.DEEP, set[str]()
        operators: tuple[str, ...] = ()
        element_operators: tuple[str, ...] = ()
        if self._take(":"):
            while (token := self._peek()) not in {",", ")"}:
                word = self._word()
                if word in _READS:
                    read = _READS[word]
                elif word in {"inplace", "called", "iterated", "hashed", "alike"}:
                    flags.add(word)
                elif word == "on":
                    operators = self._list()
                elif word == "each":
                    element_operators = self._list()
                else:
                    raise ParseError(f"unknown read or flag {token!r} in {self._text!r}")
        return Input(
            name=name,
            value_read=read,
            in_place="inplace" in flags,
            called="called" in flags,
            iterated="iterated" in flags,
            hashed="hashed" in flags,
            alike="alike" in flags,
            operators=operators,
            element_operators=element_operators,
            optional=optional,
            keyword_only=keyword_only,
        )

    def _output(self, names: set[str]) -> Output:
        word = self._word()
        try:
            relation = Relation(word)
        except ValueError:
            raise ParseError(f"unknown relation {word!r} in {self._text!r}") from None
        of: str | None = None
        key: str | int | None = None
        default: str | None = None
        if relation in _NAMES_AN_INPUT or (relation is Relation.NEW and self._take("or")):
            of = self._word()
        if relation in {Relation.ITEM, Relation.ATTRIBUTE} or self._take("at"):
            key = self._key(names)
        if self._take("else"):
            default = self._word()
        return Output(relation=relation, of=of, key=key, default=default, in_place=self._take("inplace"))

    def _key(self, names: set[str]) -> str | int:
        self._need("[")
        token = self._peek() or ""
        key: str | int
        if token.startswith('"'):
            key = self._string()
        else:
            word = self._word()
            key = int(word) if word.lstrip("-").isdigit() else word
            if isinstance(key, str) and key not in names:
                raise ParseError(f"the key {key!r} is no input in {self._text!r}")
        self._need("]")
        return key

    def _node(self) -> OpNode:
        word = self._word()
        if word not in _KINDS:
            raise ParseError(f"unknown kind of node {word!r} in {self._text!r}")
        random = self._take("random")
        mutates = self._list() if self._take("mutates") else ()
        why = self._string() if self._take("why") else ""
        return OpNode(kind=_KINDS[word], random=random, mutates=mutates, why=why)

    def _list(self) -> tuple[str, ...]:
        self._need("(")
        words = [self._word()]
        while self._take(","):
            words.append(self._word())
        self._need(")")
        return tuple(words)

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, token: str) -> bool:
        taken = self._peek() == token
        self._at += taken
        return taken

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise ParseError(f"{token!r} expected before {self._peek()!r} in {self._text!r}")

    def _word(self) -> str:
        token = self._peek()
        if token is None or not re.fullmatch(r"[A-Za-z_]\w*|-?\d+", token):
            raise ParseError(f"a name expected before {token!r} in {self._text!r}")
        self._at += 1
        return token

    def _string(self) -> str:
        token = self._peek()
        if token is None or not token.startswith('"'):
            raise ParseError(f"a quoted text expected before {token!r} in {self._text!r}")
        self._at += 1
        return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), token[1:-1])
