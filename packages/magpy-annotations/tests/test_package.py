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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
