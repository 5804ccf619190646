"""Every golden case: its text round-trips, and what it says of its graph is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from magpy_refgraph import to_text

NAMES = sorted(path.stem for path in (Path(__file__).parent / "cases").glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_case(name, case):
    golden = case(name)
    graph = golden.parsed()
    golden.check(graph)
    assert golden.about.strip(), "a case says what it shows"
    assert to_text(graph) == golden.sections["graph"]


@pytest.mark.parametrize("name", NAMES)
def test_only_broken_cases_have_errors(name, case):
    assert bool(case(name).sections["errors"]) == name.startswith("broken_")


def test_the_update_switch_rewrites_a_case(tmp_path, case):
    golden = case("slices")
    graph = golden.parsed()
    copy = type(golden)(tmp_path / "copy.txt", update=True)
    copy.check(graph)
    assert type(golden)(tmp_path / "copy.txt", update=False).sections["graph"] == golden.sections["graph"]
    with pytest.raises(AssertionError):
        wrong = type(golden)(tmp_path / "copy.txt", update=False)
        wrong.sections["facts"] = "#0 argument 0 -> #7\n"
        wrong.check(graph)
