"""Packages with lexical weights of any words, and those whose questions have a table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import numpy as np
import pytest
from export_graphs import written
from export_packages import check_files, made, refusal, run
from export_snapshots import change, copied

from default_package import checks
from default_package.checks import Runtime, sparse_distance
from default_package.choices import Pooling, Precision
from default_package.encoder import Words
from default_package.errors import PackageError
from default_package.reference import ReferenceEncoder
from families import BERT
from fixtures import FAMILIES
from model_export import modules, sentence, snapshot, stored
from quantization.score import Package

TABLE = "idf.json"
POOLING = "document_1_SpladePooling/config.json"
MODULE = "sentence_bert_config.json"
STATIC = "query_0_SparseStaticEmbedding"
SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 442}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied("distilbert-words", tmp_path)


def unchecked(folder: Path, *flags: str) -> dict[str, Any]:
    """The manifest of a package that is not run."""
    out = folder.parent / "out"
    return made(out, "--model", folder, "--precision", "fp32", "--skip-verify", *flags)


def refused(folder: Path, *flags: str) -> str:
    return refusal("--model", folder, "--out", folder.parent / "out", *flags)


def test_the_package_weighs_words_as_transformers_does(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = made(out, "--model", folder, "--precision", "fp32")
    check_files(out)
    assert (manifest["kind"], manifest["pooling"], manifest["sparse"]["words"]) == (
        "sparse",
        "mean",
        443,
    )
    assert manifest["outputs"] == {"dense": "float32", "word_weights": "float32"}
    assert manifest["canary"]["longest"].keys() == {"tokens", "dense", "sparse"}
    assert manifest["sources"]["sparse"] == f"{POOLING}, activation_function; questions: {TABLE}"
    texts = json.loads((folder / "expected.json").read_text())["texts"]
    runtime = Runtime(out / "model.onnx")
    found = runtime.run([text["ids"] for text in texts], "mean")
    for text, one in zip(texts, found, strict=True):
        assert one.words is not None
        silent = SPECIAL.values()
        expected = {w: v for w, v in enumerate(text["words"]) if v > 0.0 and w not in silent}
        assert sparse_distance(one.words, expected) <= 1e-4
    with pytest.raises(PackageError, match="is a sparse model: only graphs of vectors"):
        Package.load(out)
    # A graph that gives the weights of other words is found.
    manifest["canary"]["sparse"][0][0] += 1
    with pytest.raises(PackageError, match="sparse weights of the canary"):
        checks.check_canary(runtime, manifest, checks.LIMITS[Precision.FP32])


def test_questions_have_the_weights_of_the_table(folder: Path, tmp_path: Path) -> None:
    assert unchecked(folder)["sparse"]["questions"] == "questions.f32"
    found = np.fromfile(tmp_path / "out/questions.f32", "<f4")
    table = json.loads((folder / TABLE).read_text())
    ids = json.loads(snapshots.TOKENIZER.read_text())["model"]["vocab"]
    assert found.shape == (443,)
    for at, (piece, _) in enumerate(ids):
        expected = 0.0 if piece in SPECIAL else table[piece]
        assert found[at] == np.float32(expected)
    # A module with numbers of its own wins, and may be shorter than the vocabulary.
    weights = np.arange(440, dtype=np.float32)
    snapshots.write_safetensors(folder / STATIC / "model.safetensors", {"weight": weights})
    unchecked(folder)
    found = np.fromfile(tmp_path / "out/questions.f32", "<f4")
    assert (found[3], found[439], found[440]) == (0.0, 439.0, 0.0)


def test_a_model_without_modules_is_one_of_words_when_it_is_said_so(tmp_path: Path) -> None:
    folder = copied("distilbert-words", tmp_path)
    for name in ("modules.json", "router_config.json"):
        (folder / name).unlink()
    with pytest.raises(PackageError, match="or splade for lexical weights"):
        sentence.read(folder)
    said = sentence.read(folder, Pooling.SPLADE)
    assert said.splade == modules.Splade(1, folder / TABLE)
    (folder / TABLE).unlink()
    assert sentence.read(folder, Pooling.SPLADE).splade == modules.Splade(1, None)
    manifest = unchecked(folder, "--pooling", "splade")
    assert manifest["sources"]["sparse"] == "--pooling"
    assert "questions" not in manifest["sparse"]


def test_the_strongest_words_stay(tmp_path: Path) -> None:
    encoder = snapshots.open_encoder(FAMILIES / "bert-words")
    assert encoder.architecture.words is not None
    few = replace(encoder.architecture.words, kept=7, silent=(5, 9))
    encoder = replace(encoder, architecture=replace(encoder.architecture, words=few))
    runtime = Runtime(written(encoder, Precision.FP32, tmp_path))
    for ids in ([4, 5, 6], list(range(9, 60))):
        expected, [found] = ReferenceEncoder(encoder).run(ids).words, runtime.run([ids], "mean")
        assert found.words and expected and found.words.keys() == expected.keys()
        assert len(expected) == 7 and not expected.keys() & {5, 9}
        assert sparse_distance(found.words, expected, 7) <= 1e-4


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_packages_of_16_bits_pass_their_checks(tmp_path: Path, precision: str) -> None:
    model = snapshots.write(tmp_path / "model", BERT, words=Words(256)).folder
    flags = ["--model", model, "--pooling", "splade", "--precision"]
    manifest = made(tmp_path / "own", *flags, precision)
    assert manifest["outputs"] == {"dense": "float32", "word_weights": "float32"}
    made(tmp_path / "added", *flags, "fp32")
    assert run(f"--{precision}-of-package", tmp_path / "added") == 0


def test_an_absent_word_may_weigh_as_much_as_the_weakest_of_a_full_list() -> None:
    full = {1: 3.0, 2: 1.0}
    assert sparse_distance(full, {1: 3.0, 4: 1.0}, 2) == 0.0
    assert sparse_distance(full, {1: 3.0, 4: 1.5}, 2) == 0.5
    assert sparse_distance(full, {1: 3.0, 4: 1.0}) == 1.0
    assert sparse_distance({1: 3.0}, full, 2) == 1.0


def test_vocabularies_of_several_parts_are_scored_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("default_package.graph.COLUMNS", 100)
    encoder = snapshots.open_encoder(FAMILIES / "distilbert-words")
    runtime = Runtime(written(encoder, Precision.FP32, tmp_path))
    ids = [4, 200, 400, 300, 9, 9]
    expected, [found] = ReferenceEncoder(encoder).run(ids).words, runtime.run([ids], "mean")
    assert found.words and expected and max(found.words) > 400
    assert sparse_distance(found.words, expected, 443) <= 1e-4


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_shapes_are_enough_to_check_one_whose_weights_are_not_there(
    tmp_path: Path, family: str
) -> None:
    folder = copied(f"{family}-words", tmp_path)
    headers = snapshots.headers(folder)
    said = sentence.read(folder)
    snapshot.open_encoder(folder, said, headers)
    first = {"bert": "cls.predictions.transform.dense", "distilbert": "vocab_transform"}[family]
    less = {key: one for key, one in headers.items() if key != f"{first}.bias"}
    with pytest.raises(PackageError, match=f"the weights lack the tensor {first}.bias"):
        snapshot.open_encoder(folder, said, less)


def test_the_bias_of_words_has_either_of_its_names(tmp_path: Path) -> None:
    folder = copied("bert-words", tmp_path)
    whole = stored.read(folder / "model.safetensors")
    names = {"cls.predictions.bias": "cls.predictions.decoder.bias"}
    renamed = {names.get(name, name): one for name, one in whole.items()}
    said = sentence.read(folder)
    found = snapshot.open_encoder(folder, said, renamed)
    bias = whole["cls.predictions.bias"].read()
    np.testing.assert_array_equal(found.tensor("words.b"), bias)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (POOLING, {"pooling_strategy": "sum"}, "has pooling_strategy 'sum': only 'max'"),
    (POOLING, {"activation_function": "gelu"}, "has activation_function 'gelu': only relu or"),
    (POOLING, {"temperature": 2}, "has temperature 2: nobody here understands it"),
    (MODULE, {"transformer_task": "feature-extraction"}, "has transformer_task"),
    (
        "config_sentence_transformers.json",
        {"model_type": "SentenceTransformer"},
        "only SparseEncoder, a model of lexical weights",
    ),
    ("router_config.json", {"structure": {"query": []}}, "lacks 'document': routes for query"),
    (
        "router_config.json",
        {"structure": {"query": [""], "document": ["", "document_1_SpladePooling"]}},
        "has the modules MLMTransformer: only SparseStaticEmbedding can be served",
    ),
    (
        "router_config.json",
        {"structure": {"query": [STATIC], "document": [STATIC]}},
        "only Transformer or MLMTransformer and SpladePooling can be served",
    ),
    (
        "router_config.json",
        {"types": {STATIC: "own.SparseStaticEmbedding", "": "", "document_1_SpladePooling": ""}},
        "has the type 'own.SparseStaticEmbedding', code of the model's own",
    ),
    ("config.json", {"model_type": "mpnet"}, "SPLADE models of bert, distilbert can be exported"),
]


@pytest.mark.parametrize(("name", "keys", "message"), REFUSED)
def test_what_cannot_be_honoured_is_named(
    folder: Path, name: str, keys: dict[str, Any], message: str
) -> None:
    change(folder / name, **keys)
    with pytest.raises(PackageError) as refused:
        sentence.read(folder)
    assert name in str(refused.value) and message in str(refused.value)


def test_the_network_of_documents_lies_in_the_root(folder: Path) -> None:
    types = {
        STATIC: "sentence_transformers.sparse_encoder.models.SparseStaticEmbedding",
        "document_0_T": "sentence_transformers.models.Transformer",
        "document_1_SpladePooling": "sentence_transformers.sparse_encoder.models.SpladePooling",
    }
    routes = {"query": [STATIC], "document": ["document_0_T", "document_1_SpladePooling"]}
    change(folder / "router_config.json", types=types, structure=routes)
    with pytest.raises(PackageError, match="its Transformer in 'document_0_T': only '' is read"):
        sentence.read(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "model.safetensors is missing, and idf.json too: questions have no weights"),
        ({}, "is no table of tokens of tokenizer.json and their weights"),
        ({"never": 1.0}, "is no table of tokens of tokenizer.json and their weights"),
        ({"a": "b"}, "is no table of tokens of tokenizer.json and their weights"),
        ({"a": float("inf")}, "has the weight inf for the token"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(
    folder: Path, content: Any, message: str
) -> None:
    (folder / TABLE).unlink()
    if content is not None:
        snapshots.put(folder / TABLE, content)
    assert message in refused(folder)


def test_a_table_of_numbers_has_one_for_each_token(folder: Path) -> None:
    for weight, message in [
        (np.ones(444, np.float32), "has the weight 1.0 for the token 443"),
        (np.ones((2, 2), np.float32), "lacks the tensor weight, with a number for each token"),
    ]:
        path = folder / STATIC / "model.safetensors"
        snapshots.write_safetensors(path, {"weight": weight})
        assert message in refused(folder)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-sparse"], "--no-sparse leaves nothing of"),
        (["--token-vectors"], "--token-vectors is for models of vectors"),
        (["--shorter-vectors", "8"], "which is a model of lexical weights: --shorter-vectors"),
    ],
)
def test_what_only_models_of_vectors_have_cannot_be_asked_for(
    folder: Path, flags: list[str], message: str
) -> None:
    assert message in refused(folder, *flags)
