"""Draws random programs: see `generator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from random_words import CHANGES, DICTS, KEYS, LISTS, MORE, NUMBERS, OBJECTS, TENSORS


class Writer:
    """Draws the statements of one program."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.loops = 0

    def upto(self, least: int, most: int) -> int:
        """A number from `least` to `most`, made of bits: what hypothesis draws as a number depends on loaded modules."""
        bits = (most - least).bit_length()
        value = sum(self.draw(st.booleans()) << position for position in range(bits + 2))
        return least + value % (most - least + 1)

    def pick(self, *choices: Any) -> Any:
        return choices[self.upto(0, len(choices) - 1)]

    # -- expressions --------------------------------------------------------------------------------------------------

    def tensor(self, depth: int = 2) -> str:
        kind = self.upto(0, 20) if depth else 0
        t = lambda: self.tensor(depth - 1)  # noqa: E731
        if kind <= 4:
            return self.pick(*TENSORS)
        if kind <= 7:
            return f"({t()} {self.pick('+', '*', '-')} {self.pick(t, self.number)()})"
        if kind == 8:
            return f"{t()}.{self.pick('relu()', 'sum()', 'sum(0)', 'clone()', 'mean()', 'contiguous()', 'float()', 'abs()', 'detach()')}"
        if kind == 9:
            return f"{self.pick('G_f', 'helper')}({t()})"
        if kind == 10:
            return f"{self.obj()}.scaled({t()})"
        if kind == 11:
            return f"net({self.pick('x', 'y', t())})"
        if kind == 12:
            return f"net.remember({t()})"
        if kind == 13:
            return f"torch.stack([{t()}, {t()}]).sum(0)"
        if kind == 14:
            return f"torch.where({t()} > 0, {t()}, 0.0)"
        if kind == 15:
            return f"torch.max({t()}, 0)[0]"
        if kind == 16:
            return f"sum([v for v in {self.list()} if isinstance(v, int)], {t()})"
        if kind == 17:
            return f"torch.rand_like({self.pick('x', 'y')})"
        if kind == 18:
            return f"({t()} if {self.test()} else {t()})"
        if kind == 19:
            return f"(lambda v: v + {self.number()})({t()})"
        return f"{t()}.{self.pick('view(-1)[:3]', 't()', 'unsqueeze(0)', 'flatten()[:3]', 'expand(3, 3)', 'chunk(3, -1)[0]')}"

    def number(self, depth: int = 1) -> str:
        kind = self.upto(0, 11) if depth else 0
        if kind <= 3:
            return self.pick(*NUMBERS)
        if kind == 11:
            t = self.tensor(0)
            return self.pick(
                f"int({t}.sum())",
                f"{t}.sum().item()",
                f"opaque({t}, {self.list()})",
                f"{t}.tolist().count(1.0)",
                f"int({t}.argmax())",
                "dice.randint(0, 3)",
            )
        if kind == 4:
            return f"({self.number(0)} {self.pick('+', '-', '%')} {self.pick('2', '3', self.number(0))})"
        if kind == 5:
            return f"len({self.pick(self.list, self.dict)()})"
        if kind == 6:
            return f"{self.dict()}.get({self.key()}, {self.number(0)})"
        if kind == 7:
            return f"{self.list()}[{self.pick('0', '-1', self.number(0))}]"
        if kind == 8:
            return f"{self.obj()}.bump({self.number(0)})"
        if kind == 9:
            return f"sum(v for v in {self.list()} if isinstance(v, int))"
        return self.pick(
            "Box.grow(1)", "len(G_s)", "max(G_s, default=0)", f"{self.list()}.count(1)", f"{self.list()}.index(1)"
        )

    def list(self) -> str:
        return self.pick(*LISTS)

    def dict(self) -> str:
        return self.pick(*DICTS)

    def obj(self) -> str:
        return self.pick(*OBJECTS)

    def key(self) -> str:
        return self.pick(*KEYS)

    def any(self, depth: int = 1) -> str:
        kind = self.upto(0, 11) if depth else self.upto(0, 5)
        if kind <= 1:
            return self.tensor()
        if kind <= 3:
            return self.number()
        if kind == 4:
            return self.list()
        if kind == 5:
            return self.pick(self.dict, self.obj)()
        if kind == 6:
            return f"({self.any(0)}, {self.any(0)})"
        if kind == 7:
            return f"[{self.any(0)}, {self.any(0)}]"
        if kind == 8:
            return f"{{{self.key()}: {self.any(0)}}}"
        if kind == 9:
            return f"[(v, {self.any(0)}) for v in {self.list()}[:2]]"
        if kind == 10:
            return self.pick(f"Box({self.tensor()})", f"Sub({self.tensor()})", f"Slotted({self.tensor()})")
        return self.pick(
            f"list({self.list()})",
            f"tuple({self.list()})",
            f"dict({self.dict()})",
            f"list({self.dict()}.items())",
            f"{self.list()}[1:]",
            f"{self.list()}[::-1]",
            f"[*{self.list()}]",
            f"{{**{self.dict()}}}",
            "sorted(G_s)",
            f"{self.list()} + [1]",
        )

    def test(self) -> str:
        kind = self.upto(0, 10)
        if kind == 10:
            return (
                f"{self.tensor(1)}.{self.pick('sum() > 3', 'any()', 'sum().item() < 8', 'mean() == 1', 'max().item()')}"
            )
        if kind <= 1:
            return f"{self.number()} {self.pick('>', '<', '==')} {self.number()}"
        if kind == 2:
            return f"{self.pick(self.list, self.dict)()}"
        if kind == 3:
            return f"{self.tensor(1)} is {self.tensor(0)}"
        if kind == 4:
            return f"{self.list()} is {self.list()}"
        if kind == 5:
            return f"{self.key()} in {self.dict()}"
        if kind == 6:
            return f"{self.pick('1', '2')} in {self.pick(self.list(), 'G_s')}"
        if kind == 7:
            return f"{self.tensor()}.shape == {self.pick('x', 'y')}.shape"
        if kind == 8:
            return f"{self.obj()} is {self.obj()}"
        return f"hasattr({self.obj()}, {self.pick('extra', 'n', 'items')!r})"

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, depth: int, most: int = 3) -> list[str]:
        lines: list[str] = []
        for _ in range(self.upto(1, most)):
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        kind = self.upto(0, 19 if depth else 11)
        if kind > 15:
            return self.more()
        if kind <= 1:
            return [f"{self.pick('t0', 't1')} = {self.tensor()}"]
        if kind == 2:
            return [f"{self.pick('i0', 'i1')} = {self.number()}"]
        if kind == 3:
            return [
                self.pick(
                    f"l0 = {self.list()}",
                    f"l1 = {self.list()}",
                    f"d0 = {self.dict()}",
                    f"o0 = {self.obj()}",
                    f"l0 = [{self.any()}]",
                )
            ]
        if kind <= 5:
            return [self.list_effect()]
        if kind == 6:
            return [self.dict_effect()]
        if kind == 7:
            return [self.tensor_effect()]
        if kind == 8:
            return [self.object_effect()]
        if kind == 9:
            name, value = self.pick(
                ("G_n", self.number),
                ("G_t", self.tensor),
                ("G_l", self.list),
                ("c_n", self.number),
                ("c_t", self.tensor),
                ("c_l", self.list),
                ("G_d", self.dict),
            )
            return [f"{name} = {value()}"]
        if kind == 10:
            return [
                self.pick(
                    f"G_s.add({self.number()})",
                    f"G_s.discard({self.number()})",
                    f"G_s.update({self.pick('[5, 6]', 'G_s', '{2, 9}')})",
                    "G_s.clear()",
                    "G_s and G_s.pop()",
                )
            ]
        if kind == 11:
            return [f"return {self.any()}"] if self.upto(0, 3) == 3 else [f"{self.pick('t0', 't1')} = {self.tensor()}"]
        if kind == 12:
            lines = [f"if {self.test()}:", *indent(self.block(depth - 1))]
            if self.upto(0, 1):
                lines += ["else:", *indent(self.block(depth - 1))]
            return lines
        if kind == 13:
            self.loops += 1
            v = f"v{self.loops}"
            head = self.pick(
                f"for {v} in range({self.number()} % 3):",
                f"for {v} in {self.list()}[:2]:",
                f"for {v} in list({self.dict()}.values())[:2]:",
                f"for {v}, w in zip({self.list()}, [1, 2]):",
                f"for {v} in {self.dict()}:",
            )
            tail = self.pick(
                [f"i1 = {v}"], [f"l0.append({v})"], [f"if {v} == 2:", "    break"], [f"if {v} == 1:", "    continue"]
            )
            return [head, *indent(tail + self.block(depth - 1, 2))]
        if kind == 14:
            lines = ["try:", *indent(self.block(depth - 1))]
            if self.upto(0, 1):
                lines += [f"    if {self.test()}:", f"        raise KeyError({self.number()})"]
            lines += [
                "except Exception as e:",
                *indent(
                    self.pick(["l0.append(str(e))"], ["l0.append(e.args)"], ["pass"], ["l0.append(type(e))"])
                    + self.block(depth - 1, 1)
                ),
            ]
            if self.upto(0, 1):
                lines += ["finally:", *indent(self.block(0, 1))]
            return lines
        return [self.pick("with torch.no_grad():", "with torch.enable_grad():"), *indent(self.block(depth - 1))]

    def more(self) -> list[str]:
        """A statement of the table, its holes filled."""
        text = self.pick(*MORE)
        makers = {"T": lambda: self.tensor(1), "I": self.number, "L": self.list, "D": self.dict, "O": self.obj}
        makers |= {"K": self.key, "B": self.test, "A0": lambda: self.any(0), "A": self.any}
        makers |= {"F": lambda: self.pick("helper", "other", "G_f")}
        text = text.replace("{{", "\0").replace("}}", "\1")
        for name, make in makers.items():
            hole = f"{{{name}}}"
            while hole in text:
                text = text.replace(hole, make(), 1)
        return text.replace("\0", "{").replace("\1", "}").replace("\\n", "\n").splitlines()

    def list_effect(self) -> str:
        name = self.list()
        kind = self.upto(0, 11)
        if kind <= 3:
            return f"{name}.append({self.any()})"
        return (
            f"{name}.extend({self.pick(f'({self.any(0)}, {self.any(0)})', f'{self.list()}[:2]', f'(v for v in {self.list()}[:2])', f'[{self.any(0)}]')})",
            f"{name}.insert(0, {self.any()})",
            f"{name} and {name}.pop({self.pick('', '0')})",
            f"{name}[{self.pick('0', '-1')}] = {self.any()}",
            self.pick(f"{name}.clear()", f"{name}.reverse()", f"del {name}[:1]", f"1 in {name} and {name}.remove(1)"),
            f"{name}[{self.pick('0:1', '1:', ':', '::2')}] = {self.pick('[7]', f'{self.list()}[:2]')}",
            f"{self.pick('xs', 'box.items', 'l0', 'G_l', 'c_l')} += [{self.any(0)}]",
            f"l0.append({name}.pop() if {name} else 0)",
        )[kind - 4]

    def dict_effect(self) -> str:
        name = self.dict()
        kind = self.upto(0, 7)
        if kind <= 1:
            return f"{name}[{self.key()}] = {self.any()}"
        return (
            f"l0.append({name}.pop({self.key()}, None))",
            f"{name}.setdefault({self.key()}, [])",
            f"{name}.setdefault({self.key()}, {self.any()})",
            f"{name}.update({self.pick(self.dict(), f'{{{self.key()}: {self.any(0)}}}', f'b={self.any(0)}')})",
            self.pick(f"del {name}[{self.key()}]", f"{name}.clear()", f"{name} and {name}.popitem()"),
            f"{name}[{self.key()}] += {self.number()}",
        )[kind - 2]

    def tensor_effect(self) -> str:
        name = self.pick(*TENSORS)
        kind = self.upto(0, 7)
        if kind <= 2:
            return f"{name}.{self.pick('add_', 'mul_', 'copy_', 'sub_')}({self.pick(self.tensor, self.number)()})"
        return (
            f"{name}.{self.pick('zero_()', 'relu_()', 'fill_(2)', 'neg_()', 'add_(1).mul_(2)')}",
            f"{name}[{self.pick('0', '...', ':1')}] = {self.tensor(1)}",
            f"{self.pick('x', 'y', 'G_t', 't0', 'box.t', 'c_t')} {self.pick('+=', '*=', '-=')} {self.pick(self.tensor, self.number)()}",
            f"t0 = {name}.{self.pick('add_', 'mul_')}({self.number()})",
            f"t1 = {name}.{self.pick('view(-1)', 'detach()', 'unsqueeze(0)', 't()')}",
        )[kind - 3]

    def object_effect(self) -> str:
        name = self.obj()
        kind = self.upto(0, 10)
        return (
            f"{name}.n = {self.number()}",
            f"{name}.t = {self.tensor()}",
            f"{name}.items = {self.pick(self.list(), f'[{self.any(0)}]')}",
            f"{name}.bump({self.number()})",
            f"{name}.put({self.any()})",
            f"{name}.n += {self.number()}",
            self.pick(f"{name}.{self.pick('new', 'extra')} = {self.any()}", f"del {name}.extra", f"del {name}.new"),
            f"setattr({name}, 'd', {self.dict()})",
            self.pick(
                f"Box.scale = {self.number()}",
                f"type({name}).scale += 1",
                f"{name}.scale = {self.number()}",
                "Box.grow(1)",
                f"Box.shared = {self.list()}",
            ),
            self.pick(
                f"net.n = {self.number()}",
                f"net.t = {self.tensor()}",
                f"net.hist = {self.list()}",
                f"net.buf = {self.tensor()}",
                f"net.cache = {self.dict()}",
            ),
            f"{name}.__dict__[{self.pick('n', 'new')!r}] = {self.number()}",
        )[kind]

    # -- what happens between the calls --------------------------------------------------------------------------------

    def change(self) -> str:
        return self.pick(*CHANGES[max(self.upto(0, len(CHANGES)) - 1, 0)])  # numbers come twice as often


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def programs(draw: Callable[..., Any]) -> str:
    """The text of a program, aside from its head."""
    writer = Writer(draw)
    body = [line for _ in range(writer.upto(1, 5)) for line in writer.block(2, 3)]
    result = writer.pick("t0", "(t0, t1)", "[t0, l0]", "t1, o0, i0", "{'t': t0, 'l': l1, 'd': d0}", "i0", "t0.sum()")
    calls = []
    for _ in range(writer.upto(3, 5)):
        calls.append("call")
        for _ in range(writer.pick(0, 0, 1, 1, 2)):
            calls.append(writer.change())
    calls.append("call")
    lines = [
        "def make():",
        "    c_n, c_l, c_t = 1, [1], torch.ones(3)",
        "    def f(x, y, n, xs, d, box, bag):",
        "        global G_n, G_t, G_l, G_d",
        "        nonlocal c_n, c_l, c_t",
        "        t0, t1, i0, i1, l0, l1, d0, o0 = x, y, n, 0, [], xs, d, box",
        *indent(indent(body)),
        f"        return {result}",
        "    def set_n(v):",
        "        nonlocal c_n",
        "        c_n = v",
        "    def set_l(v):",
        "        nonlocal c_l",
        "        c_l = v",
        "    def set_t(v):",
        "        nonlocal c_t",
        "        c_t = v",
        "    return f, set_n, set_l, set_t, lambda: (c_n, c_l, c_t)",
        "",
        "",
        "f, set_n, set_l, set_t, cell = make()",
        "",
        "",
        "def program(c):",
        "    global r",
        "    g = c(f)",
    ]
    for step in calls:
        if step == "call":
            lines.append("    r = attempt(g, x, y, n, xs, d, box, bag)")
            lines.append("    yield list(seen())")
        else:
            lines.append(f"    change({step!r})")
    return "\n".join(lines) + "\n"
