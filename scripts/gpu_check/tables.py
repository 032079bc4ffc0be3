"""What `duovec bench` measured, as tables of the report."""

import math
from typing import Any

from gpu_check.report import Report

#: Of each shape so many layers are shown, those that take the most.
LAYERS_MAX = 12

#: What is known of the GPUs' memory. What other programs hold counts as used after the weights.
STAGES = ("used after weights", "sessions and graphs", "free")


def stages(figures: dict[str, int]) -> list[str]:
    """The GPUs' memory by stage, in MB; empty where the engine tells none."""
    sums = {"total": 0, "sessions": 0, "free": 0}
    for name, value in figures.items():
        for what in sums:
            sums[what] += value * name.endswith(f"_memory_{what}_bytes")
    if not sums["total"]:
        return [""] * len(STAGES)
    weights = sums["total"] - sums["sessions"] - sums["free"]
    return [f"{value / 1e6:,.0f}" for value in (weights, sums["sessions"], sums["free"])]


def shapes(report: Report, bench: dict[str, Any]) -> None:
    """Every shape."""
    head = ["rows", "length", "median ms", "p99 ms", "compute ms", "copies us", "tokens/s"]
    rows = [
        [
            str(one["rows"]),
            str(one["length"]),
            f"{one['median_ms']:.3f}",
            f"{one['p99_ms']:.3f}",
            f"{one['compute_ms']:.3f}",
            f"{(one['copy_in_ms'] + one['copy_out_ms']) * 1e3:.1f}",
            f"{one['tokens_per_s']:,.0f}",
        ]
        for one in bench["shapes"]
    ]
    report.table(head, rows)


def pytorch(report: Report, torch: dict[str, Any], bench: dict[str, Any] | None = None) -> None:
    """An encoder of the same size, and our time of the same shapes where a plan runs."""
    ours = {
        (one["rows"], one["length"]): one["median_ms"] for one in (bench or {}).get("shapes", [])
    }
    most = torch.get("product_tflops")
    rows = []
    for one in torch["shapes"]:
        best = min(one["median_ms"], one.get("graph_ms", math.inf))
        rate = one["operations"] / best / 1e9
        own = ours.get((one["rows"], one["length"]))
        rows.append(
            [
                f"{one['rows']} x {one['length']}",
                f"{one['median_ms']:.3f}",
                f"{one['graph_ms']:.3f}" if "graph_ms" in one else "",
                f"{rate:.1f}",
                f"{rate / most:.0%}" if most else "",
                *([f"{own:.3f}", f"{best / own:.2f}"] if own else ["", ""] if bench else []),
            ]
        )
    report.say(f"An encoder of the same size in PyTorch {torch['version']}.")
    if most:
        report.say(f"The product of two large matrices runs at {most:.0f} TFLOP/s.")
    head = ["shape", "PyTorch ms", "in a graph ms", "TFLOP/s", "of the product's"]
    report.table(head + (["duovec ms", "times as fast"] if bench else []), rows)


def layers(report: Report, shapes: list[dict[str, Any]]) -> None:
    """The layers that take the most of each shape."""
    for shape in shapes:
        all_us = sum(layer["microseconds"] for layer in shape["layers"])
        most = sorted(shape["layers"], key=lambda layer: -layer["microseconds"])[:LAYERS_MAX]
        count = len(shape["layers"])
        report.say(f"\n{shape['rows']} x {shape['length']}: {count} layers, {all_us:.1f} us")
        times = [(layer["name"][:60], layer["microseconds"]) for layer in most]
        rows = [[name, f"{us:.1f}", f"{us / all_us:.1%}"] for name, us in times]
        report.table(["layer", "us", "part"], rows)
