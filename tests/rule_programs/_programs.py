"""The registry of programs, and the classes that they share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROGRAMS: dict[str, "Program"] = {}


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        name: that of its golden file.
        function: what is called.
        make: gives the arguments of one call.
        reset: puts back what a call changes in the module, None when it changes nothing.
        facts: whether what is recorded is compared, too: not where the standard library's own Python code runs.
    """

    name: str
    function: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]
    reset: Callable[[], None] | None
    facts: bool


def program(
    make: Callable[[], tuple[Any, ...]] = tuple, reset: Callable[[], None] | None = None, facts: bool = True
) -> Any:
    """Register a function as a program."""

    def register(function: Any) -> Any:
        name = function.__name__
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, function, make, reset, facts)
        return function

    return register


class Box:
    """An object with attributes, shown by them."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        return f"Box({self.__dict__})"
