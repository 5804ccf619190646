"""Programs that crashed: an operation that fails half way in a loop, whose iterator is freed by the time that it is looked at."""

from typing import Any

from soundness import attempt, keep

from cases.world import X


@keep
def failing_in_a_loop(c):
    log: list[Any] = [1, 2, 3, 4, 5]

    def f(x, v):
        for _ in range(3):
            log[::2] = v[:2]
        return x + 1

    for _ in range(30):
        g = c(f)
        for _ in range(2):
            yield attempt(g, X(), [1, 2]), log


@keep
def failing_below_loops(c):
    log: list[Any] = [1, 2, 3, 4, 5]

    def inner(v):
        for k, _ in enumerate(v):
            for _ in zip(v, v):
                log[::2] = v[k:]

    def f(x, v):
        for _ in iter(v):
            try:
                inner(v)
            except ValueError:
                log.append(len(v))
        return x + len(log)

    for _ in range(30):
        g = c(f)
        for _ in range(2):
            yield attempt(g, X(), [1, 2]), log
