"""Small adversarial programs: compiled, they must do what they do eagerly, whatever changes between the calls."""

import cases  # noqa: F401 - registers the programs
import pytest
import soundness


def _marked(name: str) -> object:
    fault = soundness.PROGRAMS[name][1]
    marks = [] if fault is None else [pytest.mark.xfail(strict=True, reason=fault)]
    return pytest.param(name, marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [_marked(name) for name in soundness.PROGRAMS])
def test_program(name: str) -> None:
    soundness.check(soundness.PROGRAMS[name][0])


def test_a_difference_is_found() -> None:
    """The comparison sees what a wrong compiler would do."""

    def program(compile_):
        box = []
        f = compile_(lambda x: box.append(x) or [x])
        yield f(1)
        yield f(1), box

    assert soundness.run(program, lambda f: f) == soundness.run(program, lambda f: f)
    last: list[object] = []

    def remembers(f):
        return lambda x: last[0] if last else last.append(f(x)) or last[0]

    assert soundness.run(program, lambda f: f) != soundness.run(program, remembers)
