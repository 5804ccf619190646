"""The command `magpy`: runs programs and reports how their compiled parts were served; looks at annotations."""

from ._main import main

__all__ = ["main"]
