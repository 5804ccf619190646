"""Build every package the way that it would be published, and try what was built.

A wheel is made from the package's own fresh sdist, so a file that the sdist forgets is missed here and not by a user.
Each wheel is then installed with no more than its siblings into an environment of its own and imported there: a package
that needs no torch gets an environment that has none. Where a package's own tests need no sibling, they are run there.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import layout
from environments import NO_TESTS, REQUIREMENTS, Environment, run
from layout import Package

_PROBE = """
import importlib, importlib.metadata, importlib.util, pathlib, sys
distribution, name, torch, native, folder = sys.argv[1:]
module = importlib.import_module(name)
assert pathlib.Path(module.__file__).is_relative_to(folder), f"imported from the checkout: {module.__file__}"
assert (pathlib.Path(module.__file__).parent / "py.typed").is_file(), "py.typed is missing"
if native == "True":
    importlib.import_module(f"{name}._native")
missing = [public for public in module.__all__ if not hasattr(module, public)]
assert not missing, f"names in __all__ that are not there: {missing}"
has_torch = importlib.util.find_spec("torch") is not None
assert has_torch == (torch == "True"), "torch"
torch = "with torch" if has_torch else "without torch"
print(distribution, importlib.metadata.version(distribution), "imports alone,", torch)
"""


def build_and_check(main: Environment, folder: Path) -> int:
    """Build all packages that have source into ``folder/wheels``, then try each.

    Args:
        main: The environment that has ``build``, pip and torch.
        folder: Where the wheels and the environments to try them in are put.

    Returns:
        0 when every package was built and imports alone, otherwise 1.
    """
    packages = layout.installable()
    out = folder / "wheels"
    shutil.rmtree(out, ignore_errors=True)
    built: dict[str, Path] = {}
    for package in packages:
        target = out / package.distribution
        _build(main, package, target)
        (built[package.distribution],) = target.glob("*.whl")
    failed = False
    for package in packages:
        failed |= not _contents_are_right(package, built[package.distribution])
        wanted = [package.distribution, *_all_siblings(package, packages)]
        place = folder / "venv-wheels" / package.distribution
        failed |= _try(package, [built[name] for name in wanted], main, place) != 0
    return int(failed)


def _build(main: Environment, package: Package, target: Path) -> None:
    """Build sdist and wheel; what the build prints is shown only when it fails."""
    print(f"+ build {package.distribution}", flush=True)
    command = [str(word) for word in (main.python, "-m", "build", "--outdir", target, package.folder)]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if answer.returncode:
        print(answer.stdout, answer.stderr, sep="\n", flush=True)
        raise SystemExit(f"{package.distribution} cannot be built")


def _all_siblings(package: Package, packages: Sequence[Package]) -> list[str]:
    """The siblings that the package needs, theirs included."""
    by_name = {p.distribution: p for p in packages}
    found: list[str] = []
    waiting = list(package.siblings)
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found.append(name)
            waiting += by_name[name].siblings
    return found


def _contents_are_right(package: Package, wheel: Path) -> bool:
    """Whether a wheel holds its import package and metadata, and neither tests nor C sources."""
    names = zipfile.ZipFile(wheel).namelist()
    unexpected = [
        name
        for name in names
        if not name.startswith((f"{package.import_name}/", f"{wheel.name.split('-')[0]}-"))
        or "/tests/" in name
        or name.endswith((".c", ".h"))
    ]
    extensions = [name for name in names if name.endswith(".so")]
    for name in unexpected:
        print(f"{wheel.name}: unexpected {name}", flush=True)
    if bool(extensions) != package.native:
        print(f"{wheel.name}: compiled modules: {extensions}", flush=True)
        return False
    return not unexpected


def _try(package: Package, wheels: Iterable[Path], main: Environment, folder: Path) -> int:
    """Install the wheels into an environment of their own and import the package there."""
    shutil.rmtree(folder, ignore_errors=True)
    run([main.python, "-m", "venv", "--without-pip", folder])
    python = folder / "bin" / "python"
    if package.needs_torch:
        _show_torch(main, python)
    pip = [main.python, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    run([*pip, *wheels])
    probe: list[object] = [
        python,
        "-I",
        "-c",
        _PROBE,
        package.distribution,
        package.import_name,
        package.needs_torch,
        package.native,
        folder,
    ]
    return run(probe, cwd=folder, check=False) or _test(package, main, python)


def _test(package: Package, main: Environment, python: Path) -> int:
    """Run the package's own tests on its wheel, for the packages whose tests need no sibling."""
    if package.siblings or not package.tests.is_dir():
        return 0
    if not package.needs_torch:  # otherwise pytest is seen where torch is
        run([main.python, "-m", "pip", "--python", python, "install", "--quiet", "-r", REQUIREMENTS / "test.txt"])
    status = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", package.tests], check=False)
    return 0 if status == NO_TESTS else status


def _show_torch(main: Environment, python: Path) -> None:
    """Let an environment see the main one's torch and what it needs, but not the packages installed there in place.

    Those are found through ``.pth`` files, which are read in an environment's own folder only.
    """
    (own,) = (python.parent.parent / "lib").glob("python3.*/site-packages")
    (theirs,) = (main.folder / "lib").glob("python3.*/site-packages")
    (own / "torch-of-main.pth").write_text(f"{theirs}\n")
