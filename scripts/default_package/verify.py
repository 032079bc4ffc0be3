"""Every figure the default package must reach before it is kept.

Each check prints one line to stderr and raises PackageError when its limit is missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers

from . import manifest
from . import texts as sentences
from .checks import Shape, check_neighbours, cosine, demand, sparse_distance, unfused
from .command import say
from .description import DEFAULT_PACKAGE
from .reference import ReferenceEncoder, ReferenceTokenizer, Vectors, select_sparse
from .rows import Found
from .runtime import Runtime
from .sparse_head import SparseHead
from .tokenizer import compare_normalization
from .weights import Model
from .wheel import Unpacked
from .wheel_engine import WheelEngine, runs_here

WHEEL_COSINE_MIN = 0.999
"""The wheel's engine rounds activations to 8 bits, which alone costs about 0.0001."""
REFERENCE_COSINE_MIN = 0.99999
REFERENCE_WEIGHT_MAX = 0.002
"""Largest difference of a token weight; it comes from the f16 rounding of the word table."""
NEWER_CHARACTERS_MAX = 173
"""Characters younger than XLM-R that today's nmt_nfkc folds and the wheel's table leaves alone;
the vocabulary has none of them."""
SEVERAL = 3
"""The reference runs on every third text, which takes seconds instead of half a minute."""


@dataclass(frozen=True)
class Subject:
    """What is checked, and against what."""

    model: Model
    head: SparseHead
    unpacked: Unpacked
    folder: Path


def run_all(subject: Subject) -> None:
    """All checks, the cheap ones first."""
    texts = sentences.load()
    engine = WheelEngine(subject.unpacked) if runs_here() else None
    if engine is None:
        say("the wheel's engine is for Linux on x86-64: not compared on this machine")
    check_normalization(subject)
    sequences = check_tokens(subject, texts, engine)
    runtime = Runtime(subject.folder / "model.onnx", "f32")
    rows = runtime.run(sequences, subject.model.vocabulary.pad, manifest.POOLING)
    if engine is not None:
        check_wheel_engine(texts, rows, engine)
    check_reference(subject, sequences, rows)
    vocabulary, tokens_max = subject.model.vocabulary, subject.model.config.positions
    shape = Shape(len(vocabulary.pieces), vocabulary.pad, tokens_max, manifest.POOLING)
    check_neighbours(runtime, shape)
    check_fusion(runtime)
    check_word_table(runtime)
    check_canary_files(subject.folder, runtime)
    report_low_precision(subject, sequences, rows)


def check_normalization(subject: Subject) -> None:
    """tokenizer.json folds every character as the wheel's table does, newer ones apart."""
    serialized = (subject.folder / "tokenizer.json").read_text(encoding="utf-8")
    table = subject.model.vocabulary.normalization
    different = compare_normalization(subject.model.vocabulary, serialized)
    wrong = [hex(ord(c)) for c in different if c in table]
    demand(not wrong, f"these characters are normalized in another way: {wrong[:8]}")
    newer = len(different)
    demand(newer <= NEWER_CHARACTERS_MAX, f"{newer} characters are normalized that should not be")
    say(f"normalization: {len(table)} folded characters agree; {newer} newer ones are folded too")


def check_tokens(
    subject: Subject, texts: list[sentences.Text], engine: WheelEngine | None
) -> list[list[int]]:
    """Ids of tokenizer.json equal the reference's, counts the wheel's; returns the query ids."""
    tokenizer = tokenizers.Tokenizer.from_file(str(subject.folder / "tokenizer.json"))
    reference = ReferenceTokenizer(subject.model)
    queries: list[list[int]] = []
    for text in texts:
        for kind, prompt in DEFAULT_PACKAGE.prompts.items():
            ids = tokenizer.encode(prompt + text.text).ids
            beginning = f"{text.lang} {text.text[:30]!r}"
            demand(ids == reference.encode(prompt + text.text), f"token ids of {beginning}")
            demand(len(ids) <= subject.model.config.positions, f"too many tokens in {beginning}")
            if engine is not None:
                count = engine.token_count(text.text, is_query=kind == "query")
                demand(len(ids) == count, f"{len(ids)} tokens, the wheel has {count}: {beginning}")
            if kind == "query":
                queries.append(ids)
    say(f"tokens: ids of {len(texts)} texts with both prompts agree, 0 differences")
    return queries


def check_wheel_engine(texts: list[sentences.Text], rows: list[Found], engine: WheelEngine) -> None:
    """Dense vectors against the engine the weights were published with."""
    cosines = [
        cosine(row.dense, engine.embed(text.text, is_query=True))
        for text, row in zip(texts, rows, strict=True)
    ]
    worst = int(np.argmin(cosines))
    say(
        f"wheel's engine: cosine min {min(cosines):.6f}, median {np.median(cosines):.6f} "
        f"over {len(cosines)} texts in {len({text.lang for text in texts})} languages"
    )
    demand(
        cosines[worst] >= WHEEL_COSINE_MIN,
        f"cosine {cosines[worst]:.6f} to the wheel's engine for {texts[worst].text[:40]!r}",
    )


def check_reference(subject: Subject, sequences: list[list[int]], rows: list[Found]) -> None:
    """Both outputs against the numpy forward pass."""
    encoder = ReferenceEncoder(subject.model, subject.head)
    cosines, distances, weights = [], [], []
    for i in range(0, len(sequences), SEVERAL):
        expected = encoder.run(sequences[i])
        cosines.append(cosine(rows[i].dense, expected.dense))
        distances.append(float(np.abs(rows[i].dense - expected.dense).max()))
        weights.append(weight_distance(rows[i], expected))
    say(
        f"numpy reference: cosine min {min(cosines):.8f}, largest dense difference "
        f"{max(distances):.6f}, largest token weight difference {max(weights):.6f} "
        f"over {len(cosines)} texts"
    )
    demand(min(cosines) >= REFERENCE_COSINE_MIN, "the dense output is not the reference's")
    demand(max(weights) <= REFERENCE_WEIGHT_MAX, "the token weights are not the reference's")


def weight_distance(row: Found, expected: Vectors) -> float:
    """Largest absolute difference of the token weights of one sequence."""
    return float(np.abs(row.token_weights - expected.token_weights).max())


def check_fusion(runtime: Runtime) -> None:
    """OpenVINO runs attention and GELU fused: no such node of their own is left."""
    left = unfused(runtime)
    demand(not left, f"OpenVINO runs {left} unfused")
    kinds = runtime.layer_operations()
    say(f"fusion: {kinds['FullyConnected']} matrix products, {kinds['Subgraph']} fused attentions")


def check_word_table(runtime: Runtime) -> None:
    """OpenVINO reads the word table as it is stored: no compiled model has a copy in f32."""
    held = runtime.constant_types().get("word.table")
    demand(held == "f16", f"OpenVINO holds the word table in {held}, not in f16")


def check_canary_files(folder: Path, runtime: Runtime) -> None:
    """The manifest's golden values, read back from the file, and its text's token ids."""
    content = manifest.read(folder)
    canary = content["canary"]
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    demand(tokenizer.encode(canary["text"]).ids == canary["token_ids"], "ids of the canary")
    [row] = runtime.run([canary["token_ids"]], content["pad_token_id"], content["pooling"])
    similarity = cosine(row.dense, np.asarray(canary["dense"]))
    ids, weights = select_sparse(
        canary["token_ids"], row.token_weights, set(content["sparse"]["dropped_token_ids"])
    )
    expected = {int(token_id): weight for token_id, weight in canary["sparse"]}
    distance = sparse_distance(dict(zip(ids, weights, strict=True)), expected)
    say(f"canary: cosine {similarity:.8f}, largest sparse difference {distance:.6f}")
    demand(similarity >= REFERENCE_COSINE_MIN, "dense vector of the canary")
    demand(distance <= REFERENCE_WEIGHT_MAX, "sparse weights of the canary")


def report_low_precision(subject: Subject, sequences: list[list[int]], rows: list[Found]) -> None:
    """What bf16 costs on this CPU; the manifest's tolerances rest on these figures."""
    if not Runtime.supports("bf16"):
        say("bf16: this CPU has none, not measured")
        return
    runtime = Runtime(subject.folder / "model.onnx", "bf16")
    low = runtime.run(sequences, subject.model.vocabulary.pad, manifest.POOLING)
    pairs = list(zip(low, rows, strict=True))
    cosines = [cosine(a.dense, b.dense) for a, b in pairs]
    weights = [float(np.abs(a.token_weights - b.token_weights).max()) for a, b in pairs]
    say(
        f"bf16 against f32: cosine min {min(cosines):.6f}, median {np.median(cosines):.6f}; "
        f"largest token weight difference {max(weights):.4f}, median {np.median(weights):.4f}"
    )
    demand(all(bool(np.isfinite(row.dense).all()) for row in low), "bf16 gives NaN")
