"""`magpy report`: a page that stands alone, is well formed, and says how each line was served; seen by a real browser, too."""

from __future__ import annotations

import dataclasses
import re
import shutil
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import magpy
from magpy._api import BoundaryInfo
from magpy._splitting import SplitRules
from magpy.cli import main
from magpy.cli._clock import BoundaryClock
from magpy.cli._collect import Summary, Times
from magpy.cli._html import Markup, page, tag
from magpy.cli._lines import Lines, Served
from magpy.cli._page import render
from magpy.cli._style import STYLE
from magpy_runtime.segments import BoundarySite

PROGRAM = '''\
import time
import torch
import magpy


class Net(torch.nn.Module):
    """<&> "quotes" and  control characters."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.seen = []

    def forward(self, x, more=False):
        x = torch.relu(self.layer(x))  # graph
        if more:  # replaced
            x = x + 1  # graph
        elif x is None:
            x = 0  # unseen
        self.seen.append("<&>")  # replaced
        return x


@magpy.compile(backend="eager")
def clock(x):
    y = x + 1  # graph
    time.sleep(0.01)  # boundary
    return y


@magpy.compile(backend="eager")
def broken(x):
    y = x + 1  # native
    return (each for each in [y])


net = magpy.compile(Net(), backend="eager")
x = torch.ones(2, 4)
for more in (False, False, True, True):
    net(x, more)
for _ in range(2):
    clock(x)
broken(x)
'''


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page about the program, made once."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", list(sys.argv))
        patch.setattr(sys, "path", list(sys.path))
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        assert main(["report", "-o", str(folder / "page.html"), str(folder / "program.py")]) == 0
    yield folder / "page.html"


@pytest.fixture(scope="module")
def tree(written: Path) -> ElementTree.Element:
    return ElementTree.fromstring(written.read_text(encoding="utf-8"))


def text_of(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def test_the_page_is_one_well_formed_document(written: Path, tree: ElementTree.Element) -> None:
    assert written.read_text(encoding="utf-8").startswith("<!DOCTYPE html>\n")
    assert tree.tag == "html"
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [element.get("href", "") for element in tree.iter("a")]
    assert links and all(link.startswith("#") and link[1:] in ids for link in links)


def test_the_page_needs_nothing_else(tree: ElementTree.Element) -> None:
    loading = {"script", "link", "img", "iframe", "object", "embed", "audio", "video", "source", "base"}
    assert [element.tag for element in tree.iter() if element.tag in loading] == []
    assert [name for element in tree.iter() for name in element.attrib if name == "src" or name.startswith("on")] == []
    styles = [text_of(element) for element in tree.iter() if element.tag.endswith("style")]
    assert styles and not any("url(" in style or "@import" in style for style in styles)


def test_lines_are_coloured_by_how_they_were_served(written: Path, tree: ElementTree.Element) -> None:
    rows = {}
    (file,) = (each for each in tree.iter("details") if (each.findtext("summary") or "").endswith("program.py"))
    assert file.get("open") == "open"
    for row in file.iter("tr"):
        cells = list(row.iter("td"))
        if len(cells) == 4:
            rows[int(text_of(cells[0]))] = row, [text_of(cell) for cell in cells]
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        if (marked := re.search(r"  # (\w+)$", line)) is not None:
            row, cells = rows[number]
            assert row.get("class") == marked[1], line
            assert cells[3].startswith(line)
    operators = {number: cells[1] for number, (_, cells) in rows.items() if cells[1]}
    by_text = {PROGRAM.splitlines()[number - 1].strip(): count for number, count in operators.items()}
    wanted = {"x = torch.relu(self.layer(x))  # graph": "2", "x = x + 1  # graph": "1", "y = x + 1  # graph": "1"}
    assert by_text == wanted
    boundary = next(cells[3] for row, cells in rows.values() if row.get("class") == "boundary")
    assert boundary.endswith("impure-call")


def test_every_compiled_object_has_its_section(tree: ElementTree.Element) -> None:
    sections = {each.get("id"): text_of(each) for each in tree.iter("section")}
    assert "clock" in sections["compiled-0"]
    assert "impure-call" in sections["compiled-0"]
    assert "unbuildable" in sections["compiled-1"]
    net = sections["compiled-2"]
    assert "Net" in net
    assert "4 calls: 2 from records (" in net
    assert "Guards that missed" in net
    assert net.count("def guard(args, kwargs):") == net.count("def mock(bound, run):") == 2
    assert "list.append on a list" in net


def test_boundaries_are_shown_where_they_are(tree: ElementTree.Element) -> None:
    (section,) = (each for each in tree.iter("section") if each.get("id") == "compiled-0")
    seen = text_of(section)
    assert "Boundaries" in seen
    assert "time.sleep" in seen
    assert "ends at the boundary" in seen
    assert "2 calls: 1 from records (" in seen


def test_boundaries_are_shown_with_their_seconds(tree: ElementTree.Element) -> None:
    (section,) = (each for each in tree.iter("section") if each.get("id") == "compiled-0")
    table = next(section.iter("table"))
    titles, cells = ([text_of(cell) for cell in table.iter(tag)] for tag in ("th", "td"))
    shown = dict(zip(titles, cells, strict=True))
    assert shown["operation"] == "time.sleep" and shown["taken"] == "2"
    assert 2 * 0.01 <= float(shown["seconds"]) < 1.0  # of the watched run and of the one from a record


def test_operations_at_boundaries_are_timed_only_meanwhile() -> None:
    before = dict(vars(BoundarySite)), dict(vars(SplitRules))

    def make() -> Callable[[float], float]:
        def pause(x: float) -> float:
            time.sleep(x)
            return x

        return magpy.compile(pause, backend="eager")

    def boundary_of(compiled: Callable[[float], float]) -> BoundaryInfo:
        (boundary,) = magpy.info(compiled).boundaries
        return boundary

    plain, timed = make(), make()
    plain(0.01), plain(0.01)
    assert (boundary_of(plain).taken, boundary_of(plain).seconds) == (2, None)
    with BoundaryClock():
        timed(0.01)
        watched = boundary_of(timed)
        timed(0.01)
        with pytest.raises(ValueError, match="non-negative"):
            timed(-1.0)
        served = boundary_of(timed)
    assert watched.seconds is not None and served.seconds is not None
    assert watched.seconds >= 0.01 and served.seconds >= watched.seconds + 0.01
    assert (dict(vars(BoundarySite)), dict(vars(SplitRules))) == before
    timed(0.01)
    after = boundary_of(timed)
    assert (after.taken, after.seconds) == (served.taken + 1, served.seconds)


def test_reference_graphs_are_drawn(tree: ElementTree.Element) -> None:
    drawings = [element for element in tree.iter() if element.tag.endswith("}svg")]
    assert len(drawings) >= 3
    for drawing in drawings:
        assert "#0 external state" in text_of(drawing)
        assert sum(element.tag.endswith("}rect") for element in drawing.iter()) > 1


def test_times_add_up(tree: ElementTree.Element) -> None:
    (bar,) = (each for each in tree.iter("div") if each.get("class") == "bar")
    widths = [float(re.sub(r"[^0-9.]", "", each.get("style", "").removeprefix("width:"))) for each in bar]
    assert len(widths) == 6
    assert abs(sum(widths) - 100) < 0.1


def summary(**changes: object) -> Summary:
    info = magpy.Info(
        monitored=1, hits=2, native=0, records=1, graphs=1, ops=3, boundaries=(), reasons=(), timings={"run": 0.5}
    )
    made = Summary(
        name="f",
        file="",
        line=0,
        info=info,
        explanation="",
        served={"hit": Times(2, 0.1)},
        failed={},
        records=(),
        lines=Lines(),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_boundaries_are_shown_with_their_outcomes() -> None:
    boundary = BoundaryInfo(
        operation="Tensor.item",
        reason="tensor-value",
        file="a.py",
        line=3,
        taken=5,
        outcomes={"line 4": 4, "<raised>": 1},
    )
    info = dataclasses.replace(summary().info, boundaries=(boundary,))
    tree = ElementTree.fromstring(render("p.py", [summary(info=info)], 1.0, 0))
    (found,) = (each for each in tree.iter("section") if each.get("id") == "compiled-0")
    seen = text_of(found)
    for part in ("Tensor.item", "tensor-value", "line 4: 4", "<raised>: 1", "outcomes"):
        assert part in seen


def test_a_program_that_compiles_nothing() -> None:
    tree = ElementTree.fromstring(render("p.py", [], 1.0, 3))
    assert "Nothing was compiled" in text_of(tree)
    assert "status 3" in text_of(tree)


@pytest.mark.parametrize("text", ["<script>", "a\x00\x1b", "\ud800", "&amp;", "]]>", '" onclick="'])
def test_any_text_is_escaped(text: str) -> None:
    tree = ElementTree.fromstring(render(text, [summary(name=text, failed={text: 1})], 1.0, 0))
    assert {name for element in tree.iter() for name in element.attrib} <= {
        *("lang", "charset", "name", "content", "http-equiv", "id", "class", "style", "title", "href", "open")
    }
    assert "script" not in {element.tag for element in tree.iter()}


def test_elements() -> None:
    assert tag("p", "a<b", class_="x", open=False) == '<p class="x">a&lt;b</p>'
    assert tag("p", ["a", None, Markup("<br/>")], open=True) == '<p open="open">a<br/></p>'
    assert page("t", "", "x").count("<meta ") == 3


def test_how_lines_were_served() -> None:
    lines = Lines()
    lines.add_run([("f", "g", 1, (1, 2, 3, 4))], [("f", 1), ("f", 2)], recorded=True)
    lines.add_run([], [("f", 2), ("f", 3)], recorded=False)
    lines.operators = Counter({("f", 2): 1})
    assert [lines.served(("f", n)) for n in range(1, 6)] == [
        *(Served.REPLACED, Served.GRAPH, Served.NATIVE, Served.UNSEEN),
        None,
    ]
    lines.stops["f", 1].add("exception")
    both = Lines()
    both.merge(lines)
    assert both.served(("f", 1)) is Served.BOUNDARY
    assert both.files() == ["f"]


# -- in a browser -----------------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium here to show the page")


def _browse(profile: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={profile}",
    ]
    command += ["--enable-logging=stderr", "--log-level=0", "--window-size=1200,2400", *options, page.as_uri()]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=180)


@in_browser
def test_a_browser_reads_the_page_as_it_was_meant(written: Path, tree: ElementTree.Element, tmp_path: Path) -> None:
    done = _browse(tmp_path, written, "--dump-dom")
    for name in ("section", "table", "tr", "details", "svg", "path", "pre"):
        wanted = sum(element.tag.rpartition("}")[2] == name for element in tree.iter())
        assert len(re.findall(rf"<{name}[ >]", done.stdout)) == wanted, name
    assert "Content Security Policy" not in done.stderr
    assert not re.search(r"CONSOLE.*(error|Uncaught|Refused)", done.stderr)


@in_browser
def test_a_browser_shows_the_colours(written: Path, tmp_path: Path) -> None:
    _browse(tmp_path / "profile", written, f"--screenshot={tmp_path / 'page.png'}")
    seen = _colours((tmp_path / "page.png").read_bytes())
    for name in ("graph", "replaced", "boundary", "native", "unseen"):
        found = re.search(rf"--{name}:#(\w{{6}})", STYLE)
        assert found is not None
        assert seen[bytes.fromhex(found[1])] > 500, name


def _colours(png: bytes) -> Counter[bytes]:
    """How many pixels of a PNG file (8 bits, RGB or RGBA, not interlaced) have each colour."""
    at, header, packed = 8, b"", b""
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + size]
        header, packed = (body if kind == b"IHDR" else header), packed + (body if kind == b"IDAT" else b"")
        at += size + 12
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    assert (depth, interlaced) == (8, 0) and colour in (2, 6)
    step = 3 if colour == 2 else 4
    data, count, before = zlib.decompress(packed), Counter[bytes](), bytearray(width * step)
    for row in range(height):
        start = row * (width * step + 1)
        line = bytearray(data[start + 1 : start + 1 + width * step])
        _unfilter(data[start], line, before, step)
        count.update(bytes(line[x : x + 3]) for x in range(0, len(line), step))
        before = line
    return count


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    for x in range(len(line) if kind else 0):
        left = line[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above[x]
        elif kind == 3:
            guess = (left + above[x]) // 2
        else:
            near = left + above[x] - corner
            guess = min((left, above[x], corner), key=lambda each: abs(near - each))
        line[x] = (line[x] + guess) & 255
