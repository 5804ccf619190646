#!/usr/bin/env python3
"""How long a check of held facts takes for trees of 10 to 10,000 modules. Needs no torch.

    python packages/magpy-runtime/benchmarks/snapshot.py

Each module is an instance with a dictionary and four empty OrderedDicts, about which a record holds what calling a
`torch.nn.Module` reads. `first` makes the table, asks every fact and takes the snapshot.
"""

import collections
import statistics
import sys
import time

from magpy_runtime._native import FactTable

ITEM, DICT, TYPE, LENGTH, TRUTH, CLASS = range(6)
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
ROUNDS = 15


class Module:
    """An instance as `torch.nn.Module` makes them."""

    def __init__(self):
        for name in HOOKS:
            setattr(self, name, collections.OrderedDict())
        self.training = False

    def forward(self):
        """What is looked up."""


def facts_of(modules):
    """What a record holds about a tree of modules."""
    facts = [(CLASS, Module, name, Module.__dict__.get(name), False) for name in ("forward",)]
    for module in modules:
        attributes = vars(module)
        facts += [(TYPE, module, None, Module, False), (DICT, module, None, attributes, False)]
        facts += [(ITEM, attributes, name, attributes[name], False) for name in (*HOOKS, "training")]
        facts += [(TRUTH, attributes[name], None, 0, False) for name in HOOKS]
    return facts


def microseconds(call, count):
    """The median and the best of some rounds."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - started) / count * 1e6)
    return statistics.median(times), min(times)


def main():
    """Print the table."""
    print(f"CPython {sys.version.split()[0]}; microseconds, median (best)")
    print(f"{'modules':>8} {'facts':>8} {'first':>20} {'nothing moved':>20} {'a module':>12}")
    for size in (10, 100, 1000, 10_000):
        modules = [Module() for _ in range(size)]
        facts = facts_of(modules)
        started = time.perf_counter()
        table = FactTable(facts, lambda one, other: one == other)
        table()
        first = (time.perf_counter() - started) * 1e6
        count = max(3, 20_000 // size)
        median, best = microseconds(table, count)
        print(f"{size:>8} {len(facts):>8} {first:>20.1f} {median:>11.2f} ({best:.2f}) {best / size * 1e3:>9.2f} ns")


if __name__ == "__main__":
    main()
