"""What is wanted beside what was seen, and tables that read well as they are and as Markdown."""

import json
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from default_package.command import say

PASS, MISS, UNSEEN = "PASS", "MISS", "not seen"


@dataclass(frozen=True)
class Figure:
    """One line: what, how much was reached, how much is wanted, and whether it is enough."""

    what: str
    reached: str
    wanted: str
    verdict: str
    value: float | None = None
    """Of `reached`, before it was rounded for people."""


def at_least(what: str, value: float | None, least: float, show: Callable[[float], str]) -> Figure:
    """A value that should be large."""
    return _judged(what, value, f"≥ {show(least)}", show, lambda seen: seen >= least)


def at_most(what: str, value: float | None, most: float, show: Callable[[float], str]) -> Figure:
    """A value that should be small."""
    wanted = "≤ the engine's, not known" if math.isnan(most) else f"≤ {show(most)}"
    known = None if math.isnan(most) else value
    return _judged(what, known, wanted, show, lambda seen: seen <= most)


def _judged(
    what: str,
    value: float | None,
    wanted: str,
    show: Callable[[float], str],
    good: Callable[[float], bool],
) -> Figure:
    if value is None or math.isnan(value):
        return Figure(what, "-", wanted, UNSEEN)
    return Figure(what, show(value), wanted, PASS if good(value) else MISS, value)


def share(value: float) -> str:
    """0.9 -> `90.0 %`."""
    return f"{value * 100:.1f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Aligned columns; the first `words` of them to the left."""
    widths = [max(len(line[at]) for line in (head, *rows)) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (width + 2) if at < words else "-" * (width + 1) + ":"
        for at, width in enumerate(widths)
    ]
    return "\n".join([line(head), f"|{'|'.join(rule)}|", *(line(cells) for cells in rows)])


def number(value: float) -> str:
    """Three digits that count, and a dash for what is not a number."""
    if math.isnan(value):
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def figures(found: list[Figure]) -> str:
    """What was reached, and what is wanted."""
    cells = [[one.what, one.reached, one.wanted, one.verdict] for one in found]
    return table(("figure", "reached", "wanted", "PASS or MISS"), cells, 4)


def finite(value: Any) -> Any:
    """JSON has no word for what is not a number: null."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(out: Path | None, name: str, heading: list[str], tables: list[str], **seen: Any) -> None:
    """Heading and tables on stdout and in NAME.md, and what was `seen` in the JSON beside it.

    `out` is their folder; without one they are only printed.
    """
    text = "\n\n".join([*heading, *tables])
    print(text, flush=True)
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    stored = {"machine": platform.platform(), "heading": heading, **seen}
    results = out / f"{'results' if name == 'table' else name}.json"
    results.write_text(json.dumps(finite(stored), indent=1), encoding="utf-8")
    say(f"wrote {out}")
