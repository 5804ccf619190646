"""Saved records: a clean environment serves them; damaged, altered and misfit archives are refused; writing is atomic."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import sysconfig
import time
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import layout
import magpy
import magpy_runtime
from magpy_runtime import ArchiveError, ArchiveMismatch, RecordMiss
from magpy_runtime.archive import pack, unpack

FOLDER = Path(__file__).parent / "deploy"
sys.path.insert(0, str(FOLDER))
import deployed  # noqa: E402

RUNTIME = layout.ROOT / "packages" / "magpy-runtime"


def saved(compiled: Any, path: Path) -> magpy.Saved:
    found = magpy.save(compiled, path)
    assert found.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of `Model`, whose operators run one by one."""
    path = tmp_path_factory.mktemp("archive") / "model.magpy"
    compiled = magpy.compile(deployed.model(), backend="eager")
    with torch.no_grad():
        compiled(torch.randn(4, 8))
    saved(compiled, path)
    return path


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of `dynamic`, with boundaries and children."""
    path = tmp_path_factory.mktemp("archive") / "dynamic.magpy"
    compiled = magpy.compile(deployed.dynamic, backend="eager")
    for seed in range(20):
        compiled(deployed.batch(seed))
    found = saved(compiled, path)
    assert found.records > 3 and found.unsaved == ()
    return path


# -- serving -----------------------------------------------------------------------------------------------------------


def test_a_module(archive: Path) -> None:
    model = deployed.model()
    served = magpy_runtime.load(archive, model, on_miss="error")
    assert isinstance(served, deployed.Model) and served.state_dict().keys() == model.state_dict().keys()
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(4, 8)
            assert deployed.alike(served(x), model(x))
            assert served(x)["x"] is x
    info = magpy_runtime.info(served)
    assert (info.hits, info.native, info.records, info.differences) == (10, 0, 1, ())


def test_weights_may_differ(archive: Path) -> None:
    """Values of parameters are no facts: they are read at each call."""
    torch.manual_seed(5)
    model = deployed.Model().eval()
    served = magpy_runtime.load(archive, model, on_miss="error")
    x = torch.randn(4, 8)
    with torch.no_grad():
        assert deployed.alike(served(x), model(x))
        model.load_state_dict(deployed.model().state_dict())
        assert deployed.alike(served(x), deployed.model()(x))


def test_a_copy_is_served_too(archive: Path) -> None:
    served = copy.deepcopy(magpy_runtime.load(archive, deployed.model(), on_miss="error"))
    with torch.no_grad():
        served.norm.weight.zero_()
        assert (
            not served(
                torch.randn(4, 8),
            )["y"]
            .isnan()
            .any()
        )
    assert magpy_runtime.info(served).hits == 1


def test_boundaries_and_children(dynamic: Path) -> None:
    served = magpy_runtime.load(dynamic, deployed.dynamic, on_miss="error")
    for seed in range(40):
        assert deployed.alike(served(deployed.batch(seed)), deployed.dynamic(deployed.batch(seed)))
    info = magpy_runtime.info(served)
    assert info.hits == 40 and info.native == 0 and sum(info.boundaries.values()) > 80


def test_an_outcome_without_a_record_goes_on_natively(tmp_path: Path) -> None:
    compiled = magpy.compile(deployed.dynamic, backend="eager")
    small = torch.zeros(3, 3)
    for _ in range(3):
        compiled(small)
    large = torch.full((3, 3), 100.0)
    saved(compiled, tmp_path / "a")
    served = magpy_runtime.load(tmp_path / "a", deployed.dynamic)
    assert deployed.alike(served(small), deployed.dynamic(small))
    assert deployed.alike(served(large), deployed.dynamic(large))
    info = magpy_runtime.info(served)
    assert info.hits == 1 and info.native == 1
    with pytest.raises(RecordMiss):
        magpy_runtime.load(tmp_path / "a", deployed.dynamic, on_miss="error")(large)


def test_a_miss(archive: Path) -> None:
    model = deployed.model()
    served = magpy_runtime.load(archive, model)
    with torch.no_grad():
        assert deployed.alike(served(torch.ones(3, 8), False), model(torch.ones(3, 8), False))
        info = magpy_runtime.info(served)
        assert info.native == 1 and "positional" in [*info.missed][0]
        with pytest.raises(RecordMiss, match="positional"):
            magpy_runtime.load(archive, model, on_miss="error")(torch.ones(3, 8), False)
    with pytest.raises(RecordMiss, match="modes"):
        magpy_runtime.load(archive, model, on_miss="error")(torch.ones(4, 8))


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_training_is_served(tmp_path: Path, backend: str) -> None:
    """With gradients the operators run one by one, so that autograd sees them."""
    compiled = magpy.compile(deployed.model(), backend=backend)
    compiled(torch.randn(4, 8))
    assert saved(compiled, tmp_path / "a").packages == 0
    one, other, x = deployed.model(), deployed.model(), torch.randn(4, 8)
    served = magpy_runtime.load(tmp_path / "a", one, on_miss="error")
    served(x)["y"].sum().backward()
    other(x)["y"].sum().backward()
    assert all(torch.allclose(a.grad, b.grad) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_varying_sizes(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return torch.cat([x * by, torch.zeros(x.shape[0], 2)], 1)

    compiled = magpy.compile(scaled, backend="eager")
    for size in range(2, 7):
        compiled(torch.ones(size, 3), size / 2)
    saved(compiled, tmp_path / "a")
    served = magpy_runtime.load(tmp_path / "a", scaled, on_miss="error")
    for size in range(2, 12):
        assert torch.equal(served(torch.ones(size, 3), size / 3), scaled(torch.ones(size, 3), size / 3))


def test_effects(tmp_path: Path) -> None:
    log: list[int] = []

    def logged(x: torch.Tensor) -> torch.Tensor:
        log.append(len(x.shape))
        x.add_(1)
        return x * 2

    compiled = magpy.compile(logged, backend="eager")
    compiled(torch.ones(2))
    saved(compiled, tmp_path / "a")
    served = magpy_runtime.load(tmp_path / "a", logged, on_miss="error")
    x = torch.ones(2)
    assert torch.equal(served(x), torch.full((2,), 4.0)) and x[0] == 2 and log == [1, 1]


def test_exceptions(tmp_path: Path) -> None:
    def said(function: Any) -> str:
        with pytest.raises(ValueError, match="too large") as caught:
            function(torch.ones(3))
        return "".join(traceback.format_exception(caught.value)[-2:]).replace("^", "").rstrip()

    compiled = magpy.compile(deployed.refuse, backend="eager")
    said(compiled)
    saved(compiled, tmp_path / "a")
    served = magpy_runtime.load(tmp_path / "a", deployed.refuse, on_miss="error")
    lines = [[line for line in said(each).splitlines() if line.strip()] for each in (served, deployed.refuse)]
    assert lines[0] == lines[1]
    assert magpy_runtime.info(served).hits == 1


# -- what does not fit -------------------------------------------------------------------------------------------------


def changed_function(function: types.FunctionType, **changes: Any) -> types.FunctionType:
    code = function.__code__.replace(**changes)
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def test_other_code_is_named(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consts = (*deployed.Model.forward.__code__.co_consts, "more")
    monkeypatch.setattr(deployed.Model, "forward", changed_function(deployed.Model.forward, co_consts=consts))
    with pytest.raises(ArchiveMismatch, match=r"forward.* has other code"):
        magpy_runtime.load(archive, deployed.model())
    served = magpy_runtime.load(archive, deployed.model(), strict=False)
    with torch.no_grad():
        assert deployed.alike(served(torch.ones(4, 8)), deployed.model()(torch.ones(4, 8)))
    info = magpy_runtime.info(served)
    assert info.native == 1 and any("other code" in each for each in info.differences)


def test_a_changed_class_is_named(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployed.Model, "extra", 1, raising=False)
    with pytest.raises(ArchiveMismatch, match=r"deployed\.Model is another class now"):
        magpy_runtime.load(archive, deployed.model())


def test_another_class_is_named(archive: Path) -> None:
    with pytest.raises(ArchiveMismatch, match=r"target is a torch.nn.*Linear, was a deployed\.Model"):
        magpy_runtime.load(archive, nn.Linear(8, 8))


def test_another_structure_is_named(archive: Path) -> None:
    with pytest.raises(ArchiveMismatch, match="target"):
        magpy_runtime.load(archive, deployed.model(3))


def test_another_setting_is_named(archive: Path) -> None:
    model = deployed.model()
    model.scale = 3.0
    with pytest.raises(ArchiveMismatch, match=r"target\.scale is 3\.0, was 2\.0"):
        magpy_runtime.load(archive, model)
    served = magpy_runtime.load(archive, model, strict=False)
    x = torch.ones(4, 8)
    with torch.no_grad():
        assert deployed.alike(served(x), model(x)) and magpy_runtime.info(served).native == 1
        model.scale = 2.0
        assert deployed.alike(served(x), model(x)) and magpy_runtime.info(served).hits == 1


def test_other_sizes_of_parameters_are_named(archive: Path) -> None:
    model = deployed.model()
    model.layers[0] = nn.Linear(8, 8, dtype=torch.float64)
    with pytest.raises(ArchiveMismatch, match=r"dtype is torch\.float64, was torch\.float32"):
        magpy_runtime.load(archive, model)


def test_tied_parameters_are_no_two(archive: Path) -> None:
    model = deployed.model()
    model.layers[1].weight = model.layers[0].weight
    with pytest.raises(ArchiveMismatch, match="is the same object as"):
        magpy_runtime.load(archive, model)


@pytest.mark.parametrize("name", ["python", "torch", "machine", "vector extension"])
def test_another_environment_is_named(archive: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    here = {**magpy_runtime._env.environment(), name: "another"}
    monkeypatch.setattr(magpy_runtime._env, "environment", lambda: here)
    with pytest.raises(ArchiveMismatch, match=f"{name} is another, was "):
        magpy_runtime.load(archive, deployed.model())


def test_devices_and_processor(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, members = unpack(archive.read_bytes())
    manifest["environment"]["devices"] = ["cuda Some GPU"]
    manifest["environment"]["processor features"] = ["avx9000"]
    del manifest["members"]
    archive.with_suffix(".gpu").write_bytes(pack(manifest, members))
    with pytest.raises(ArchiveMismatch, match="lacks avx9000; device cuda Some GPU is not here"):
        magpy_runtime.load(archive.with_suffix(".gpu"), deployed.model())


def test_what_cannot_be_named_is_told(tmp_path: Path) -> None:
    def apply(model: Any, x: torch.Tensor) -> torch.Tensor:
        return model(x)["y"]

    compiled = magpy.compile(apply, backend="eager")
    compiled(deployed.model(), torch.ones(4, 8))
    with pytest.raises(magpy.UnsavableError, match=r"nothing leads from the target to a deployed\.Model"):
        magpy.save(compiled, tmp_path / "a")
    assert [*tmp_path.iterdir()] == []


def test_others_are_saved_all_the_same(tmp_path: Path) -> None:
    def apply(x: torch.Tensor, model: Any = None) -> torch.Tensor:
        return x + 1 if model is None else model(x)["y"]

    compiled = magpy.compile(apply, backend="eager")
    compiled(torch.ones(4, 8))
    compiled(torch.ones(4, 8), deployed.model())
    found = saved(compiled, tmp_path / "a")
    assert found.records == 1 and len(found.unsaved) == 1 and "deployed.Model" in found.unsaved[0]


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Notes whatever would look into an archive further than to verify it."""
    ran: list[str] = []
    for module, name in (
        ("_restoring", "make_function"), ("_restoring", "Finder"), ("_restoring", "Restorer"), ("_archive", "_load_json"),
    ):  # fmt: skip
        monkeypatch.setattr(getattr(magpy_runtime, module), name, lambda *args, name=name: ran.append(name))
    return ran


def test_a_thousand_damaged_archives(dynamic: Path, tmp_path: Path, nothing_runs: list[str]) -> None:
    data = dynamic.read_bytes()
    choose = random.Random(0)
    path = tmp_path / "damaged"
    for number in range(1000):
        if number % 4 == 0:
            damaged = data[: choose.randrange(len(data))]
        else:
            place = choose.randrange(len(data))
            damaged = data[:place] + bytes([data[place] ^ 1 << choose.randrange(8)]) + data[place + 1 :]
        path.write_bytes(damaged)
        with pytest.raises(ArchiveError):
            magpy_runtime.load(path, deployed.dynamic)
    assert nothing_runs == []


@pytest.mark.parametrize("data", [b"", b"PK", b"no archive" * 100])
def test_foreign_files(tmp_path: Path, data: bytes, nothing_runs: list[str]) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ArchiveError, match="is no record archive"):
        magpy_runtime.load(tmp_path / "a", deployed.dynamic)
    assert nothing_runs == []


def test_an_archive_with_a_consistent_manifest_is_refused_by_its_digest(dynamic: Path, tmp_path: Path) -> None:
    """A digest inside of a file proves nothing about who wrote it."""
    ran: list[Any] = []
    deployed.ran = ran  # type: ignore[attr-defined]
    manifest, members = unpack(dynamic.read_bytes())
    del manifest["members"]
    altered = {
        name: b"import deployed\n" + each.replace(b":\n", b":\n    __import__('deployed').ran.append(1)\n", 1)
        if name.endswith("guard.py") else each
        for name, each in members.items()
    }  # fmt: skip
    path = tmp_path / "altered"
    path.write_bytes(pack(manifest, altered))
    digest = hashlib.sha256(dynamic.read_bytes()).hexdigest()
    with pytest.raises(ArchiveError, match="is not the file whose SHA-256 is"):
        magpy_runtime.load(path, deployed.dynamic, digest=digest)
    assert ran == []
    assert magpy_runtime.load(dynamic, deployed.dynamic, digest=digest.upper())


def test_another_format(archive: Path, tmp_path: Path) -> None:
    manifest, members = unpack(archive.read_bytes())
    del manifest["members"]
    data = pack({**manifest, "format": 99}, members)
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ArchiveError, match="has format 99"):
        magpy_runtime.load(tmp_path / "a", deployed.model())


def test_the_same_records_give_the_same_file(tmp_path: Path) -> None:
    compiled = magpy.compile(deployed.dynamic, backend="eager")
    compiled(deployed.batch(3))
    assert magpy.save(compiled, tmp_path / "a").digest == magpy.save(compiled, tmp_path / "b").digest


# -- writing -----------------------------------------------------------------------------------------------------------


def writer(path: Path, who: str, size: int, *more: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(FOLDER / "write.py"), str(path), who, str(size), *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def test_killed_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    choose = random.Random(1)
    for _ in range(12):
        process = writer(path, "one", 4 << 20)
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        time.sleep(choose.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        manifest, members = unpack(path.read_bytes())
        assert members["graph.pt2"] == bytes([manifest["number"] % 251]) * (4 << 20)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(old := pack({}, {"graph.pt2": b"old"}))
    output, _ = writer(path, "one", 4 << 20, 1 << 20).communicate(timeout=60)
    assert output.startswith("OSError")
    assert path.read_bytes() == old and [*tmp_path.iterdir()] == [path]


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    processes = [writer(path, who, 1 << 20) for who in ("one", "two")]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "written\n"
        seen = set()
        deadline = time.monotonic() + 20
        while len(seen) < 2 and time.monotonic() < deadline:
            for _ in range(20):
                manifest, members = unpack(path.read_bytes())
                assert members["graph.pt2"] == bytes([manifest["number"] % 251]) * (1 << 20)
                seen.add(manifest["who"])
        assert seen == {"one", "two"}
    finally:
        for process in processes:
            process.kill()
            process.communicate()


# -- the clean environment ---------------------------------------------------------------------------------------------


def _run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAGPY_STRICT")}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel of magpy-runtime, and torch (and transformers) from where it is."""
    folder = tmp_path_factory.mktemp("clean")
    _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, RUNTIME, cwd=folder)
    [wheel] = folder.glob("magpy_runtime-*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    [own] = (folder / "venv" / "lib").glob("python3.*/site-packages")
    (own / "torch.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    _run(*pip, cwd=folder)
    return python


def test_the_runtime_alone(clean: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    bert, model = magpy.compile(deployed.bert()), magpy.compile(deployed.model())
    dynamic = magpy.compile(deployed.dynamic)
    with torch.no_grad():
        for seed in range(3):
            bert(**deployed.sentence(seed))
            model(torch.randn(4, 8))
        for seed in range(20):
            dynamic(deployed.batch(seed))
    for name, compiled in (("bert", bert), ("model", model), ("dynamic", dynamic)):
        found = saved(compiled, tmp_path / f"{name}.magpy")
        assert found.packages >= 1 and found.unsaved == ()
    with pytest.raises(AssertionError, match="No module named 'magpy'"):
        _run(clean, "-c", "import magpy", cwd=tmp_path)
    said = json.loads(_run(clean, FOLDER / "serve.py", tmp_path, cwd=tmp_path).splitlines()[-1])
    assert said["equal"] == 100
    assert said["hits"] == {"bert": 100, "model": 100, "dynamic": 100}
    assert said["boundaries"] and said["compile side"] == []
    assert Path(said["runtime"]).is_relative_to(clean.parent.parent)
