import os
import pathlib
import subprocess
import sys

import magpy_annotations


def test_all_is_sorted_and_complete() -> None:
    # Constants, then types, then functions, each in order: what ruff's own fix gives.
    kinds = [(not name.isupper(), name[0].islower(), name) for name in magpy_annotations.__all__]
    assert kinds == sorted(kinds)
    assert all(hasattr(magpy_annotations, name) for name in magpy_annotations.__all__)


def test_no_library_is_imported() -> None:
    code = (
        "import sys, magpy_annotations as m; r = m.default_registry(); r.lookup(len); r.operator(len); "
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    path = str(pathlib.Path(magpy_annotations.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
