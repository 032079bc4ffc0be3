"""The examples of docs/corpus.md that need no cluster run as they are."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duovec import Client
from server import FAKE, ROOT, ran, running

TEXTS = [f"the cat number {number} sleeps" for number in range(3000)]
SERVERS = ("http://10.0.0.1:8080", "http://10.0.0.2:8080")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server."""
    with running(*FAKE) as server:
        yield server.url


def example(package: str) -> str:
    """The example that imports a package."""
    page = (ROOT / "docs/corpus.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    [found] = [block for block in blocks if re.search(rf"^(import|from) {package}\b", block, re.M)]
    return found


@pytest.mark.parametrize("package", ["daft", "datasets"])
def test_an_example_writes_both_vectors_of_every_text(
    package: str, url: str, tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    rows = {"id": list(range(len(TEXTS))), "text": TEXTS}
    pq.write_table(pa.table(rows), tmp_path / "corpus/a.parquet")
    # The length of the tiny model's vectors. The address comes after it: its port may hold "384".
    script = example(package).replace("384", "8")
    for server in SERVERS:
        assert server in script
        script = script.replace(server, url)
    apart = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    ran(sys.executable, "-c", script, cwd=tmp_path, env=apart)
    [out] = tmp_path.glob("vectors*")
    found = pq.read_table(out)
    if "vectors" in found.column_names:
        found = found.flatten().rename_columns(
            [name.removeprefix("vectors.") for name in found.flatten().column_names]
        )
    rows_found = found.sort_by("id").to_pylist()
    assert [row["text"] for row in rows_found] == TEXTS
    with Client(url) as client:
        dense, sparse = client.both(TEXTS, input_type="passage")
    np.testing.assert_allclose([row["dense"] for row in rows_found], dense, atol=1e-6)
    for row, expected in zip(rows_found, sparse, strict=True):
        assert row["sparse_indices"] == expected.indices.tolist()
        assert row["sparse_values"] == pytest.approx(expected.values.tolist())
