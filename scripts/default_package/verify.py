"""Runs the written package with OpenVINO and compares it with the numpy reference.

Each check prints one line to stderr and raises PackageError when its limit is missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import manifest
from .checks import (
    Limits,
    check_canary,
    check_neighbours,
    check_reference,
    check_word_table,
    shape_of,
    unfused,
)
from .choices import Precision
from .command import say
from .reference import ReferenceEncoder, Vectors
from .runtime import Runtime

TEXTS = ["What is a lexical weight?", "Ein kurzer Satz."]
"""Beside the canary."""
LIMITS = {
    # Sums of f32 in another order, and a word table that is rounded to f16.
    Precision.FP32: Limits(0.99999, 0.002),
    # All weights rounded to f16; sums are f32 here.
    Precision.FP16: Limits(0.9999, 0.005),
    # The same with three bits fewer: e5-small's are within 0.99996 and 0.0092 on 159 texts.
    Precision.BF16: Limits(0.999, 0.02),
}


@dataclass(frozen=True)
class Expected:
    """What the reference said, computed before the package is loaded: both are large."""

    sequences: list[list[int]]
    vectors: list[Vectors]


def expect(plan: manifest.Plan, reference: ReferenceEncoder) -> Expected:
    """The reference's answers for TEXTS."""
    tokens_max = plan.encoder.architecture.max_input_tokens
    sequences = [plan.vocabulary.encode_within(text, tokens_max)[1] for text in TEXTS]
    return Expected(sequences, [reference.run(ids) for ids in sequences])


def run_all(folder: Path, precision: Precision, expected: Expected) -> None:
    """All checks of the package in `folder`."""
    content = manifest.read(folder)
    runtime = Runtime(folder / "model.onnx", "f32")
    limits = LIMITS[precision]
    found = runtime.run(expected.sequences, content["pad_token_id"], content["pooling"])
    check_reference(found, expected.vectors, limits)
    check_neighbours(runtime, shape_of(content))
    check_canary(runtime, content, limits)
    if precision is Precision.FP32:
        check_word_table(runtime)
    # Slower when they do not run fused, on some processors, and not wrong.
    left = unfused(runtime)
    say(f"fusion: OpenVINO runs {', '.join(left)} unfused here" if left else "fusion: complete")
