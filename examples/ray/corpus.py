"""Parts of a corpus in Parquet: planning, reading, adding vectors, writing. Nothing of Ray."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duovec import Paired

VECTORS = ("dense", "sparse_indices", "sparse_values")
JOB_FILE = "job.json"
MODEL_FILES = ("model.onnx", "model.onnx.data", "tokenizer.json", "questions.f32")
MODEL_FACTS = ("prompts", "default_prompt", "max_input_tokens", "tokenizer", "pooling", "sparse")
"""What the manifest alone says of how texts become vectors."""
LONGEST_CHARS = 250_000
"""Below the bytes that a server takes, and far beyond the tokens that a model reads."""

Both = Callable[[list[str]], Paired]
"""Both vectors of each text."""


@dataclass(frozen=True)
class Part:
    """Some rows of a row group."""

    file: str
    group: int
    first: int
    rows: int

    @property
    def name(self) -> str:
        """Of its file in the output."""
        return f"{Path(self.file).stem}.{self.group:05}.{self.first:09}.parquet"


@dataclass(frozen=True)
class Job:
    """What is done to each part."""

    out: str
    text: str
    input_type: str
    command: tuple[str, ...]
    """Starts a server, but for its socket."""


def read(part: Part) -> pa.Table:
    """The part's rows."""
    group = pq.ParquetFile(part.file).read_row_group(part.group)
    return group.slice(part.first, part.rows)


def with_vectors(rows: pa.Table, column: str, both: Both) -> pa.Table:
    """The rows that have a text, with both vectors.

    Rows without one are left out: not every reader of Parquet takes a fixed-size list of nothing.
    """
    rows = rows.filter(pc.is_valid(rows[column]))
    texts = [text[:LONGEST_CHARS] for text in rows[column].to_pylist()]
    # One text tells how long the vectors are, where there is none.
    dense, sparse = both(texts or [""])
    dense, sparse = dense[: len(texts)], sparse[: len(texts)]
    ends = np.cumsum([0, *map(len, sparse)], dtype=np.int32)
    arrays = [
        pa.FixedSizeListArray.from_arrays(dense.reshape(-1), dense.shape[1]),
        pa.ListArray.from_arrays(ends, joined([one.indices for one in sparse], np.int32)),
        pa.ListArray.from_arrays(ends, joined([one.values for one in sparse], np.float32)),
    ]
    for name, array in zip(VECTORS, arrays, strict=True):
        rows = rows.append_column(name, array)
    return rows


def joined(arrays: list[np.ndarray], kind: type) -> np.ndarray:
    """All of them in a row; none of them, too."""
    return np.concatenate([np.zeros(0, kind), *arrays])


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """What is written to the path that it gives is at `path` when it is whole, also when two write
    it at once."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(table: pa.Table, path: Path) -> None:
    """The file is there when it is whole."""
    with whole(path) as unfinished:
        pq.write_table(table, unfinished, compression="zstd")


def sweep(out: Path) -> None:
    """Remove what processes that were killed have begun to write."""
    for name in ("*.parquet", JOB_FILE):
        for unfinished in out.glob(f".{name}.*"):
            unfinished.unlink(missing_ok=True)


def rows_in(out: Path, parts: list[Part]) -> int:
    """Rows of all parts, as they say themselves."""
    return sum(pq.read_metadata(out / part.name).num_rows for part in parts)


def planned(files: list[str], text: str, part_rows: int) -> list[Part]:
    """The parts of all files. Ends with a sentence where a file is not what it should be."""
    parts: list[Part] = []
    for file in sorted(files):
        try:
            found = pq.ParquetFile(file)
        except (OSError, pa.ArrowException) as error:
            sys.exit(f"{file} cannot be read as Parquet: {error}")
        schema = found.schema_arrow
        if text not in schema.names or not pa.types.is_unicode(schema.field(text).type):
            sys.exit(f"{file} has no column {text!r} of texts; it has {', '.join(schema.names)}")
        if taken := sorted(set(VECTORS) & set(schema.names)):
            sys.exit(f"{file} has a column {taken[0]!r}, which the output needs: rename it")
        for group in range(found.num_row_groups):
            rows = found.metadata.row_group(group).num_rows
            for first in range(0, rows, part_rows):
                parts.append(Part(str(file), group, first, min(part_rows, rows - first)))
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        sys.exit("two input files have the same name, so their parts would, too: rename one")
    return parts


def model_of(package: Path) -> str | None:
    """What the vectors of a package depend on, which plans and other precisions do not change."""
    try:
        manifest = json.loads((package / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # The server says what is wrong with it.
    files = manifest.get("files", {})
    digests = [files.get(name, {}).get("sha256") for name in MODEL_FILES]
    facts = [manifest.get(name) for name in MODEL_FACTS]
    digest = hashlib.sha256(json.dumps([digests, facts]).encode()).hexdigest()[:16]
    return f"{manifest.get('model_id')}, revision {manifest.get('revision')}, {digest}"


def claim(out: Path, about: dict[str, Any]) -> None:
    """Say what the output is of, or end with a sentence where it is of something else."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / JOB_FILE
    if not path.exists():
        with whole(path) as unfinished:
            unfinished.write_text(json.dumps(about, indent=1), encoding="utf-8")
        return
    before = json.loads(path.read_text(encoding="utf-8"))
    for name, now in about.items():
        if before.get(name) != now:
            was = before.get(name)
            sys.exit(
                f"{out} belongs to another run, whose {name} was {was!r} and not {now!r}: "
                "name another --out"
            )
