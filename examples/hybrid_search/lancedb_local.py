#!/usr/bin/env python3
"""Search with LanceDB in a folder: sixty texts in twelve languages, five questions.

LanceDB has no index for sparse vectors, so this is dense search only. Needs
`pip install ./clients/python lancedb` and a server (`scripts/serve.sh`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lancedb

import material
from duovec import Client
from material import HITS, Hit, Search


@contextmanager
def opened(client: Client, folder: Path) -> Iterator[Search]:
    """The table, filled."""
    entries = material.texts()
    dense = client.dense([entry["text"] for entry in entries], input_type="passage")
    rows = [{"vector": row, **entry} for row, entry in zip(dense, entries, strict=True)]
    table = lancedb.connect(folder).create_table("texts", rows)

    def search(question: str) -> list[Hit]:
        (vector,) = client.dense([question], input_type="query")
        found = table.search(vector).distance_type("dot").limit(HITS).to_list()
        return [Hit(1 - row["_distance"], row["lang"], row["text"]) for row in found]

    yield search


if __name__ == "__main__":
    material.run(__doc__, opened)
