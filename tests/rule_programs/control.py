"""Loops, comprehensions, exceptions, `with`, `match`."""

from ._programs import Box, program


class Manager:
    def __init__(self, quiet=False):
        self.quiet = quiet
        self.log = []

    def __enter__(self):
        self.log.append("enter")
        return self.log

    def __exit__(self, kind, error, traceback):
        self.log.append(kind)
        return self.quiet

    def __repr__(self):
        return f"Manager({self.log})"


class Countdown:
    def __init__(self, start):
        self.start = start

    def __iter__(self):
        return Steps(self.start)


class Steps:
    def __init__(self, left):
        self.left = left

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        return self.left


class Own(Exception):
    def __init__(self, *args):
        super().__init__(*args)


@program(lambda: ([1, 2, 3], {"a": 1, "b": 2}))
def loops(values, names):
    found = []
    for value in values:
        if value == 2:
            continue
        found.append(value)
    else:
        found.append("else")
    for name, number in names.items():
        found.append((name, number))
        if number:
            break
    for i, value in enumerate(values):
        found.append(i * value)
    while values:
        if len(found) > 5:
            break
        found.append(0)
    for i in range(3):
        for j in range(2):
            if i == j:
                break
    return found, i, j


@program(lambda: (Countdown(3),))
def loop_objects(countdown):
    return [value for value in countdown], list(countdown), (*countdown,), sum(countdown), 1 in countdown


@program(lambda: ([1, 2, 3], {"a": 1}))
def comprehensions(values, names):
    x = 10
    squares = [x * x for x in values]
    pairs = [(a, b) for a in values for b in values if a < b]
    inverse = {value: name for name, value in names.items()}
    members = {value % 2 for value in values}
    nested = [[y for y in range(x)] for x in values]
    lazy = sum(value for value in values if value > 1)
    return squares, pairs, inverse, members, nested, lazy, x, [x + (lambda: x)() for x in values]


@program(lambda: ([1],))
def comprehension_that_raises(values):
    x = "kept"
    try:
        [x / 0 for x in values]
    except ZeroDivisionError:
        return x


@program(lambda: ([1], {"a": 1}))
def exceptions(values, names):
    found = []
    try:
        values[5]
    except IndexError as error:
        found.append(type(error).__name__)
    try:
        names["b"]
    except (IndexError, KeyError):
        found.append("either")
    else:
        found.append("else")
    finally:
        found.append("finally")
    try:
        try:
            raise Own(1, 2)
        except ValueError:
            found.append("wrong")
        finally:
            found.append("inner")
    except Own as error:
        found.append(error.args)
    try:
        raise Own from ValueError("cause")
    except Own as error:
        found.append(repr(error.__cause__))
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise
    except KeyError:
        found.append("again")
    return found


@program(lambda: (5,))
def finally_returns(value):
    for i in range(value):
        try:
            if i == 2:
                continue
            if i == 3:
                return i
        finally:
            value += 1
    return value


@program(lambda: ([],))
def exception_groups(values):
    found = []
    try:
        raise ExceptionGroup("group", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        found.append(len(group.exceptions))
    except* (TypeError, KeyError):
        found.append("type")
    try:
        try:
            raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
        except* ValueError:
            raise Own("new")
    except ExceptionGroup as group:
        found.append(len(group.exceptions))
    return found


@program(lambda: ({"a": 1},))
def uncaught(names):
    try:
        return names["b"]
    finally:
        names["c"] = 1


@program(lambda: (ValueError("shared"),))
def raise_argument(error):
    try:
        raise error
    except ValueError:
        return 1


@program(lambda: (Manager(), Manager(quiet=True)))
def contexts(manager, quiet):
    with manager as log:
        log.append("in")
    with manager, quiet as other:
        other.append("both")
        raise ValueError
    return log


@program(lambda: (Manager(), [1]))
def context_left(manager, values):
    for value in values:
        with manager:
            return value


@program(lambda: (Manager(),))
def context_that_raises(manager):
    with manager:
        raise Own


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __repr__(self):
        return f"Point({self.x}, {self.y})"


def describe(subject):
    match subject:
        case 0 | 1:
            return "small"
        case "text":
            return "text"
        case None:
            return "none"
        case []:
            return "empty"
        case [1, x, *rest]:
            return ("list", x, rest)
        case (a, b):
            return ("pair", a, b)
        case {"kind": kind, **rest}:
            return ("kind", kind, rest)
        case {}:
            return "mapping"
        case Point(0, y=y):
            return ("axis", y)
        case Point(x, y) if x == y:
            return ("diagonal", x)
        case Point(x=x):
            return ("point", x)
        case str() as text:
            return ("str", text)
        case int(number) | float(number):
            return ("number", number)
        case _:
            return "other"


@program(
    lambda: (
        0, "text", None, [], [1, 2, 3], (4, 5), {"kind": 1, "b": 2}, {"b": 2}, Point(0, 1), Point(2, 2), Point(3, 4),
        "other", 5, 2.5, Box(a=1),
    )
)  # fmt: skip
def patterns(*subjects):
    return [describe(subject) for subject in subjects]


@program(lambda: (Point(1, [2]),))
def pattern_of_object(point):
    match point:
        case Point(1, [y]):
            return y


@program(lambda: (3,))
def recursion(depth):
    return [] if depth == 0 else [depth, *recursion(depth - 1)]


@program(lambda: (1,))
def many_names(value):
    """Jumps and names that need an EXTENDED_ARG."""
    for _ in range(2):
        if value:
            value = [
                value, value, value, value, value, value, value, value, value, value, value, value, value, value,
                value == 1, value == 2, value == 3, value == 4, value == 5, value == 6, value == 7, value == 8,
                value == 1, value == 2, value == 3, value == 4, value == 5, value == 6, value == 7, value == 8,
                value == 1, value == 2, value == 3, value == 4, value == 5, value == 6, value == 7, value == 8,
                value == 1, value == 2, value == 3, value == 4, value == 5, value == 6, value == 7, value == 8,
                value == 1, value == 2, value == 3, value == 4, value == 5, value == 6, value == 7, value == 8,
                value == 1, value == 2, value == 3, value == 4, value == 5, value == 6, value == 7, value == 8,
            ].count(value)  # fmt: skip
    return value


@program(lambda: ([1, 2, None, 3],))
def loops_until_none(values):
    """Jumps back that look at None."""
    found = []
    value = values[0]
    while value is not None:
        found.append(value)
        value = values[len(found)]
    while value is None:
        value = values[-1]
    return found, value
