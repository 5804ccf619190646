#!/usr/bin/env python3
"""How soon a new process answers for the first time: from saved records, and with torch.compile, cold and with warm caches.

    python benchmarks/deploy.py [--json] [--layers 12] [--hidden 256] [--rounds 3] [--threads 2] [--out FILE]

The model is transformers' BERT. Each measurement is a process of its own: the clock runs from the moment at which torch,
transformers and the model are there until the first answer, so that it includes what each way imports and reads. "cold" has
empty caches, "warm" those that the cold process has left. `magpy` has an archive that `magpy.save` wrote before; its process
imports nothing of MagPy's but magpy-runtime. All answers are compared with eager's. Exits 1 where saved records are not at
least 10 times as soon as cold, and 3 times as soon as warm torch.compile.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COLD = 10.0
WARM = 3.0


def model(layers: int, hidden: int) -> Any:
    """The model; weights are drawn anew from the same seed in each process."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=2000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=8,
        intermediate_size=4 * hidden,
    )
    return transformers.BertModel(config).eval()


def sentence() -> dict[str, Any]:
    """What it is asked."""
    import torch

    ids = torch.randint(0, 2000, (1, 32), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def child(how: str, archive: str, layers: int, hidden: int, threads: int) -> None:
    """One process: prints seconds until the first answer, of a later one, and the greatest difference from eager."""
    import torch

    torch.set_num_threads(threads)
    bert, asked = model(layers, hidden), sentence()
    with torch.no_grad():
        expected = bert(**asked)[0]
        started = time.perf_counter()
        if how == "magpy":
            import magpy_runtime

            served = magpy_runtime.load(archive, bert, on_miss="error")
        elif how == "eager":
            served = bert
        elif how == "save":
            import magpy

            served = magpy.compile(bert)
        else:
            served = torch.compile(bert)
        answer = served(**asked)[0]
        first = time.perf_counter() - started
        later = []
        for _ in range(10):
            started = time.perf_counter()
            served(**asked)
            later.append(time.perf_counter() - started)
    difference = float((answer - expected).abs().max())
    said: dict[str, Any] = {"first_s": first, "later_s": statistics.median(later), "difference": difference}
    if how == "save":
        import magpy

        started = time.perf_counter()
        saved = magpy.save(served, archive)
        said |= {"save_s": time.perf_counter() - started, "packages": saved.packages, "bytes": os.stat(archive).st_size}
    else:
        said["imported"] = sorted({name.partition(".")[0] for name in sys.modules if name.startswith("magpy")})
    print(json.dumps(said))


def run(how: str, archive: Path, caches: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one process."""
    command = [sys.executable, __file__, "--child", how, "--archive", str(archive)]
    command += [
        "--layers",
        str(arguments.layers),
        "--hidden",
        str(arguments.hidden),
        "--threads",
        str(arguments.threads),
    ]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(caches)}
    started = time.perf_counter()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"process_s": time.perf_counter() - started}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All processes, in turn."""
    found: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": [], "magpy": [], "eager": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = folder / "bert.magpy"
        saved = run("save", archive, folder / "saving", arguments)
        for number in range(arguments.rounds):
            caches = folder / f"caches{number}"
            found["cold"].append(run("torch.compile", archive, caches, arguments))
            found["warm"].append(run("torch.compile", archive, caches, arguments))
            found["magpy"].append(run("magpy", archive, folder / f"none{number}", arguments))
            found["eager"].append(run("eager", archive, folder / f"none{number}", arguments))
    medians = {
        how: {key: statistics.median(each[key] for each in rounds) for key in ("first_s", "later_s", "process_s")}
        for how, rounds in found.items()
    }
    first = {how: each["first_s"] for how, each in medians.items()}
    return {
        "layers": arguments.layers,
        "hidden": arguments.hidden,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "saved": saved,
        "medians": medians,
        "difference": max(each["difference"] for each in found["magpy"]),
        "imported": found["magpy"][0]["imported"],
        "sooner than cold": first["cold"] / first["magpy"],
        "sooner than warm": first["warm"] / first["magpy"],
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--archive", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.archive, arguments.layers, arguments.hidden, arguments.threads)
        return 0
    found = measure(arguments)
    text = json.dumps(found, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    if arguments.json:
        print(text)
    else:
        print(f"{'':22}{'first answer':>14}{'later':>10}{'process':>10}")
        for how, each in found["medians"].items():
            name = how if how in ("magpy", "eager") else f"torch.compile {how}"
            print(f"{name:22}{each['first_s']:12.3f} s{each['later_s'] * 1e3:7.1f} ms{each['process_s']:8.1f} s")
        print(
            f"{found['sooner than cold']:.1f} times as soon as cold, {found['sooner than warm']:.1f} times as soon as warm"
        )
    return int(found["sooner than cold"] < COLD or found["sooner than warm"] < WARM or found["difference"] > 1e-4)


if __name__ == "__main__":
    sys.exit(main())
