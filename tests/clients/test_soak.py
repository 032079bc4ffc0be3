"""The soak and the edge bench, so short that they show only that they work."""

from __future__ import annotations

import json
from pathlib import Path

from server import default_package, script


def test_short_soak_ends_every_request_once_and_leaks_nothing() -> None:
    """Everything of the hour in a third of a minute; so soon memory has not settled."""
    short = ["--minutes", "0.35", "--fault-seconds", "1.5", "--peaks", "0", "--growth", "10"]
    # Refused bodies are read for five more seconds.
    short += ["--rounds", "2", "--rest-seconds", "8"]
    done = script("soak", *short, package=default_package())
    assert "hangs of a worker" in done.stdout and "exchanges of a key" in done.stdout
    print(done.stdout)


def test_edge_bench_measures_every_section(tmp_path: Path) -> None:
    """A second each with an engine that takes no time; its figures say nothing."""
    short = ["--seconds", "1", "--slow-seconds", "2", "--idle", "50", "--slow", "4"]
    short += ["--unread", "20", "--rest-seconds", "1"]
    fake = ["--engine", "fake", "--fake-run-ms", "2"]
    words = [*short, "--out", str(tmp_path), "--", *fake]
    script("edge_bench", *words, package=default_package())
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    names = {"flood", "bodies, 2048 texts each", "bodies, one text each", "deep", "slow"}
    storms = {name.partition(",")[0] for name in set(results["seen"]) - names}
    assert names < set(results["seen"]) and storms == {"absent", "unread"}
    assert results["seen"]["slow"]["load"]["idle, still open"] == 50
    assert len(results["figures"]) == 32
    assert (tmp_path / "table.md").read_text(encoding="utf-8").count("\n| ") > 32
