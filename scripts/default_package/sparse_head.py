"""The sparse head: one weight for each hidden unit and a bias, kept in sparse_head.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .errors import PackageError

PATH = Path(__file__).with_name("sparse_head.json")


@dataclass(frozen=True)
class SparseHead:
    """`relu(weights . hidden + bias)` is the lexical weight of one position."""

    weights: list[float]
    bias: float
    method: str
    """One sentence: how it was made."""


def load(path: Path = PATH) -> SparseHead:
    """Reads the file that `train_sparse_head.py` wrote."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return SparseHead(stored["weights"], stored["bias"], stored["method"])
    except FileNotFoundError as error:
        raise PackageError(
            f"{path} is missing: run scripts/research/train_sparse_head.py first"
        ) from error
    except (json.JSONDecodeError, KeyError) as error:
        raise PackageError(f"{path} is not a sparse head: {error}") from error
