"""Two pictures: scores by method as bars, and sentences with their tokens shaded by weight."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager

from .evaluation import METHODS
from .report import MAIN_SCOPES, NAMES

matplotlib.use("Agg")
# It says for every glyph that the fallback font has one weight only.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
from matplotlib import pyplot  # noqa: E402  (after the backend is chosen)

COLOURS = {
    "overlap": "#c9ced6",
    "bm25": "#8a93a3",
    "sparse": "#2f7d5b",
    "dense": "#3b6ea8",
    "hybrid_weighted": "#b5532d",
    "hybrid_rank": "#dfa27f",
}
LABELS = {"overlap": "#222222", "bm25": "#222222", "hybrid_rank": "#222222"}
"""Text on light bars."""
DPI = 110
FULL_WEIGHT = 0.35
"""Shaded fully; the heaviest tokens are about this heavy."""
LINE_UNITS = 100.0
"""Width of the token picture in units of its coordinates."""


@dataclass(frozen=True)
class Sentence:
    """One row of the token picture."""

    lang: str
    pieces: list[str]
    weights: list[float]


def bars(results: dict[str, Any], path: Path) -> None:
    """nDCG@10 with intervals: one panel a domain, one group of bars a scope."""
    domains = results["domains"]
    figure, panels = pyplot.subplots(1, len(domains), figsize=(6.2 * len(domains), 4.4))
    for panel, (domain, scopes) in zip(np.atleast_1d(panels), domains.items(), strict=True):
        names = [name for name in MAIN_SCOPES if name in scopes]
        for at, method in enumerate(METHODS):
            values = np.asarray([scopes[name]["methods"][method]["ndcg"] for name in names])
            places = np.arange(len(names)) + (at - (len(METHODS) - 1) / 2) * 0.14
            spans = np.abs(values[:, 1:] - values[:, :1]).T
            panel.bar(places, values[:, 0], 0.13, color=COLOURS[method], label=NAMES[method])
            panel.errorbar(places, values[:, 0], spans, fmt="none", ecolor="#222222", lw=0.9)
            for x, y in zip(places, values[:, 0], strict=True):
                panel.text(
                    x,
                    0.015,
                    f"{y:.2f}",
                    ha="center",
                    rotation=90,
                    fontsize=7,
                    color=LABELS.get(method, "white"),
                )
        labels = [f"{name}\n{scopes[name]['queries']} queries" for name in names]
        panel.set_xticks(np.arange(len(names)), labels)
        panel.set_title(domain, fontsize=11)
        panel.set_ylim(0.0, 1.0)
        panel.spines[["top", "right"]].set_visible(False)
    first = np.atleast_1d(panels)[0]
    first.set_ylabel("nDCG@10, 95 % interval")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(METHODS), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)


def tokens(sentences: list[Sentence], font: Path, path: Path) -> None:
    """Each sentence's tokens on a background as dark as they are heavy, weights below."""
    font_manager.fontManager.addfont(str(font))
    families = ["DejaVu Sans", font_manager.FontProperties(fname=str(font)).get_name()]
    with pyplot.rc_context({"font.family": families}):
        height = 0.52 * len(sentences) + 0.3
        figure = pyplot.figure(figsize=(9.2, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, LINE_UNITS), ylim=(len(sentences) + 0.2, -0.4))
        axes.axis("off")
        for row, sentence in enumerate(sentences):
            axes.text(0.6, row + 0.2, sentence.lang, fontsize=10, color="#777777", va="center")
            _draw(axes, row, sentence)
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
        pyplot.close(figure)


def _draw(axes: Any, row: int, sentence: Sentence) -> None:
    renderer = axes.figure.canvas.get_renderer()
    at = 3.6
    for piece, weight in zip(sentence.pieces, sentence.weights, strict=True):
        shade = min(weight / FULL_WEIGHT, 1.0)
        if piece.startswith("▁"):
            at += 0.45
        shown = piece.removeprefix("▁")
        if not shown:
            continue
        text = axes.text(
            at + 0.25,
            row + 0.1,
            shown,
            fontsize=11,
            va="center",
            color="white" if shade > 0.62 else "#1c1c1c",
            bbox={
                "facecolor": (1 - 0.85 * shade, 1 - 0.5 * shade, 1 - 0.65 * shade),
                "edgecolor": "none",
                "pad": 2.2,
            },
        )
        box = text.get_window_extent(renderer).transformed(axes.transData.inverted())
        axes.text(
            (box.x0 + box.x1) / 2,
            row + 0.48,
            f"{weight:.2f}".lstrip("0") if weight else "0",
            fontsize=6.5,
            ha="center",
            va="center",
            color="#777777",
        )
        at = box.x1 + 0.45
