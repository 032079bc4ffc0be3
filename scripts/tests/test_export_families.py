"""Every family against its reference implementation, by what tests/fixtures/families has of that;
and the largest numbers in a graph's layers: those of its texts, and how near to fp16's end."""

import json
import shutil
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
from export_graphs import changed, encoder_of, written
from export_packages import RANDOM, made, manifest_of, random_model, run
from export_snapshots import TOKENIZER
from onnx import TensorProto
from program_files import SCRIPTS

from default_package import checks, reference, vocabulary
from default_package.checks import LIMITS, Runtime, batch, check_neighbours, room, sparse_distance
from default_package.choices import Precision
from default_package.encoder import Encoder
from default_package.reference import Found, ReferenceEncoder, attention, cosine
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


@pytest.fixture(scope="module", params=[*NAMES, *PAIRS, *WORDS])
def folder(request: pytest.FixtureRequest) -> Path:
    return FOLDERS / request.param


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return snapshots.open_encoder(folder)


@pytest.fixture(scope="module")
def runtime(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """Of the graph in f32."""
    return Runtime(written(encoder, Precision.FP32, tmp_path_factory.mktemp("graph")))


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
    folder: Path, encoder: Encoder, runtime: Runtime
) -> None:
    texts = expected_of(folder)
    longest = max(len(text["ids"]) for text in texts)
    assert longest == encoder.architecture.max_input_tokens
    pooling = encoder.architecture.pooling.value
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


def test_no_text_of_any_family_sees_another_one(runtime: Runtime, encoder: Encoder) -> None:
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


TEXTS = [[0, 5, 6, 7, 8, 2], [0, 9, 10, 11, 12, 13, 2]]


def numbers_of(encoder: Encoder, precision: Precision, folder: Path) -> dict[str, list[float]]:
    return checks.measure(written(encoder, precision, folder), TEXTS, "cls")


@pytest.mark.parametrize("precision", list(Precision))
def test_scores_and_values_are_those_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision
) -> None:
    encoder, layers = encoder_of(), encoder_of().sizes.layers
    seen: list[tuple[float, float]] = []

    def watched(query: np.ndarray, key: np.ndarray, value: np.ndarray, added: float) -> np.ndarray:
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[2])
        seen.append((np.abs(scores).max(), np.abs(value).max()))
        return attention(query, key, value, added)

    monkeypatch.setattr(reference, "attention", watched)
    for ids in TEXTS:
        ReferenceEncoder(encoder).run(ids)
    expected = np.reshape(seen, (len(TEXTS), layers, 2)).max(axis=0)
    found = numbers_of(encoder, precision, tmp_path)
    near = 0.05 if precision is Precision.BF16 else 0.01
    np.testing.assert_allclose([found["scores"], found["values"]], expected.T, rtol=near)
    assert found.keys() == checks.KINDS.keys()
    assert all(len(each) == layers and min(each) > 0 for each in found.values())


def test_numbers_near_the_end_of_fp16_are_told_with_what_to_do(tmp_path: Path) -> None:
    def loud(name: str, value: np.ndarray) -> np.ndarray:
        return value * 20_000.0 if name == "l1.fo.w" else value

    calm, found = (
        numbers_of(encoder, Precision.FP32, tmp_path)
        for encoder in (encoder_of(), changed(encoder_of(), loud))
    )
    assert found["feed_forward"][1] > checks.FP16_LARGEST / checks.ROOM
    assert found["feed_forward"][0] == calm["feed_forward"][0]
    about, advice = checks.told({"texts": 2} | found)
    assert f"feed_forward {found['feed_forward'][1]:g} in layer 1" in about
    assert "--bf16-of-package" in advice
    [about] = checks.told({"texts": 2} | calm)


def test_texts_are_cut_to_what_the_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "TEXTS", SCRIPTS / "default_package/texts.jsonl")
    words = vocabulary.read(TOKENIZER, 1)
    for tokens_max in (20, 5_000):
        *sentences, together = checks.corpus(words, tokens_max)
        assert len(sentences) > 100 and max(map(len, sentences)) <= tokens_max
        assert len(together) == min(tokens_max, checks.LONG_TOKENS)
        assert all((ids[0], ids[-1]) == (words.bos, words.eos) for ids in (*sentences, together))


def test_a_package_without_the_numbers_gets_them_with_its_graph_in_16_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    assert checks.LARGEST not in made(out, *RANDOM, "--precision", "fp32", "--skip-verify")
    for _ in range(2):
        assert run("--fp16-of-package", out) == 0
        assert manifest_of(out)[checks.LARGEST].keys() == {"texts", *checks.KINDS}
        assert "largest numbers over 17 texts: scores" in capsys.readouterr().err
        # The second time it is read.
        monkeypatch.delattr(checks, "measure", raising=False)


def test_a_text_that_a_cpu_cannot_run_in_time_has_no_golden_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LONGEST_MAX", 117)
    for places, has_some in ((120, False), (119, True)):
        manifest = made(tmp_path / "out", *random_model(positions=places), "--precision", "fp32")
        assert (checks.LONGEST in manifest["canary"]) == has_some


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_all_numbers_that_graphs_in_fp16_round_are_measured(tmp_path: Path, family: str) -> None:
    encoder = snapshots.open_encoder(FOLDERS / family)
    model = onnx.load(written(encoder, Precision.FP16, tmp_path))
    rounded = {
        node.input[0].removesuffix(".exact")
        for node in model.graph.node
        if node.op_type == "Cast"
        and node.attribute[0].i == TensorProto.FLOAT16
        and node.input[0].startswith("layer")
    }
    assert "layer0.ffn.norm" in rounded
    # Shares of an attention are at most one.
    left = {name for name in rounded if not checks.place_of(name)}
    assert {name.split(".")[-1] for name in left} == {"shares"}
