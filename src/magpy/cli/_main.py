"""The command's arguments, and what it does with them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from magpy.cli import _annotations, _cache, _page, _script, _text
from magpy.cli._collect import Collector, Summary
from magpy.cli._progress import Progress

_WRONG_USE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the command line without the command's name, by default the process's.

    Returns:
        The exit status: for a program that ran the program's own, 2 for a wrong use, otherwise 0 or 1.
    """
    options = parser().parse_args(arguments)
    if options.command == "annotations":
        return _annotations.main(options)
    if options.command == "cache":
        return _cache.main(options)
    return _run(options)


def parser() -> argparse.ArgumentParser:
    """What reads the command line; the documentation's page on the command is made from it."""
    made = argparse.ArgumentParser(
        prog="magpy",
        description="Runs programs and reports how their compiled parts were served; looks at annotations and at the disk cache.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, output in (
        ("run", "run a program; at the end say how its compiled parts were served", "standard error"),
        ("explain", "the same with everything that magpy.explain knows", "standard output"),
        ("report", "run a program and write a page about its compiled parts", "magpy-report.html"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument("-o", "--output", metavar="FILE", help=f"where the report goes (default: {output})")
        command.add_argument("-m", dest="as_module", action="store_true", help="PROGRAM is the name of a module")
        command.add_argument("program", metavar="PROGRAM", help="the script to run as __main__")
        command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the program's own arguments")
    _annotations.add_arguments(commands)
    _cache.add_arguments(commands)
    return made


def _run(options: argparse.Namespace) -> int:
    # Where the report goes is found before the program runs, which may change the working directory.
    output = None if options.output is None else Path(options.output).resolve()
    if options.command == "report" and output is None:
        output = Path("magpy-report.html").resolve()
    words = ["-m"] * options.as_module + [options.program, *options.arguments]
    collector = Progress(lines=options.command == "report")
    started = time.perf_counter()
    try:
        with collector:
            status = _script.run(options.program, options.arguments, as_module=options.as_module)
    except _script.NoProgramError as error:
        print(f"magpy: {error}", file=sys.stderr)
        return _WRONG_USE
    seconds = time.perf_counter() - started
    sys.stdout.flush()
    summaries = collector.summaries()
    if options.command == "report":
        text = _page.render(" ".join(words), summaries, seconds, status)
    else:
        text = _text.report(summaries, seconds) + "\n"
        if options.command == "explain":
            text += "".join(_explained(summary) for summary in summaries)
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"magpy: cannot write {options.output}: {error.strerror}", file=sys.stderr)
            return status or 1
        print(f"magpy: wrote {output}", file=sys.stderr)
    else:
        (sys.stdout if options.command == "explain" else sys.stderr).write(text)
    _tell_problems(collector)
    return status


def _explained(summary: Summary) -> str:
    place = _text.place(summary.file, summary.line)
    return f"\n==== {summary.name}  {place}".rstrip() + f"\n{summary.explanation}\n"


def _tell_problems(collector: Collector) -> None:
    for error in collector.errors:
        print(f"magpy: part of the report is missing: {type(error).__name__}: {error}", file=sys.stderr)
