"""scripts/bench_http.sh --against, with a second duovec that is asked in each dialect."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from server import FAKE, TINY, default_package, running, script


def engine(run_ms: int) -> list[str]:
    """One worker that takes so long for each batch of one text."""
    few = ["--workers", "1", "--max-batch-tokens", "8"]
    return ["--engine", "fake", "--fake-run-ms", str(run_ms), *few]


def bench(url: str, out: Path, *more: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with a server of ours that takes 2 ms for each text."""
    words = ["--small", "--against", url, "--out", str(out), *more, "--", *engine(2)]
    return script("http_bench", *words, package=TINY, code=code)


def loads(out: Path) -> list[dict[str, Any]]:
    """What was measured."""
    found: list[dict[str, Any]] = json.loads((out / "against.json").read_text())["loads"]
    return found


def test_a_second_duovec_that_is_slower_is_seen_to_be_slower(tmp_path: Path) -> None:
    with running("--package", TINY, *engine(20)) as other:
        done = bench(other.url + "/v1", tmp_path, "--model", "tiny")
    print(done.stdout)
    assert "the same vectors as ours" in done.stdout
    found = loads(tmp_path)
    assert [load["load"] for load in found] == [
        "1 client x 1 text",
        "16 clients x 1 text",
        "64 clients x 1 text",
        "4 clients x 32 texts",
    ]
    for load in found:
        # Ten times, less what both take beside the run, and what a busy machine adds.
        assert load["duovec"]["texts_per_s"] > 1.1 * load["other"]["texts_per_s"], load
        assert load["duovec"]["errors"] == load["other"]["errors"] == 0


def test_another_model_is_measured_in_the_dialect_of_tei(tmp_path: Path) -> None:
    with running("--package", default_package(), *engine(2)) as other:
        done = bench(other.url, tmp_path, "--dialect", "tei")
    print(done.stdout)
    assert f"POST {other.url}/embed; ANOTHER MODEL: vectors of 384 numbers" in done.stdout
    for load in loads(tmp_path):
        assert load["other"]["requests"] > 0 and load["other"]["errors"] == 0, load
        assert load["duovec"]["requests"] > 0 and load["duovec"]["errors"] == 0, load


def test_a_wrong_address_ends_with_one_sentence_before_anything_is_measured(tmp_path: Path) -> None:
    with running(*FAKE) as other:
        done = bench(f"{other.url}/nowhere", tmp_path / "out", code=1)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {other.url}/nowhere/v1/embeddings answered 404")
    assert last.endswith("is the address right, and --dialect?")
    assert not (tmp_path / "out").exists()
