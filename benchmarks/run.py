#!/usr/bin/env python3
"""Eager, torch.compile and MagPy side by side: one command for all figures.

    python benchmarks/run.py [SECTION ...] [--quick] [--only NAME] [--out FOLDER]

Sections: `tiny` (calls of small graphs), `steady` (the paper's eight models at batch size 1), `freeze` (the same with
parameters as constants), `first` (the first call by phases), `graphs` (graphs for each front end), `memory`,
`second_start` (a second process with warm caches), and the scripts beside this one: `call_overhead`, `first_call`,
`dynamic_shapes`. All but the scripts and the second starts run in this process, in turn, without gradients, on one thread;
figures are medians, ratios are medians of ratios within a round. With CUDA the models run there and events take the time;
`--cudagraphs` lets Inductor use CUDA graphs, for both front ends.

Writes `report.json`, `report.txt` and plots (with matplotlib) to the folder. The exit status is the number of sections that
failed.
"""

import argparse
import importlib
import json
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from benchmarks import plots
from benchmarks.harness import Settings, machine

ROOT = Path(__file__).parents[1]
SECTIONS = ("tiny", "first", "graphs", "memory", "steady", "freeze", "second_start")
SCRIPTS = ("call_overhead", "first_call", "dynamic_shapes")


def main(argv: list[str] | None = None) -> int:
    known = [*SECTIONS, *(name for name in SCRIPTS if (ROOT / "benchmarks" / f"{name}.py").exists())]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small models and few rounds: shows that all works")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds for one comparison (default 6)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch's kernels (default 1)")
    parser.add_argument("--cudagraphs", action="store_true", help="let Inductor use CUDA graphs")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder of the report")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, no tables")
    chosen = parser.parse_args(argv)
    if unknown := [name for name in chosen.sections if name not in known]:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(known)}")
    torch.set_num_threads(chosen.threads)
    torch.set_float32_matmul_precision("high" if torch.cuda.is_available() else "highest")
    settings = Settings(
        device=chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"),
        quick=chosen.quick,
        budget_s=0.3 if chosen.quick else chosen.budget,
        only=tuple(name for name in chosen.only.split(",") if name),
        options={"triton.cudagraphs": True} if chosen.cudagraphs else None,
    )
    report: dict[str, Any] = {"machine": machine(), "device": settings.device, "quick": settings.quick, "sections": {}}
    chosen.out.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    failed = 0
    for name in chosen.sections or known:
        print(f"== {name}", file=sys.stderr, flush=True)
        try:
            found, text = run_script(name, settings, chosen.out) if name in SCRIPTS else run_section(name, settings)
        except Exception:
            failed += 1
            traceback.print_exc()
            continue
        report["sections"][name] = found
        lines += [f"== {name}", text, ""]
        if not chosen.json:
            print(f"\n{text}\n", flush=True)
        (chosen.out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        (chosen.out / "report.txt").write_text("\n".join(lines), encoding="utf-8")
    drawn = plots.draw(report, chosen.out)
    if chosen.json:
        print(json.dumps(report, indent=2))
    else:
        print(f"written to {chosen.out}: report.json, report.txt and {len(drawn)} plots")
    return failed


def run_section(name: str, settings: Settings) -> tuple[dict[str, Any], str]:
    """The figures of a section, and its tables."""
    section: Any = importlib.import_module(f"benchmarks.sections.{'steady' if name == 'freeze' else name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = section.measure(settings, freeze=True) if name == "freeze" else section.measure(settings)
    return found, section.show(found)


def run_script(name: str, settings: Settings, out: Path) -> tuple[Any, str]:
    """The figures of a script, which runs in a process of its own, and its tables. A missed limit is no failure here."""
    file = out / f"{name}.json"
    words = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--out", str(file)]
    if settings.quick:
        words += ["--rounds", "3", *(["--size", "quick"] if name == "dynamic_shapes" else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not file.exists():
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return json.loads(file.read_text(encoding="utf-8")), done.stdout


if __name__ == "__main__":
    sys.exit(main())
