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
    """Every shape, beside the ceiling of matrix products where it was measured."""
    ceiling = bench.get("ceiling")
    if ceiling:
        report.say(f"\nMatrix products reach {ceiling['teraflops']:.1f} TFLOP/s.")
    head = ["rows", "length", "median ms", "p99 ms", "compute ms", "copies us", "tokens/s"]
    head.append("of the ceiling")
    rows = [
        [
            str(one["rows"]),
            str(one["length"]),
            f"{one['median_ms']:.3f}",
            f"{one['p99_ms']:.3f}",
            f"{one['compute_ms']:.3f}",
            f"{(one['copy_in_ms'] + one['copy_out_ms']) * 1e3:.1f}",
            f"{one['tokens_per_s']:,.0f}",
            f"{one['of_ceiling']:.1%}" if "of_ceiling" in one else "",
        ]
        for one in bench["shapes"]
    ]
    report.table(head, rows)


def beside_pytorch(report: Report, torch: dict[str, Any], bench: dict[str, Any]) -> None:
    """The shapes that both ran."""
    median = {(one["rows"], one["length"]): one["median_ms"] for one in bench["shapes"]}
    rows = [
        [f"{rows} x {length}", f"{theirs:.3f}", f"{ours:.3f}", f"{theirs / ours:.2f}"]
        for rows, length, theirs in torch["median_ms"]
        if (ours := median.get((rows, length)))
    ]
    report.say(f"An encoder of the same size in PyTorch {torch['version']}.")
    report.table(["shape", "PyTorch ms", "duovec ms", "times as fast"], rows)


def priorities(report: Report, seen: dict[str, Any]) -> None:
    """A short text alone, and beside large batches on a usual and on an urgent stream."""
    rows = [[name, f"{one['median_ms']:.3f}", f"{one['p99_ms']:.3f}"] for name, one in seen.items()]
    report.table(["a short text", "median ms", "p99 ms"], rows)


def waits(report: Report, shapes: list[dict[str, Any]]) -> None:
    """The same shapes, waited for with the core kept and asleep."""
    head = ["shape"]
    for way in ("awake", "asleep"):
        head += [f"{way}: median ms", "p99 ms", "of a core"]
    rows = []
    for shape in shapes:
        cells = [f"{shape['rows']} x {shape['length']}"]
        for one in (shape["awake"], shape["asleep"]):
            cells += [f"{one[name]:.3f}" for name in ("median_ms", "p99_ms")]
            cells.append(f"{one['core_part']:.0%}")
        costs = (shape["asleep"]["median_ms"] - shape["awake"]["median_ms"]) * 1e3
        rows.append([*cells, f"{costs:.0f}"])
    report.table([*head, "sleep costs us"], rows)


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
