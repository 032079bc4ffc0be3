"""What `duovec bench` measured, as tables of the report."""

from typing import Any

from gpu_check.report import Report


def shapes(report: Report, bench: dict[str, Any]) -> None:
    """Every shape, beside the ceiling of matrix products where it was measured."""
    ceiling = bench.get("ceiling")
    if ceiling:
        report.say(f"\nMatrix products reach {ceiling['teraflops']:.1f} TFLOP/s.")
    head = ["rows", "length", "median ms", "p99 ms", "compute ms", "tokens/s", "of the ceiling"]
    rows = [
        [
            str(one["rows"]),
            str(one["length"]),
            f"{one['median_ms']:.3f}",
            f"{one['p99_ms']:.3f}",
            f"{one['compute_ms']:.3f}",
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
