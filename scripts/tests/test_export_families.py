"""Every family against its reference implementation: tests/fixtures/families has what that gave."""

import json
import shutil
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import pytest
from export_graphs import written

from default_package.checks import (
    LIMITS,
    Runtime,
    batch,
    check_neighbours,
    room,
    sparse_distance,
)
from default_package.choices import Precision
from default_package.encoder import Encoder
from default_package.reference import Found, ReferenceEncoder, cosine
from families import FAMILIES
from fixtures import FAMILIES as FOLDERS
from model_export import stored
from model_export.modules import KEPT, STEADY

COSINE_MIN = 0.999999
WEIGHT_MAX = 1e-4
GOLDEN_COSINE_MIN = 1 - 1e-9
"""Of our f64 to their f32: a wrong angle of a late position changes no more than 1e-7."""
HALF_WEIGHT_MAX = 0.05
"""In bf16: weights here reach 1, and random networks round more than trained ones."""
HALF_WORD_MAX = 0.25
"""Of words: logits here reach 15."""
NAMES = [family.name for family in FAMILIES]
PAIRS = [f"{family.name}-pairs" for family in FAMILIES if family.has("dense1")]
"""Cross-encoders."""
WORDS = [f"{family.name}-words" for family in FAMILIES if family.has("words")]
"""SPLADE models."""


@pytest.fixture(params=[*NAMES, *PAIRS, *WORDS])
def folder(request: pytest.FixtureRequest) -> Path:
    return FOLDERS / request.param


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    return snapshots.open_encoder(folder)


def expected_of(folder: Path) -> list[dict]:
    texts = json.loads((folder / "expected.json").read_text())["texts"]
    for text in texts:
        if "logit" in text:
            text["dense"] = np.array([text["logit"], STEADY]) / np.hypot(text["logit"], STEADY)
    return texts


def check(found: Found, expected: dict, cosine_min: float, weight_max: float) -> None:
    if "words" in expected:
        assert found.words is not None
        words = {word: weight for word, weight in enumerate(expected["words"]) if weight > 0.0}
        assert 10 < len(words) < len(expected["words"]), "nothing was left out"
        assert sparse_distance(found.words, words, KEPT) <= weight_max
        return
    assert cosine(found.dense, np.asarray(expected["dense"])) >= cosine_min
    assert np.linalg.norm(found.dense) == pytest.approx(1.0, abs=1e-5)
    if "logit" in expected:
        score = STEADY * found.dense[0] / found.dense[1]
        assert score == pytest.approx(expected["logit"], abs=weight_max)
    if "token_weights" in expected:
        weights = np.asarray(expected["token_weights"])
        assert weights.any() or len(weights) < 40, "only zeros prove nothing"
        np.testing.assert_allclose(found.token_weights, weights, atol=weight_max)
    if "token_vectors" in expected:
        assert found.token_vectors is not None
        width = found.token_vectors.shape[1]
        vectors = np.asarray(expected["token_vectors"]).reshape(-1, width)
        np.testing.assert_allclose(found.token_vectors[1:], vectors, atol=weight_max)


def test_every_family_has_a_model_and_every_model_a_family() -> None:
    assert sorted([*NAMES, *PAIRS, *WORDS]) == sorted(path.name for path in FOLDERS.iterdir())


def test_the_graph_gives_what_the_reference_implementation_gave(
    tmp_path: Path, folder: Path, encoder: Encoder
) -> None:
    texts = expected_of(folder)
    longest = max(len(text["ids"]) for text in texts)
    assert longest == encoder.architecture.max_input_tokens
    pooling = encoder.architecture.pooling.value
    runtime = Runtime(written(encoder, Precision.FP32, tmp_path))
    sequences = [text["ids"] for text in texts]
    for text, ids in zip(texts, sequences, strict=True):
        [found] = runtime.run([ids], pooling)
        check(found, text, COSINE_MIN, WEIGHT_MAX)
    # All of them in one row, then the longest between two others.
    length, every = sum(room(len(ids)) for ids in sequences), list(range(len(sequences)))
    for order in (every, [2, every[-1], 1]):
        packed = batch(sequences, [order, []], length, 1, pooling)
        for number, found in packed.split(runtime.run_rows(packed.inputs)).items():
            check(found, texts[number], COSINE_MIN, WEIGHT_MAX)


def test_the_golden_numbers_are_those_of_the_reference_implementation(
    folder: Path, encoder: Encoder
) -> None:
    reference = ReferenceEncoder(encoder)
    for text in expected_of(folder):
        check(reference.run(text["ids"]), text, GOLDEN_COSINE_MIN, WEIGHT_MAX)


def test_a_gte_may_have_no_types_of_tokens(tmp_path: Path) -> None:
    """As gte-base-en-v1.5. Each word has what the only type adds, so the vectors stay the same."""
    folder = shutil.copytree(FOLDERS / "gte", tmp_path / "gte")
    weights = folder / "model.safetensors"
    tensors = {name: one.read() for name, one in stored.read(weights).items()}
    words, types = (f"gte.embeddings.{kind}_embeddings.weight" for kind in ("word", "token_type"))
    tensors[words] = tensors[words] + tensors.pop(types)
    snapshots.write_safetensors(weights, tensors)
    snapshots.change(folder / "config.json", type_vocab_size=0)
    encoder = snapshots.open_encoder(folder)
    runtime = Runtime(written(encoder, Precision.FP32, tmp_path / "graph"))
    for text in expected_of(folder):
        check(ReferenceEncoder(encoder).run(text["ids"]), text, GOLDEN_COSINE_MIN, WEIGHT_MAX)
        [found] = runtime.run([text["ids"]], "cls")
        # These words are rounded to f16.
        check(found, text, COSINE_MIN, 10 * WEIGHT_MAX)


def test_no_text_of_any_family_sees_another_one(tmp_path: Path, encoder: Encoder) -> None:
    runtime = Runtime(written(encoder, Precision.FP32, tmp_path))
    check_neighbours(runtime, encoder.architecture)


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_graphs_in_16_bits_are_close(
    tmp_path: Path, folder: Path, encoder: Encoder, precision: Precision
) -> None:
    texts = expected_of(folder)
    sequences, pooling = [text["ids"] for text in texts], encoder.architecture.pooling.value
    found = Runtime(written(encoder, precision, tmp_path)).run(sequences, pooling)
    for one, text in zip(found, texts, strict=True):
        weight_max = HALF_WORD_MAX if encoder.architecture.words else HALF_WEIGHT_MAX
        check(one, text, LIMITS[precision]["dense_cosine_min"], weight_max)
