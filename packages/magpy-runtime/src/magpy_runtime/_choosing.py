"""Short graphs behind AOTAutograd's wrapper: the first calls find out whether their operators by themselves take less.

The wrapper takes some ten microseconds a call, and more where there are gradients, whatever is inside of it. Both ways give
the right results, so they are tried on real calls, in turn; nothing is computed for the trial alone.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.fx

Run = Callable[..., Any]

_FIRST: Final = 3
"""How many calls go to the code before the operators by themselves are tried; an odd number."""

_FEWEST: Final = 2
_MOST: Final = 6
"""How many calls of the operators by themselves are timed; the first ones may find nothing in the processor's caches."""

_LONG_S: Final = 5e-3
"""Code that takes so long is not compared; first calls may take longer than later ones."""

_SHORT_S: Final = 3e-4
_CLEARLY: Final = 0.7


def choosing(code: Run, eager: Run) -> Run:
    """A graph as compiled code or as it is: what takes clearly less in the first calls.

    Args:
        code: the compiled code.
        eager: the graph.

    Returns:
        A function of the graph's inputs. Its attribute `entry` is `eager` once the graph itself was chosen.
    """
    taken: list[float] = []
    by_themselves: list[float] = []
    chosen: Run | None = None
    turn = 0

    def run(*inputs: Any) -> Any:
        nonlocal chosen, turn
        if chosen is not None:
            return chosen(*inputs)
        number, turn = turn, turn + 1
        is_code = number < _FIRST or number % 2 == 0
        started = time.perf_counter()
        found = (code if is_code else eager)(*inputs)
        seconds = time.perf_counter() - started
        if number not in (0, _FIRST):  # the first call of either
            (taken if is_code else by_themselves).append(seconds)
        if number == _FIRST - 1 and min(taken) > _LONG_S:
            chosen = code
        elif len(by_themselves) >= _FEWEST:
            shortest = min(taken)
            if shortest < _SHORT_S and min(by_themselves) < _CLEARLY * shortest:
                chosen = eager
                run.entry = "eager"  # type: ignore[attr-defined]
            elif len(by_themselves) == _MOST:
                chosen = code
        return found

    run.entry = "compile_fx"  # type: ignore[attr-defined]
    return run


def may_choose(inputs: list[Any]) -> bool:
    """Whether the time of a call tells how long its graph takes: everything is on the CPU."""
    return all(each.device.type == "cpu" for each in inputs if isinstance(each, torch.Tensor))


def copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of a graph that a backend is about to use up; constants are shared."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    made = torch.fx.GraphModule(module, graph)
    made.meta = copy.copy(module.meta)
    return made


__all__ = ["choosing", "copied", "may_choose"]
