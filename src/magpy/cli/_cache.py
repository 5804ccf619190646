"""`magpy cache`: what the disk cache holds, and how to empty it."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from magpy._disk import clear, default_folder, files
from magpy._env import CACHE_DIR
from magpy_runtime import ArchiveError
from magpy_runtime.archive import unpack


def add_arguments(commands: Any) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser("cache", help="list or clear the records that are kept on disk")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (("ls", "all archives, the least recently used first"), ("clear", "remove them all")):
        action = actions.add_parser(name, help=text)
        action.add_argument(
            "--dir",
            metavar="FOLDER",
            help="the cache's folder (default: MAGPY_CACHE_DIR, or magpy in the user's cache)",
        )


def main(options: argparse.Namespace) -> int:
    """Run the command."""
    root = Path(options.dir or CACHE_DIR or default_folder())
    if options.action == "clear":
        print(f"removed {clear(root)} archives")
        return 0
    total = 0
    for path, status in files(root):
        total += status.st_size
        age = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
        print(f"{age}  {status.st_size / 1e6:8.2f} MB  {_described(path)}  {path.parent.name}/{path.name}")
    print(f"{total / 1e6:.2f} MB in {root}")
    return 0


def _described(path: Path) -> str:
    try:
        manifest, members = unpack(path.read_bytes(), str(path))
        count = len(json.loads(members["records.json"])["records"])
    except (ArchiveError, OSError):
        return "damaged"
    return f"{count} record{'s' * (count != 1)} of {manifest['target']}"
