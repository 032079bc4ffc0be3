"""examples/ray/embed_corpus.py on a real Ray cluster of two nodes, one of which is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray.cluster_utils import Cluster

from duovec import Client
from server import BINARY, FAKE, ROOT, TINY, ran, running, wait_for

SCRIPT = ROOT / "examples/ray/embed_corpus.py"
# One worker that takes 10 ms for each text: a part takes a quarter of a second.
ENGINE = ["--engine", "fake", "--fake-run-ms", "10", "--workers", "1"]
ENGINE += ["--max-batch-tokens", "8"]
FILES, GROUPS, GROUP_ROWS, PART_ROWS = 2, 3, 110, 25
ROWS, PARTS = FILES * GROUPS * GROUP_ROWS, FILES * GROUPS * 5
# Every seventh row has no text, and neither has any row of one part.
WITH_TEXT = [at for at in range(ROWS) if at % 7 and not 2 * PART_ROWS <= at < 3 * PART_ROWS]
# A killed node is missed within a second and a half.
SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
DONE = re.compile(r"\d+ of \d+: ")
# In the command line of every server that the test starts.
MARK = f"mark-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Its head. Each node has room for one actor, as one with a single GPU has: the actor of a
    node that is lost waits until another actor has nothing left to do."""
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SOON}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two files with a column beside the texts."""
    folder, files = tmp_path_factory.mktemp("corpus"), []
    for number in range(FILES):
        first = number * GROUPS * GROUP_ROWS
        ids = range(first, first + GROUPS * GROUP_ROWS)
        texts = [None if at not in WITH_TEXT else f"the cat number {at} sleeps" for at in ids]
        files.append(str(folder / f"{number}.parquet"))
        table = pa.table({"id": list(ids), "text": texts})
        pq.write_table(table, files[-1], row_group_size=GROUP_ROWS)
    return files


def command(files: list[str], out: Path, address: str, *more: str) -> list[str]:
    typed = [sys.executable, str(SCRIPT), *files, "--out", str(out), "--address", address]
    typed += ["--duovec", BINARY, "--package", TINY, "--part-rows", str(PART_ROWS), *more]
    return [*typed, "--", *ENGINE, "--model-aliases", MARK]


def servers_left() -> list[int]:
    """Processes of servers that the actors have started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if MARK.encode() in words and b"--unix-socket" in words and b"serve" in words:
            found.append(int(path.parent.name))
    return found


def summary(planned: int, parts: int, out: Path) -> str:
    """The last line."""
    rows = sum(at < planned for at in WITH_TEXT)
    return f"{rows} rows in {parts} parts in {out}; {planned - rows} had no text\n"


def check_rows(out: Path) -> None:
    """Every row with a text is there once, as it was, with the vectors of its text."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("*.parquet"))])
    rows = sorted(table.to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == WITH_TEXT
    assert table.schema.field("dense").type == pa.list_(pa.float32(), 8)
    with running(*FAKE) as server, Client(server.url) as client:
        dense, sparse = client.both([row["text"] for row in rows], input_type="passage")
    np.testing.assert_allclose([row["dense"] for row in rows], dense, atol=1e-6)
    for row, expected in zip(rows, sparse, strict=True):
        assert row["text"] == f"the cat number {row['id']} sleeps"
        assert row["sparse_indices"] == expected.indices.tolist()
        assert row["sparse_values"] == pytest.approx(expected.values.tolist())


def test_a_node_that_is_killed_loses_no_row_and_doubles_none(
    cluster: Cluster, corpus: list[str], tmp_path: Path
) -> None:
    node, out = cluster.add_node(num_cpus=1), tmp_path / "out"
    seen: set[str] = set()
    with subprocess.Popen(
        command(corpus, out, cluster.address), stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        lines = iter(driver.stdout)
        assert next(lines) == f"{PARTS} of {PARTS} parts are to be made\n"
        # Ray's own lines stand between them.
        for line in filter(DONE.match, lines):
            seen.add(line.split()[-1])
            if len(seen) == 2:
                break
        assert len(seen) == 2, "both nodes work"
        assert len(list(out.glob("*.parquet"))) < PARTS - 4, "it is in the middle"
        cluster.remove_node(node, allow_graceful=False)
        rest = list(lines)
    assert driver.returncode == 0, rest
    assert summary(ROWS, PARTS, out) in rest
    names = {path.name for path in out.iterdir()}
    assert len(names) == PARTS + 1 and "job.json" in names, "nothing unfinished is left"
    check_rows(out)
    wait_for("all servers of actors end", lambda: not servers_left())

    # What was made is left alone, and what is missing is made the same.
    parts = sorted(out.glob("*.parquet"))
    before = {path: path.stat().st_mtime_ns for path in parts}
    bytes_before = parts[3].read_bytes()
    parts[3].unlink()
    done = ran(*command(corpus, out, cluster.address))
    assert done.stdout.startswith(f"1 of {PARTS} parts are to be made\n")
    assert parts[3].read_bytes() == bytes_before
    after = {path: path.stat().st_mtime_ns for path in parts}
    assert {path for path in parts if before[path] != after[path]} == {parts[3]}


def test_a_server_that_is_killed_is_started_again(
    cluster: Cluster, corpus: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    python, script, *words = command(corpus[:1], out, cluster.address)
    # As seen from a folder in which no actor works.
    words = [os.path.relpath(one, tmp_path) if os.path.isabs(one) else one for one in words]
    with subprocess.Popen(
        [python, script, *words], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as driver:
        assert driver.stdout is not None
        lines = iter(driver.stdout)
        next(line for line in lines if line.startswith("2 of "))
        killed = servers_left()
        assert killed
        for pid in killed:
            os.kill(pid, 9)
        rest = list(lines)
    assert driver.returncode == 0, rest
    assert summary(ROWS // 2, PARTS // 2, out) in rest
    ids = [pq.read_table(path, columns=["id"])["id"].to_pylist() for path in out.glob("*.parquet")]
    assert sorted(at for some in ids for at in some) == [at for at in WITH_TEXT if at < ROWS // 2]


def test_a_server_that_does_not_start_ends_with_its_reason(
    cluster: Cluster, corpus: list[str], tmp_path: Path
) -> None:
    typed = command(corpus, tmp_path / "out", cluster.address)
    typed[typed.index(TINY)] = "/nonexistent"
    done = ran(*typed, code=1)
    assert "/nonexistent is not a package" in done.stderr.splitlines()[-2]
    assert done.stderr.splitlines()[-1].startswith("finished parts are kept")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--text", "body"], "has no column 'body' of texts; it has id, text"),
        (["--text", "id"], "has no column 'id' of texts"),
        (["--input-type", "query"], "whose input_type was 'passage' and not 'query'"),
    ],
)
def test_bad_input_is_one_sentence(
    corpus: list[str], tmp_path: Path, more: list[str], said: str
) -> None:
    (tmp_path / "job.json").write_text('{"text": "text", "input_type": "passage"}')
    [line] = ran(*command(corpus, tmp_path, "nowhere", *more), code=1).stderr.splitlines()
    assert said in line


def test_a_full_disk_leaves_no_half_job(corpus: list[str], tmp_path: Path) -> None:
    # A file of no byte is the longest that may be written.
    ran("prlimit", "--fsize=0", *command(corpus, tmp_path, "nowhere"), code=1)
    assert list(tmp_path.iterdir()) == []


def test_a_corrupt_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 this is no Parquet")
    done = ran(*command([str(path)], tmp_path / "out", "nowhere"), code=1)
    [line] = done.stderr.splitlines()
    assert line.startswith(f"{path} cannot be read as Parquet:")
    assert not (tmp_path / "out").exists()


def test_another_model_in_the_same_folder_is_refused_and_a_new_plan_is_not(tmp_path: Path) -> None:
    # Without rows there is nothing to do for a cluster.
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), file)
    package = shutil.copytree(TINY, tmp_path / "package")
    manifest = package / "manifest.json"
    typed = command([str(file)], tmp_path / "out", "nowhere")
    typed[typed.index(TINY)] = str(package)
    ran(*typed)
    about = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(about | {"plans": [{"file": "a.plan"}]}))
    ran(*typed)
    graph = about["files"]["model.onnx"] | {"sha256": "0"}
    for other in (
        {"files": about["files"] | {"model.onnx": graph}},
        {"files": about["files"] | {"questions.f32": graph}},
        # An export with other flags changes the manifest alone.
        {"prompts": {"passage": "passage: "}},
        {"default_prompt": "passage"},
        {"max_input_tokens": 16},
        {"tokenizer": {"normalization": "huggingface"}},
        {"sparse": about["sparse"] | {"dropped_token_ids": [0]}},
    ):
        manifest.write_text(json.dumps(about | other))
        [line] = ran(*typed, code=1).stderr.splitlines()
        assert "belongs to another run, whose model was 'tiny-test, revision 1, " in line
