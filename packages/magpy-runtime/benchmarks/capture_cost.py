"""What one instruction costs under capture, in nanoseconds: skipped, and reported with trivial callbacks.

Run it as `python benchmarks/capture_cost.py`; it needs no torch.
"""

import dis
import statistics
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from magpy_runtime.capture import Plan, Recorder

ROUNDS = 9
LOOPS = 20_000


def program(loops: int) -> int:
    """A loop of eleven cheap instructions or so."""
    total = 0
    for i in range(loops):
        a = i
        b = a
        total = b + a
    return total


def before(inputs: tuple[Any, ...], arg: Any) -> None:
    """Do nothing."""


def after(state: Any, outputs: tuple[Any, ...] | None, arg: Any) -> None:
    """Do nothing."""


def everything(code: CodeType) -> Plan | None:
    """Report each instruction of `program`, with its real numbers of inputs."""
    if code is not program.__code__:
        return None
    plan: Plan = [None] * (len(code.co_code) // 2)
    counts = {"STORE_FAST": (1, 0), "LOAD_FAST": (0, 1), "BINARY_OP": (2, 1), "RETURN_VALUE": (1, 0)}
    for instruction in dis.get_instructions(code):
        n_in, n_out = counts.get(instruction.opname, (0, 0))
        plan[instruction.offset // 2] = (before, after, n_in, n_out, None)
    return plan


def nothing(code: CodeType) -> Plan | None:
    """Watch `program` and report nothing."""
    return [None] * (len(code.co_code) // 2) if code is program.__code__ else None


def best_s(action: Callable[[], object]) -> float:
    """The median time of a few rounds, in seconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print the table."""

    def captured(plan_for: Callable[[CodeType], Plan | None]) -> tuple[float, dict[str, int]]:
        recorder = Recorder(plan_for)
        recorder.run(program, (LOOPS,))
        assert recorder.error is None, recorder.error
        counts = recorder.counts()
        return best_s(lambda: Recorder(plan_for).run(program, (LOOPS,))), counts

    native_s = best_s(lambda: program(LOOPS))
    skipped_s, seen = captured(nothing)
    reported_s, told = captured(everything)
    print(f"instructions: {seen['events']}")
    print(f"native:            {native_s / seen['events'] * 1e9:7.1f} ns an instruction")
    print(f"skipped:           {(skipped_s - native_s) / seen['events'] * 1e9:7.1f} ns more")
    print(f"before and after:  {(reported_s - native_s) / told['reported'] * 1e9:7.1f} ns more")


if __name__ == "__main__":
    main()
