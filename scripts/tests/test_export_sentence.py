"""What sentence-transformers reads beside the network, and BGE-M3's head for vectors of tokens:
honoured, or refused with file and key.

What the reference implementation gives is compared in test_export_families.py."""

import json
import shutil
from pathlib import Path
from statistics import NormalDist
from typing import Any

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
from export_graphs import written, written_in_fp8
from export_packages import made, refused, unchecked
from export_snapshots import change, put

from default_package import checks
from default_package.checks import Runtime, batch
from default_package.choices import Pooling, Precision
from default_package.errors import PackageError
from default_package.reference import ReferenceEncoder, cosine
from families import BERT
from fixtures import FAMILIES
from model_export import sentence, snapshot
from model_export.modules import ACTIVATIONS
from model_export.sentence import SCALED
from model_export.snapshot import COLBERT_FILE
from quantization import int8

MODULE = "sentence_bert_config.json"
MODEL = "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"
POOLING = "1_Pooling/config.json"
PLACES = 38
"""Of a text in `export_snapshots.SIZES`."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return snapshots.write(tmp_path / "model").folder


@pytest.mark.parametrize(
    ("content", "pooling"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, Pooling.MEAN),
        ({"pooling_mode_cls_token": True, "include_prompt": True}, Pooling.CLS),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, Pooling.MEAN),
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, Pooling.CLS),
        ({"pooling_mode": ["mean"]}, Pooling.MEAN),
        ({"word_embedding_dimension": 16}, Pooling.MEAN),
    ],
)
def test_the_pooling_is_the_files(folder: Path, content: Any, pooling: Pooling) -> None:
    put(folder / POOLING, content)
    assert sentence.read(folder).pooling is pooling
    other = Pooling.MEAN if pooling is Pooling.CLS else Pooling.CLS
    assert sentence.read(folder, other).pooling is other


@pytest.mark.parametrize(
    ("files", "tokens"),
    [
        ({}, PLACES),
        ({MODULE: {"max_seq_length": 12, "do_lower_case": False}, TOKENIZER: {}}, 12),
        ({MODULE: {"max_seq_length": 512}}, PLACES),
        ({MODULE: {"max_seq_length": None}, TOKENIZER: {"model_max_length": 20}}, 20),
        ({MODULE: {}, TOKENIZER: {"model_max_length": 10**30}}, PLACES),
        ({TOKENIZER: {"model_max_length": 1e30}}, PLACES),
        ({"sentence_xlm-roberta_config.json": {"max_seq_length": 9}}, 9),
    ],
)
def test_a_text_has_as_many_tokens_as_the_files_say(
    folder: Path, files: dict[str, Any], tokens: int
) -> None:
    for name, content in files.items():
        put(folder / name, content)
    said = sentence.read(folder)
    assert snapshot.read_config(said).max_input_tokens == tokens


@pytest.mark.parametrize(
    ("content", "prompts", "default"),
    [
        ({"__version__": {"transformers": "4"}}, {}, None),
        ({"prompts": {"query": "q: ", "document": ""}}, {"query": "q: ", "passage": ""}, None),
        (
            {"prompts": {"passage": "p: ", "corpus": "c: "}, "default_prompt_name": "passage"},
            {"passage": "p: "},
            "passage",
        ),
        (
            {"prompts": {"query": "q: ", "sts": "s: "}, "default_prompt_name": "query"},
            {"query": "q: "},
            "query",
        ),
    ],
)
def test_prompts_are_the_files(
    folder: Path, content: Any, prompts: dict[str, str], default: str | None
) -> None:
    put(folder / MODEL, content)
    said = sentence.read(folder)
    assert (said.prompts, said.default_prompt) == (prompts, default)
    # Others are told of: clients must send them.
    assert ("sts" in said.sources["prompts"]) == ("sts" in content.get("prompts", {}))


def test_the_manifest_says_what_was_taken_and_from_where(folder: Path) -> None:
    put(folder / POOLING, {"pooling_mode_mean_tokens": True})
    put(folder / MODULE, {"max_seq_length": 12})
    prompts = {"query": "q: ", "document": "d: ", "sts": "s: "}
    put(folder / MODEL, {"prompts": prompts, "default_prompt_name": "document"})
    manifest = unchecked(folder)
    assert (manifest["pooling"], manifest["max_input_tokens"]) == ("mean", 12)
    assert len(manifest["canary"]["token_ids"]) <= 12
    assert manifest["prompts"] == {"query": "q: ", "passage": "d: "}
    assert manifest["default_prompt"] == "passage"
    sent_by_clients = f"{MODEL}; clients put these in front themselves: sts"
    assert manifest["sources"] == {
        "pooling": "1_Pooling/config.json, pooling_mode_mean_tokens",
        "max_input_tokens": "sentence_bert_config.json, max_seq_length",
        "prompts": sent_by_clients,
    }
    flags = ["--max-tokens", "30", "--pooling", "cls", "--query-prompt", "x "]
    manifest = unchecked(folder, *flags)
    assert (manifest["pooling"], manifest["max_input_tokens"]) == ("cls", 30)
    assert manifest["prompts"] == {"query": "x ", "passage": "d: "}
    assert manifest["sources"] == {
        "pooling": "--pooling",
        "max_input_tokens": "--max-tokens",
        "prompts": f"--query-prompt, {sent_by_clients}",
    }


def test_a_text_has_no_more_tokens_than_the_network_has_positions(folder: Path) -> None:
    put(folder / MODULE, {"max_seq_length": PLACES + 2})
    manifest = unchecked(folder)
    assert manifest["max_input_tokens"] == PLACES
    assert manifest["sources"]["max_input_tokens"] == "config.json"
    said = refused(folder, "--max-tokens", PLACES + 1)
    assert f"error: --max-tokens is {PLACES + 1}: the model takes {PLACES}" in said


@pytest.mark.parametrize(
    ("stored", "flags", "found", "source"),
    [
        ([8, 4, 16], [], [4, 8], "config.json"),
        ([8], ["--shorter-vectors", "12,2"], [2, 12], "--shorter-vectors"),
        (None, [], [], None),
    ],
)
def test_shorter_vectors_are_those_that_the_model_was_trained_for(
    folder: Path, stored: Any, flags: list[str], found: list[int], source: str | None
) -> None:
    change(folder / "config.json", matryoshka_dimensions=stored)
    manifest = unchecked(folder, *flags)
    assert manifest["matryoshka_dimensions"] == found
    assert manifest["sources"].get("matryoshka_dimensions") == source


@pytest.mark.parametrize("wrong", [[17], ["8"], "8", [0], [True]])
def test_vectors_that_cannot_be_cut_so_are_refused(folder: Path, wrong: Any) -> None:
    said = refused(folder, "--shorter-vectors", "4,16")
    assert "--shorter-vectors: numbers from 1 to 15" in said
    change(folder / "config.json", matryoshka_dimensions=wrong)
    assert "config.json has matryoshka_dimensions" in refused(folder)


def test_what_no_file_says_has_a_source_too(folder: Path) -> None:
    (folder / TOKENIZER).unlink(missing_ok=True)
    assert sentence.read(folder, Pooling.CLS).sources == {
        "pooling": "--pooling",
        "max_input_tokens": "config.json",
        "prompts": "no file has one",
    }


def test_no_module_is_lost_silently(folder: Path) -> None:
    for more in (["CNN", "Normalize"], ["LayerNorm"], ["Normalize", "Dense"]):
        snapshots.write_modules(folder, Pooling.CLS, *more)
        with pytest.raises(PackageError, match=f"modules.json has the modules .*{more[0]}"):
            sentence.read(folder)
    for entry, message in [
        ({"type": "custom_st.Transformer", "path": ""}, "custom_st.Transformer', code of"),
        ({"type": "sentence_transformers.models.Pooling", "path": "x"}, "the modules Pooling,"),
        ({"type": "sentence_transformers.models.Transformer", "path": "0_T"}, "in '0_T'"),
    ]:
        pooling = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
        put(folder / "modules.json", [entry, pooling])
        with pytest.raises(PackageError, match=message):
            sentence.read(folder)
    put(folder / "modules.json", {"a": 1})
    with pytest.raises(PackageError, match="modules.json is not a list of modules"):
        sentence.read(folder)
    (folder / "modules.json").unlink()
    assert sentence.read(folder).pooling is Pooling.CLS
    (folder / POOLING).unlink()
    with pytest.raises(PackageError, match="is missing.*say --pooling cls, mean or last"):
        sentence.read(folder)
    assert sentence.read(folder, Pooling.MEAN).pooling is Pooling.MEAN


def test_a_mean_times_a_number_does_not_go_into_a_product(folder: Path) -> None:
    for keys in ({"pooling_mode_mean_sqrt_len_tokens": True}, {"pooling_mode": SCALED}):
        put(folder / POOLING, keys)
        assert sentence.read(folder).pooling is Pooling.MEAN
        modules = json.loads((folder / "modules.json").read_text())
        snapshots.write_modules(folder, Pooling.MEAN, "Dense")
        put(folder / POOLING, keys)
        with pytest.raises(PackageError, match=f"{POOLING} has pooling_mode {SCALED}: only cls"):
            sentence.read(folder)
        put(folder / "modules.json", modules)


def test_vectors_of_length_one_suit_only_the_cosine_where_nothing_normalizes(folder: Path) -> None:
    put(folder / MODEL, {"similarity_fn_name": "dot"})
    sentence.read(folder)
    put(folder / "modules.json", json.loads((folder / "modules.json").read_text())[:2])
    with pytest.raises(PackageError, match="has similarity_fn_name 'dot' and .* no Normalize"):
        sentence.read(folder)
    put(folder / MODEL, {"similarity_fn_name": "cosine"})
    sentence.read(folder)


def test_small_letters_are_no_matter_where_the_tokenizer_makes_them(tmp_path: Path) -> None:
    folder = snapshots.write(tmp_path, BERT).folder
    put(folder / MODULE, {"do_lower_case": True})
    sentence.read(folder)


KINDS = {name.rpartition(".")[2]: name for name in ACTIVATIONS}
"""Class of torch -> its whole name."""
FUNCTIONS = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    # By the normal distribution, unlike the reference.
    "GELU": lambda values: values * np.vectorize(NormalDist().cdf)(values),
}


def write_dense(folder: Path, layers: list, name: str) -> None:
    snapshots.write_modules(folder, Pooling.MEAN, *["Dense"] * len(layers))
    for at, (weight, bias, kind) in enumerate(layers):
        place = folder / f"{2 + at}_Dense"
        place.mkdir()
        about = {"bias": bias is not None, "activation_function": KINDS[kind]}
        snapshots.put(place / "config.json", about)
        tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
        save = snapshots.write_torch if name.endswith("bin") else snapshots.write_safetensors
        save(place / name, tensors)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    "modules",
    [
        [(True, "Identity")],
        # As LaBSE and distiluse have it.
        [(True, "Tanh")],
        [(True, "Identity"), (True, "Identity"), (False, "Tanh"), (True, "Identity")],
        [(False, "GELU"), (True, "Tanh")],
    ],
)
def test_products_behind_the_pooling_have_biases_and_activations(
    tmp_path: Path, modules: list[tuple[bool, str]], name: str
) -> None:
    folder = shutil.copytree(FAMILIES / "bert", tmp_path / "model")
    numbers = np.random.default_rng(5)
    layers, width = [], 32
    for at, (biased, kind) in enumerate(modules):
        wide = 20 + at
        weight = numbers.normal(size=(wide, width)).astype(np.float32) / 3
        bias = numbers.normal(size=wide).astype(np.float32) if biased else None
        width = wide
        layers.append((weight, bias, kind))
    write_dense(folder, layers, name)
    encoder = snapshots.open_encoder(folder)
    ids = [5, 9, 4, 60, 7]
    vectors = ReferenceEncoder(encoder).run(ids)
    expected = vectors.hidden.mean(axis=0)
    for weight, bias, kind in layers:
        expected = weight @ expected + (0 if bias is None else bias)
        expected = FUNCTIONS[kind](expected)
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(vectors.dense, expected, atol=1e-6)
    for precision in Precision:
        graph = written(encoder, precision, tmp_path / precision.value)
        # The first row has a second span, which has no weights.
        rows = batch([ids, ids[:2]], [[0], [1]], 16, 1, "mean")
        dense = Runtime(graph).run_rows(rows.inputs)["dense"]
        assert dense.shape == (2, 2, width)
        close = 1e-5 if precision is Precision.FP32 else 0.05
        np.testing.assert_allclose(dense[0, 0], expected, atol=close)
        assert not dense[:, 1].any()


WIDTH = 6
SEQUENCES = [[0, 5, 6, 7, 8, 2], [0, 2], [0, *range(20, 50), 2]]


def head(width: int = WIDTH, hidden: int = 16) -> dict[str, np.ndarray]:
    numbers = np.random.RandomState(5)
    return {
        "weight": numbers.standard_normal((width, hidden)).astype(np.float32),
        "bias": numbers.standard_normal(width).astype(np.float32),
    }


@pytest.fixture
def model(folder: Path) -> Path:
    """One with both heads."""
    snapshots.write_torch(folder / COLBERT_FILE, head())
    return folder


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_the_head_becomes_an_output_with_golden_numbers(
    model: Path, tmp_path: Path, precision: str
) -> None:
    out = tmp_path / "out"
    manifest = made(out, "--model", model, "--precision", precision, "--token-vectors")
    assert manifest["token_vector_size"] == WIDTH
    assert manifest["outputs"]["token_vectors"] == "float32"
    canary = manifest["canary"]
    ids = canary["token_ids"]
    encoder = snapshots.open_encoder(model)
    expected = ReferenceEncoder(encoder).run(ids).token_vectors
    assert expected is not None and expected.shape == (len(ids), WIDTH)
    assert [place for place, _ in canary["token_vectors"]] == [1, len(ids) // 2, len(ids) - 1]
    for place, golden in canary["token_vectors"]:
        np.testing.assert_allclose(golden, expected[place], atol=1e-6)
    # A graph whose vectors are those of other tokens is found.
    canary["token_vectors"][0][0] = 2
    runtime = Runtime(out / "model.onnx")
    with pytest.raises(PackageError, match="vectors of the canary"):
        checks.check_canary(runtime, manifest, checks.LIMITS[Precision(precision)])


def test_a_package_has_the_head_only_when_it_is_asked_for(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = unchecked(model)
    assert "--token-vectors takes them in" in capsys.readouterr().err
    assert "token_vector_size" not in manifest
    assert "token_vectors" not in {**manifest["outputs"], **manifest["canary"]}


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (None, f"{COLBERT_FILE} is missing, the head for token vectors that BGE-M3 has: add"),
        (head(hidden=8), "tensor weight of the numbers in colbert_linear.pt has shape [6, 8]"),
        ({"weight": head()["weight"]}, "the numbers in colbert_linear.pt lack the tensor bias"),
        ({"weight": np.ones((), np.float32)}, "has shape [], config.json asks for [0, 16]"),
        ({"bias": head()["bias"]}, "the numbers in colbert_linear.pt lack the tensor weight"),
    ],
)
def test_a_head_that_cannot_be_used_is_one_sentence(
    model: Path, file: dict[str, np.ndarray] | None, sentence: str
) -> None:
    (model / COLBERT_FILE).unlink()
    if file is not None:
        snapshots.write_torch(model / COLBERT_FILE, file)
    assert sentence in refused(model, "--token-vectors")


def test_token_vectors_come_beside_lexical_weights(model: Path) -> None:
    said = refused(model, "--token-vectors", "--no-sparse")
    assert "do not go together: leave one out" in said


def test_graphs_in_8_bits_have_the_output(model: Path, tmp_path: Path) -> None:
    encoder = snapshots.open_encoder(model)
    source = written(encoder, Precision.FP32, tmp_path / "single")
    whole = Runtime(source).run(SEQUENCES, "cls")
    target = source.parent / int8.GRAPH
    int8.write(source, target, int8.calibrate(source, SEQUENCES))
    graph = onnx.load(written_in_fp8(encoder, tmp_path / "fp8")).graph
    assert [one.name for one in graph.output] == ["dense", "token_weights", "token_vectors"]
    for graph in (target, tmp_path / "fp8" / "fp8.onnx"):
        for found, exact in zip(Runtime(graph).run(SEQUENCES, "cls"), whole, strict=True):
            assert found.token_vectors is not None and exact.token_vectors is not None
            for one, other in zip(found.token_vectors, exact.token_vectors, strict=True):
                assert cosine(one, other) > 0.98
