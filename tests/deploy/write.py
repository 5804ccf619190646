"""Writes an archive again and again; imports no torch. Killed or stopped by the test that started it.

python write.py FILE WHO SIZE [LIMIT]
"""

from __future__ import annotations

import itertools
import resource
import sys

from magpy_runtime._archive import pack, write


def main(path: str, who: str, size: int, limit: int) -> None:
    """Write versions 0, 1, ... of one writer's archive; with a limit on the size of files, once."""
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for number in itertools.count():
        data = pack({"who": who, "number": number}, {"graph.pt2": bytes([number % 251]) * size})
        try:
            write(path, data)
        except OSError as error:
            print(f"OSError {error.errno}", flush=True)
            return
        if number == 0:
            print("written", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
