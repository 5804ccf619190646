"""What runs here, as far as compiled code and records rest on it. Nobody else looks at versions."""

from __future__ import annotations

import platform
import sys
from typing import Any, Final

import torch

TORCH: Final = str(torch.__version__)
RUNS_AS_IT_IS: Final = tuple(map(int, TORCH.split(".")[:2])) >= (2, 13)
"""Whether Inductor can be told to run an operator as it is."""


def environment() -> dict[str, Any]:
    """What must be as it was where an archive was made: by name; features and devices may be more."""
    return {
        "python": f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}",
        "bytecode": sys.implementation.cache_tag,
        "torch": TORCH,
        "machine": platform.machine(),
        "system": platform.system(),
        "vector extension": torch.backends.cpu.get_cpu_capability(),
        "processor features": _features(),
        "devices": _devices(),
    }


def _features() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    return sorted(each for each in value.split() if each.startswith(_USED))
    except OSError:
        pass
    return []


_USED = ("avx", "amx", "bmi", "fma", "f16c", "sse", "ssse", "asimd", "sve", "neon", "fp")


def _devices() -> list[str]:
    found = ["cpu"]
    if torch.cuda.is_available():
        found.append(f"cuda {torch.cuda.get_device_name(0)}")
    return found


def environment_differs(manifest: dict[str, Any]) -> list[str]:
    """What of this process is not what an archive was made for."""
    saved, now = manifest["environment"], environment()
    found = []
    for name, was in saved.items():
        if name == "processor features":
            missing = [each for each in was if each not in now[name]]
            if missing:
                found.append(f"this processor lacks {', '.join(missing[:8])}")
        elif name == "devices":
            found += [f"device {each} is not here" for each in was if each not in now[name]]
        elif now.get(name) != was:
            found.append(f"{name} is {now.get(name)}, was {was}")
    return found


__all__ = ["RUNS_AS_IT_IS", "TORCH", "environment", "environment_differs"]
