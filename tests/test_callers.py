"""Operations that look at their callers see the program's frames, although a record serves the call."""

import inspect
import io
import logging
import sys
import traceback
import warnings
from typing import Any

import pytest
import torch
from callers_helpers import LOGGER, caller, caution, note, through

import magpy

X = torch.arange(6.0)
SEEN: list[Any] = []


class Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        SEEN.append((record.pathname, record.lineno, record.funcName, record.getMessage()))


@pytest.fixture(autouse=True)
def logger():
    handler = Lines()
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    yield
    LOGGER.removeHandler(handler)
    SEEN.clear()


def logs(x):
    y = x * 2
    LOGGER.info("directly")
    return y + 1


def logs_in_a_helper(x):
    y = x * 2
    note("in the helper")
    note("in the caller", 2)
    note("in its caller", 3)
    return y + 1


def three_deep(x):
    def inner(z):
        note("deep", 2)
        note("deeper", 3)
        LOGGER.info("here")
        return z.sin()

    def middle(y):
        return inner(y + 1) * 2

    return middle(x) - 1


def warns_1(x):
    warnings.warn("one", UserWarning)
    return x + 1


def warns_2(x):
    caution("two", 2)
    return x + 1


def warns_3(x):
    return through(warns_2, x) * 2


def warns_out(x):
    warnings.warn("in the caller", UserWarning, stacklevel=2)
    return x + 1


def names(x):
    SEEN.append(caller())
    y = x + 1
    SEEN.append(sys._getframe(0).f_code.co_name)
    SEEN.append(sys._getframe(1).f_code.co_name)
    SEEN.append(sys._getframe(0).f_back.f_code.co_filename)
    return y * 2


def stack(x):
    y = x + 1
    SEEN.append([(each.function, each.lineno) for each in inspect.stack()[:3]])
    return y * 2


def printed(x):
    y = x + 1
    file = io.StringIO()
    traceback.print_stack(file=file, limit=-3)
    SEEN.append(file.getvalue())
    return y * 2


def summaries(x):
    y = x + 1
    SEEN.append([each.name for each in traceback.extract_stack()[-3:]])
    return y * 2


def variables(x):
    y, number = x + 1, 3
    through(peek)
    return y * number


def peek():
    SEEN.append(sorted(sys._getframe(2).f_locals))


class Talkative:
    def __len__(self):
        note("asked", 2)
        return 2


def from_c(x):
    return x + len(Talkative())


class Looks:
    """Whatever is done with it, it says who does that."""

    def __iter__(self):
        SEEN.append(sys._getframe(1).f_code.co_name)
        return iter((1, 2))

    def __contains__(self, item):
        SEEN.append(sys._getframe(1).f_code.co_name)
        return item == 1

    def keys(self):
        SEEN.append(sys._getframe(1).f_code.co_name)
        return ["level"]

    def __getitem__(self, key):
        SEEN.append(sys._getframe(1).f_code.co_name)
        return 2


def protocols(x):
    a, b = Looks()
    SEEN.append(3 not in Looks())
    return x + a + b


def through_more(function, *args, **kwargs):
    return function(*args, **kwargs)


def spreads(x):
    through_more(note, *Looks())
    through_more(note, "named", **Looks())
    return x * 3


def raises(x):
    return caught(x + 1) * 2


def caught(y):
    try:
        through(fails)
    except ValueError as error:
        SEEN.append([each.name for each in traceback.extract_tb(error.__traceback__)])
    return y


def fails():
    note("failing", 2)
    raise ValueError


PROGRAMS = [
    logs, logs_in_a_helper, three_deep, warns_1, warns_2, warns_3, warns_out, names, stack, printed, summaries, variables,
    from_c, protocols, raises,
]  # fmt: skip


def observed(call):
    """What one call gives, and what its operations saw."""
    SEEN.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call(X)
    places = [(each.filename, each.lineno, str(each.message)) for each in caught if each.category is UserWarning]
    return result.tolist(), list(SEEN), places


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_equal_to_eager(program):
    compiled = magpy.compile(program, backend="eager")
    for _ in range(6):
        expected, found = [observed(function) for function in (program, compiled)]
        assert found == expected
    info = magpy.info(compiled)
    assert (info.hits >= 3, info.native) == (True, 0), info


def test_spread_arguments():
    compiled = magpy.compile(spreads, backend="eager")
    for _ in range(6):
        expected, found = observed(spreads), observed(compiled)
        assert found == expected


def test_registry():
    """A warning is shown once for each place, which its module remembers."""
    compiled = magpy.compile(warns_2, backend="eager")
    for function in (warns_2, compiled):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(4):
                function(X)
        assert len([each for each in caught if each.category is UserWarning]) == 1
        assert "__warningregistry__" in globals()
    assert magpy.info(compiled).native == 0


def test_lines_of_callers():
    def line():
        return sys._getframe(1).f_lineno

    def lines(x):
        SEEN.append(line())
        y = x + 1
        SEEN.append(sys._getframe(0).f_lineno)
        SEEN.append(line())
        return y

    compiled = magpy.compile(lines, backend="eager")
    for _ in range(5):
        expected, found = observed(lines), observed(compiled)
        assert found == expected
    assert magpy.info(compiled).hits >= 2


def test_a_frame_that_goes_on_is_not_rebuilt():
    def lines(x):
        frame = sys._getframe()
        first = frame.f_lineno
        second = frame.f_lineno
        SEEN.append((second - first, sorted(frame.f_locals)))
        return x + 1

    compiled = magpy.compile(lines, backend="eager")
    for _ in range(4):
        expected, found = observed(lines), observed(compiled)
        assert found == expected


def test_namespaces():
    def spaces(x):
        number = 3
        print(end="")
        SEEN.append(sorted(locals()))
        SEEN.append(globals()["__name__"])
        return x + number + eval("number")

    compiled = magpy.compile(spaces, backend="eager")
    for _ in range(4):
        expected, found = observed(spaces), observed(compiled)
        assert found == expected


def test_callers_of_the_compiled_function():
    """MagPy's own frames are not there, however the call is served."""

    @magpy.compile(backend="eager")
    def compiled(x):
        SEEN.append([each.function for each in inspect.stack()[:2]])
        return x + 1

    def calls(x):
        return compiled(x)

    for _ in range(5):
        SEEN.clear()
        calls(X)
        assert SEEN == [["compiled", "calls"]]
    assert magpy.info(compiled).hits


def test_data_dependent_outcomes():
    def branches(x):
        if x.sum() > 3:
            note("large", 2)
            return x * 2
        LOGGER.info("small")
        return x * 3

    def outer(x):
        return branches(x) + 1

    compiled = magpy.compile(outer, backend="eager")
    for number in range(10):
        x = X * (number % 2)
        SEEN.clear()
        expected = outer(x), list(SEEN)
        SEEN.clear()
        assert torch.equal(compiled(x), expected[0])
        assert expected[1] == SEEN
    assert magpy.info(compiled).hits >= 4
