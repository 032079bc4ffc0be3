"""What `duovec bench` measured, as tables of the report."""

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
