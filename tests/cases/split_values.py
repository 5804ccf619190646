"""What boundary operations give, and what becomes of it: texts, numbers, exceptions, objects that die."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from soundness import attempt, keep
from torch import nn

import magpy
from cases.world import X, add


class _Failed(Exception):
    pass


@magpy.disable
def _fails(x):
    raise _Failed(f"at {x.sum().item():.1f}")


def _split(name: str, op: Callable[..., Any]) -> None:
    """`op(x)`, which reads a tensor's value."""

    def prog(c: Any) -> Iterator[Any]:
        f = c(op)
        for factor in (1.0, 1.0, 2.0, 0.3, 1.0, 20.0, -3.0, 2.0):
            yield attempt(f, X() * factor + 1)

    add(f"split_{name}", prog, None)


def _text(x):
    return f"{x.sum().item():.1f} {x.shape}"


def _first(*parts):
    return parts[0]


def _caught(x, text):
    try:
        _fails(x)
    except _Failed as error:
        return text(error)


_split("text_length", lambda x: len(_text(x)))
_split("text_listed", lambda x: list(_text(x)))
_split("text_looped", lambda x: [each for each in _text(x)])  # noqa: C416 - the loop is what is looked at
_split("text_unpacked", lambda x: (lambda a, *b: [b, a])(*_text(x)))
_split("text_spread", lambda x: _first(*_text(x)))
_split("text_in_list", lambda x: [*_text(x)])
_split("text_as_name", lambda x: getattr(torch, "abs" if x.sum().item() > 9 else _text(x), None) is None)
_split("text_named", lambda x: getattr(torch, ["abs", "neg"][x.sum().item() > 11] + _text(x)[:0]) is torch.abs)
_split("absolute_size", lambda x: torch.zeros(abs(int(x.tolist()[1])) % 5 + 1))
_split("absolute_number", lambda x: (abs(int(x.sum().item())) + 1, int(x.sum().item()) % 2**40 + 1))
_split("error_str", lambda x: _caught(x, str))
_split("error_repr", lambda x: _caught(x, repr))
_split("error_formatted", lambda x: _caught(x, lambda error: ("%s" % error, f"{error}", f"{error!r}")))  # noqa: UP031
_split("filtered", lambda x: list(filter(None, [x.sum() > 9])))


@keep
def split_error_argument(c):
    f = c(lambda error: (str(error), repr(error), [str(error)]))
    for number in (1, 1, 2, 3):
        yield f(_Failed(number))
        yield attempt(f, KeyError(number))


@keep
def split_dead_object(c):
    """Nobody holds what a local variable held before a boundary."""

    class C:
        pass

    def f(x):
        one = C()
        reference = weakref.ref(one)
        one = None
        size = float(x[1])
        again = float(x[2])
        return reference() is None, size, again

    f = c(f)
    for factor in (1, 1, 2, 3):
        yield f(X() * factor)


@keep
def split_lengths(c):
    """A guard looks at no element behind the end of a list."""
    f = c(lambda x, xs: (x * len(xs), [v + 1 for v in xs] if len(xs) > 2 else xs[-1], float(x[0])))
    for xs in ([1, 2], [1, 2], [1, 2, 3], [1, 2, 3], [1, 2], [1], [1, 2, 3, 4], [4, 5]):
        yield f(X(), xs)
    yield attempt(f, X(), [])


@keep
def split_autocast(c):
    """The casts of parameters that autocast keeps do not outlive it."""
    linear = nn.Linear(4, 4)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = linear(x)
            number = x.sum().item()
            return y, linear(x) * number

    f = c(f)
    for factor in (1, 1, 2, 3, 1):
        yield f(X() * factor)
        linear.bias.data.add_(1)
        yield torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()


@keep
def split_object_dies(c):
    """What only a local variable held dies when it is deleted, not when the watched run ends."""

    class C:
        pass

    def f(x):
        one = C()
        reference = weakref.ref(one)
        size = float(x[1])
        there = reference() is one
        del one
        return there, reference() is None, size

    f = c(f)
    for factor in (1, 1, 2, 3):
        yield f(X() * factor)


_split("text_to_number", lambda x: int(f"{x.sum().item():.0f}") * 2)
_split("text_to_float", lambda x: float(f"{x.sum().item():.1f}") * x)


@keep
def functions_of_other_code(c: Any) -> Iterator[Any]:
    """A function that is made from another one's code is as new at each call as one that a `def` makes."""

    def f(x, name):
        return type(_first)(_first.__code__, {"a": name}, name), x + 1

    f = c(f)
    seen = []
    for name in ("p", "q", "q", "q"):
        made, x = f(X(), name)
        yield made.__name__, made.__globals__["a"], all(made is not each for each in seen), x
        seen.append(made)
