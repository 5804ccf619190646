"""Generated Python as real source: names, constants, lines, one door to `compile`, and `linecache`."""

from __future__ import annotations

import builtins
import itertools
import keyword
import linecache
import re
import types
from typing import Any

_numbers = itertools.count()
_RESERVED = frozenset(dir(builtins)) | {
    "args", "kwargs", "bound", "run", "guard", "mock", "held", "held_facts", "modes_match", "tensors_match"
}  # fmt: skip
_VARIABLE = re.compile(r"[vnosdem]\d+|x")


class Namespace:
    """The globals of generated code: constants by name, each object once."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def constant(self, value: Any, hint: str = "c") -> str:
        """A name for `value`, which the generated code will hold."""
        found = self._names.get(id(value))
        if found is not None:
            return found
        base = "".join(each if each.isascii() and each.isalnum() else "_" for each in hint).strip("_") or "c"
        if base[0].isdigit() or keyword.iskeyword(base) or base in _RESERVED or _VARIABLE.fullmatch(base):
            base = f"c_{base}"
        name = base
        while name in self.values:
            number = self._numbers[base] = self._numbers.get(base, 1) + 1
            name = f"{base}_{number}"
        self.values[name] = value
        self._names[id(value)] = name
        return name


class Source:
    """Lines of one generated function."""

    def __init__(self, header: str) -> None:
        self.lines = [header]

    def add(self, line: str, comment: str = "") -> None:
        """Append a line of the body."""
        self.lines.append(f"    {line}  # {one_line(comment)}" if comment else f"    {line}")

    def text(self) -> str:
        """The function's source."""
        return "\n".join(self.lines) + "\n"


def one_line(text: str) -> str:
    """Text for a comment; names of the program's can hold anything."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def literal(value: Any, limit: int = 80) -> str | None:
    """A number or string as Python source, None where that would be long."""
    if type(value) is int:
        return repr(value) if value.bit_length() < 3 * limit else None
    if type(value) in (str, bytes):
        return shown if len(value) < limit and len(shown := repr(value)) < limit else None
    return None


def make_function(text: str, name: str, namespace: dict[str, Any], title: str) -> types.FunctionType:
    """Compile generated source.

    Args:
        text: source of a module that defines function `name`.
        name: the function.
        namespace: its globals.
        title: what it is, shown in tracebacks.

    Returns:
        The function; its source can be seen by `inspect` and in tracebacks.
    """
    filename = f"<magpy {title} {next(_numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), namespace)
    # Out of its own globals, so that a function that nobody uses any more needs no garbage collection.
    function: types.FunctionType = namespace.pop(name)
    return function


def forget_source(function: types.FunctionType) -> None:
    """Drop the source of a generated function that is thrown away."""
    linecache.cache.pop(function.__code__.co_filename, None)
