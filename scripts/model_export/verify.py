"""Runs the written package with OpenVINO and compares it with the numpy reference.

Each check prints one line to stderr and raises PackageError when its limit is missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from default_package import manifest
from default_package.checks import (
    Shape,
    check_neighbours,
    cosine,
    demand,
    sparse_distance,
    unfused,
)
from default_package.command import say
from default_package.reference import Vectors, select_sparse
from default_package.rows import Found
from default_package.runtime import Runtime

from .choices import Precision
from .reference import ExportReference
from .vocabulary import Vocabulary

TEXTS = ["What is a lexical weight?", "Ein kurzer Satz."]
"""Beside the canary."""


@dataclass(frozen=True)
class Limits:
    """How far the package may be from the reference."""

    dense_cosine_min: float
    token_weight_max: float


LIMITS = {
    # Sums of f32 in another order.
    Precision.FP32: Limits(0.999999, 0.0005),
    # Weights rounded to f16; sums are f32 here.
    Precision.FP16: Limits(0.9999, 0.005),
    # The same with three bits fewer: e5-small's are within 0.99996 and 0.0092 on 159 texts.
    Precision.BF16: Limits(0.999, 0.02),
}


@dataclass(frozen=True)
class Expected:
    """What the reference said, computed before the package is loaded: both are large."""

    sequences: list[list[int]]
    vectors: list[Vectors]


def expect(vocabulary: Vocabulary, reference: ExportReference, tokens_max: int) -> Expected:
    """The reference's answers for TEXTS."""
    sequences = [vocabulary.encode_within(text, tokens_max)[1] for text in TEXTS]
    return Expected(sequences, [reference.run(ids) for ids in sequences])


def run_all(folder: Path, precision: Precision, expected: Expected) -> None:
    """All checks of the package in `folder`."""
    content = manifest.read(folder)
    runtime = Runtime(folder / "model.onnx", "f32")
    limits = LIMITS[precision]
    check_reference(runtime, expected, content, limits)
    check_neighbours(runtime, shape_of(content))
    check_canary(runtime, content, limits)
    report_fusion(runtime)


def shape_of(content: dict[str, Any]) -> Shape:
    """What the package's made-up texts keep to."""
    names = ("vocab_size", "pad_token_id", "max_input_tokens", "pooling")
    return Shape(*(content[name] for name in names))


def check_reference(
    runtime: Runtime, expected: Expected, content: dict[str, Any], limits: Limits
) -> None:
    """Both outputs, with all texts in one row."""
    rows = runtime.run(expected.sequences, content["pad_token_id"], content["pooling"])
    pairs = list(zip(rows, expected.vectors, strict=True))
    similarity = min(cosine(row.dense, vectors.dense) for row, vectors in pairs)
    distance = max(_weight_distance(row, vectors) for row, vectors in pairs)
    say(
        f"numpy reference: cosine min {similarity:.8f}, "
        f"largest token weight difference {distance:.6f}"
    )
    demand(similarity >= limits.dense_cosine_min, "the dense output is not the reference's")
    demand(distance <= limits.token_weight_max, "the token weights are not the reference's")


def _weight_distance(row: Found, vectors: Vectors) -> float:
    if not vectors.token_weights.any():
        return 0.0
    return float(np.abs(row.token_weights - vectors.token_weights).max())


def check_canary(runtime: Runtime, content: dict[str, Any], limits: Limits) -> None:
    """The manifest's golden numbers, read back from the file."""
    canary = content["canary"]
    [row] = runtime.run([canary["token_ids"]], content["pad_token_id"], content["pooling"])
    similarity = cosine(row.dense, np.asarray(canary["dense"]))
    distance = 0.0
    if content["sparse"]:
        dropped = set(content["sparse"]["dropped_token_ids"])
        ids, weights = select_sparse(canary["token_ids"], row.token_weights, dropped)
        golden = {int(token_id): weight for token_id, weight in canary["sparse"]}
        distance = sparse_distance(dict(zip(ids, weights, strict=True)), golden)
    say(f"canary: cosine {similarity:.8f}, largest sparse difference {distance:.6f}")
    demand(similarity >= limits.dense_cosine_min, "dense vector of the canary")
    demand(distance <= limits.token_weight_max, "sparse weights of the canary")


def report_fusion(runtime: Runtime) -> None:
    """Whether attention and GELU run fused here: slower when not, on some processors, not wrong."""
    left = unfused(runtime)
    say(f"fusion: OpenVINO runs {', '.join(left)} unfused here" if left else "fusion: complete")
