"""The C extension of magpy-runtime; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
NATIVE = HERE / "native"


def _files(pattern: str) -> list[str]:
    """Native sources that match `pattern`: sorted paths relative to this file, as setuptools wants them."""
    return sorted(path.relative_to(HERE).as_posix() for path in NATIVE.glob(pattern))


setup(
    ext_modules=[
        Extension(
            "magpy_runtime._native",
            sources=_files("*.c"),
            depends=_files("*.h"),
            include_dirs=["native"],
            extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"],
        )
    ]
)
