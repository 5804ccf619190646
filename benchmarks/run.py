#!/usr/bin/env python3
"""Runs the benchmarks one after the other, each in a process of its own, and hands further arguments on.

    python benchmarks/run.py [NAME ...] [-- arguments for each]

The exit status is the number of benchmarks that missed their limit.
"""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = ("first_call",)


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    cut = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    names, rest = words[:cut] or list(BENCHMARKS), [word for word in words[cut:] if word != "--"]
    if unknown := [name for name in names if name not in BENCHMARKS]:
        print(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names:
        print(f"== {name}", file=sys.stderr, flush=True)
        script = Path(__file__).with_name(f"{name}.py")
        missed += subprocess.run([sys.executable, str(script), *rest], check=False).returncode != 0
    return missed


if __name__ == "__main__":
    sys.exit(main())
