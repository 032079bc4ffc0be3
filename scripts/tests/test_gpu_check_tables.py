"""The tables of the report of scripts/gpu_check.sh."""

from __future__ import annotations

from gpu_check import tables


def test_the_memory_of_all_gpus_is_told_by_stage() -> None:
    figures = {"captured_graphs": 7}
    for device, mega in [(0, (80_000, 1_500, 78_000)), (1, (80_000, 500, 79_250))]:
        for what, value in zip(("total", "sessions", "free"), mega, strict=True):
            figures[f"device_{device}_memory_{what}_bytes"] = value * 10**6
    assert tables.stages(figures) == ["750", "2,000", "157,250"]


def test_an_engine_that_tells_no_memory_leaves_the_cells_empty() -> None:
    assert tables.stages({"captured_graphs": 7}) == ["", "", ""]
