"""Packages of cross-encoders, and of models with lexical weights of any words, some of which have a
table for questions."""

import json
import shutil
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import numpy as np
import pytest
from export_graphs import written
from export_packages import check_files, made, refused, run, unchecked
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

TASK = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
TRANSFORMER = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}


@pytest.fixture
def scorer(tmp_path: Path) -> Path:
    return copied("xlm-roberta-pairs", tmp_path)


@pytest.mark.parametrize("family", ["xlm-roberta", "bert", "modernbert"])
def test_the_package_of_a_cross_encoder_is_one(family: str, tmp_path: Path) -> None:
    """test_export_families.py has what its graph gives."""
    folder, out = copied(f"{family}-pairs", tmp_path), tmp_path / "out"
    manifest = made(out, "--model", folder, "--precision", "fp32")
    check_files(out)
    assert (manifest["kind"], manifest["hidden_size"]) == ("cross-encoder", 2)
    pooling = "mean" if family == "modernbert" else "cls"
    assert (manifest["pooling"], manifest["sparse"], manifest["prompts"]) == (pooling, None, {})
    assert manifest["max_input_tokens"] == 160
    assert manifest["sources"]["pooling"] == "config.json, architectures"
    with pytest.raises(PackageError, match="is a cross-encoder model: only graphs"):
        Package.load(out)


def test_files_of_sentence_transformers_are_those_of_the_same_model(scorer: Path) -> None:
    plain = sentence.read(scorer)
    snapshots.put(scorer / "modules.json", [TRANSFORMER])
    change(scorer / "sentence_bert_config.json", **TASK, max_seq_length=20)
    about = {"model_type": "CrossEncoder", "prompts": {}, "activation_fn": "torch.nn.Sigmoid"}
    change(scorer / "config_sentence_transformers.json", **about)
    change(scorer / "config.json", sentence_transformers={"activation_fn": "torch.nn.Identity"})
    said = sentence.read(scorer)
    assert (said.scorer, said.pooling, said.tokens_max) == (plain.scorer, Pooling.CLS, 20)
    snapshots.open_encoder(scorer)


def test_a_cross_encoder_has_one_transformer(scorer: Path) -> None:
    snapshots.put(scorer / "modules.json", [TRANSFORMER, TRANSFORMER])
    with pytest.raises(PackageError, match="modules Transformer, Transformer: only Transformer"):
        sentence.read(scorer)


def test_a_classifier_with_a_pooling_is_a_model_of_vectors(scorer: Path) -> None:
    assert sentence.read(scorer, Pooling.MEAN).scorer is None
    snapshots.write_modules(scorer, Pooling.CLS)
    assert sentence.read(scorer).scorer is None


def test_a_classifier_of_texts_gives_no_lexical_weights(tmp_path: Path) -> None:
    folder = copied("gte-pairs", tmp_path)
    assert snapshots.open_encoder(folder, Pooling.CLS).head is None
    change(folder / "config.json", architectures=["GteForTokenClassification"])
    assert snapshots.open_encoder(folder, Pooling.CLS).head is not None


def separator(folder: Path) -> int | None:
    return snapshots.open_encoder(folder).architecture.separator


def test_the_tokenizer_says_whether_a_second_text_has_a_type_of_its_own(tmp_path: Path) -> None:
    folder = copied("bert-pairs", tmp_path)
    end = json.loads((folder / "tokenizer.json").read_text())["post_processor"]["pair"][-1]
    assert (end["SpecialToken"]["type_id"], separator(folder)) == (1, 2)
    inputs = ["input_ids", "attention_mask"]
    change(folder / "tokenizer_config.json", model_input_names=[*inputs, "token_type_ids"])
    assert separator(folder) == 2
    change(folder / "tokenizer_config.json", model_input_names=inputs)
    assert separator(folder) is None
    (folder / "tokenizer_config.json").unlink()
    shutil.copy(snapshots.TOKENIZER, folder / "tokenizer.json")
    assert separator(folder) is None
    shutil.copy(FAMILIES / "bert-pairs" / "tokenizer.json", folder)
    stored = json.loads((folder / "tokenizer.json").read_text())
    stored["post_processor"]["pair"][-1]["SpecialToken"]["type_id"] = 0
    change(folder / "tokenizer.json", **stored)
    with pytest.raises(PackageError, match=r"the types \[0, 0, 0, 1, 0\]: only type 0"):
        separator(folder)


TABLE = "idf.json"
POOLING = "document_1_SpladePooling/config.json"
MODULE = "sentence_bert_config.json"
STATIC = "query_0_SparseStaticEmbedding"
SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 442}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied("distilbert-words", tmp_path)


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
    assert (said.words, said.questions) == (Words(modules.KEPT, 1, False), folder / TABLE)
    (folder / TABLE).unlink()
    assert sentence.read(folder, Pooling.SPLADE).questions is None
    manifest = unchecked(folder, "--pooling", "splade")
    assert manifest["sources"]["sparse"] == "--pooling"
    assert "questions" not in manifest["sparse"]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_packages_of_16_bits_pass_their_checks(tmp_path: Path, precision: str) -> None:
    model = snapshots.write(tmp_path / "model", BERT, words=Words(256)).folder
    flags = ["--model", model, "--pooling", "splade", "--precision"]
    manifest = made(tmp_path / "own", *flags, precision)
    assert manifest["outputs"] == {"dense": "float32", "word_weights": "float32"}
    made(tmp_path / "added", *flags, "fp32", "--skip-verify")
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


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("bert-words", "cls.predictions.transform.dense.bias"),
        ("distilbert-words", "vocab_transform.bias"),
        ("xlm-roberta-pairs", "classifier.dense.bias"),
        ("xlm-roberta-pairs", "classifier.out_proj.weight"),
    ],
)
def test_shapes_are_enough_to_check_one_whose_weights_are_not_there(
    tmp_path: Path, model: str, name: str
) -> None:
    folder = copied(model, tmp_path)
    headers = snapshots.headers(folder)
    said = sentence.read(folder)
    snapshot.open_encoder(folder, said, headers)
    less = {key: one for key, one in headers.items() if key != name}
    with pytest.raises(PackageError, match=f"the weights lack the tensor {name}"):
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


NO_TABLE = "is no table of tokens of tokenizer.json and their weights"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "model.safetensors is missing, and idf.json too: questions have no weights"),
        ({}, NO_TABLE),
        ({"never": 1.0}, NO_TABLE),
        ({"a": "b"}, NO_TABLE),
        ({"a": float("inf")}, "has the weight inf for the token"),
        (np.ones(444, np.float32), "has the weight 1.0 for the token 443"),
        (np.ones((2, 2), np.float32), "lacks the tensor weight, with a number for each token"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(
    folder: Path, content: Any, message: str
) -> None:
    (folder / TABLE).unlink()
    if isinstance(content, np.ndarray):
        snapshots.write_safetensors(folder / STATIC / "model.safetensors", {"weight": content})
    elif content is not None:
        snapshots.put(folder / TABLE, content)
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("model", "flags", "message"),
    [
        ("distilbert-words", ["--no-sparse"], "--no-sparse leaves nothing of"),
        ("distilbert-words", ["--token-vectors"], "--token-vectors is for models of vectors"),
        ("distilbert-words", ["--shorter-vectors", "8"], "a model of lexical weights: --shorter-v"),
        ("xlm-roberta-pairs", ["--query-prompt", "q: "], "is a cross-encoder"),
        ("xlm-roberta-pairs", ["--shorter-vectors", "1"], "is a cross-encoder"),
        ("xlm-roberta-pairs", ["--token-vectors"], "is a cross-encoder"),
    ],
)
def test_what_only_models_of_vectors_have_cannot_be_asked_for(
    tmp_path: Path, model: str, flags: list[str], message: str
) -> None:
    assert message in refused(copied(model, tmp_path), *flags)
