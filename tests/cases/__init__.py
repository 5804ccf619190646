"""Small programs, each of which may come out wrong in one way; `tests/test_soundness.py` runs them.

`found_*.py` holds what came out wrong once: a program is marked with the fault until that is mended. `kept_*.py` holds what
came out right from the start.
"""

import importlib
import pkgutil

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
