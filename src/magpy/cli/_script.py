"""Runs a program the way that `python script.py` would."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from magpy._refusals import strip

INTERRUPTED = 130  # the exit status that shells give for it


class NoProgramError(Exception):
    """There is nothing to run under the given name."""


def run(program: str, arguments: Sequence[str], *, as_module: bool = False) -> int:
    """Run a script, or a module's code, as `__main__`; tracebacks and messages go to standard error as usual.

    `sys.argv`, `sys.path[0]` and `sys.modules["__main__"]` are the program's afterwards, for what it does at exit.

    Args:
        program: path of the script, or name of the module.
        arguments: what the program gets on its command line.
        as_module: `program` names a module.

    Returns:
        The exit status that Python would have ended with.

    Raises:
        NoProgramError: there is no such script or module, or it cannot be compiled.
    """
    code, module = _module(program) if as_module else _script(program)
    sys.argv[:] = [str(module.__file__) if as_module else program, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd() if as_module else str(Path(program).resolve().parent)
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        return _status(error.code)
    except BaseException as error:
        strip(error)  # these frames would not be there
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _script(program: str) -> tuple[types.CodeType, types.ModuleType]:
    path = os.path.abspath(program)  # what Python calls a script by
    try:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    except OSError as error:
        raise NoProgramError(f"cannot read {program!r}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise NoProgramError(f"cannot compile {program!r}: {error}") from None
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    return code, _main_module(path, loader, None)


def _module(name: str) -> tuple[types.CodeType, types.ModuleType]:
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise NoProgramError(f"no module {name!r}: {error}") from None
    finally:
        del sys.path[0]
    loader = None if spec is None else spec.loader
    if spec is None or not isinstance(loader, importlib.machinery.SourceFileLoader):
        raise NoProgramError(f"no module {name!r} that can be run")
    code = loader.get_code(spec.name)
    if code is None:
        raise NoProgramError(f"module {name!r} has no code")
    return code, _main_module(spec.origin or name, loader, spec)


def _main_module(
    path: str, loader: importlib.machinery.SourceFileLoader, spec: importlib.machinery.ModuleSpec | None
) -> types.ModuleType:
    module = types.ModuleType("__main__")
    package = None if spec is None else spec.parent
    vars(module).update(
        __file__=path, __builtins__=builtins, __loader__=loader, __spec__=spec, __package__=package, __cached__=None
    )
    return module


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1
