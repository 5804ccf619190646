"""`python -m magpy` is the command `magpy`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
