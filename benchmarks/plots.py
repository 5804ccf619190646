"""Plots of a report. Needs matplotlib, which is an optional extra; without it there are none."""

from pathlib import Path
from typing import Any

_COLOURS = {"eager": "#8d99ae", "torch.compile": "#e07a5f", "torch.compile frozen": "#f2b8a7", "magpy": "#3d5a80"}


def draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """Draw what a report has figures for; gives the files."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("agg")
    from matplotlib import pyplot

    made = []
    for name, figures in report["sections"].items():
        bars = _bars(name, figures)
        if not bars:
            continue
        figure, axes = pyplot.subplots(figsize=(max(5.0, 1.1 * len(bars["groups"])), 3.6), layout="constrained")
        width = 0.8 / len(bars["series"])
        for number, (label, values) in enumerate(bars["series"].items()):
            places = [group + (number + 0.5) * width - 0.4 for group in range(len(bars["groups"]))]
            axes.bar(places, values, width, label=label, color=_COLOURS.get(label))
        axes.set_xticks(range(len(bars["groups"])), bars["groups"], rotation=20, ha="right")
        axes.set_ylabel(bars["unit"])
        axes.set_title(bars["title"])
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.svg"
        figure.savefig(path)
        pyplot.close(figure)
        made.append(path)
    return made


def _bars(name: str, figures: dict[str, Any]) -> dict[str, Any] | None:
    """Groups, series and words of one plot."""
    if name in ("steady", "freeze"):
        models = {which: each for which, each in figures["models"].items() if "error" not in each}
        labels = ["eager", "torch.compile", *(["torch.compile frozen"] if name == "freeze" else []), "magpy"]
        series = {label: [each["of_eager"][label] for each in models.values()] for label in labels}
        title = "One call at batch size 1" + (", frozen parameters" if name == "freeze" else "")
        unit = "time by eager's"
    elif name == "tiny":
        models = figures["graphs"]
        series = {
            label: [each["of_eager"][label] for each in models.values()]
            for label in ("eager", "torch.compile", "magpy")
        }
        title, unit = "Calls of small graphs", "time by eager's"
    elif name == "first":
        models = figures["models"]
        series = {
            "torch.compile": [each["torch_compile_tracing_s"] for each in models.values()],
            "magpy": [each["magpy_recording_s"] for each in models.values()],
        }
        title, unit = "First call without the backend", "seconds"
    elif name == "second_start":
        models = figures["models"]
        series = {
            label: [each[label]["warm_s"] for each in models.values()]
            for label in ("torch.compile", "magpy", "magpy, cache")
        }
        title, unit = "Second process, warm caches", "seconds to the first compiled answer"
    else:
        return None
    return {"groups": [*models], "series": series, "title": title, "unit": unit} if models else None
