"""The command export_onnx.py: packages, further graphs in 16 bits, refusals, interrupted runs."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
import tokenizers
from export_packages import (
    RANDOM,
    check_files,
    digests,
    made,
    manifest_of,
    random_model,
    refusal,
    refused,
    run,
    unchecked,
)
from export_snapshots import change, wordpiece
from tokenizers import models, pre_tokenizers, processors

from default_package import checks, graph_builder, layers, vocabulary
from default_package.checks import LIMITS, Runtime
from default_package.choices import Pooling, Precision
from default_package.errors import PackageError
from default_package.graph_builder import TENSOR_BYTES_MIN
from default_package.reference import ReferenceEncoder, cosine, select_sparse
from families import BERT, XLM_ROBERTA, Family
from fixtures import FAMILIES
from model_export.export import published_license


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package in f32 whose graph was checked and measured."""
    folder = tmp_path_factory.mktemp("plain")
    made(folder, *RANDOM, "--precision", "fp32")
    return folder


@pytest.fixture
def package(plain: Path, tmp_path: Path) -> Path:
    """One of its own for each test."""
    return shutil.copytree(plain, tmp_path / "engines/mine")


FIELDS = """format_version model_id aliases revision license hidden_size vocab_size max_input_tokens
pad_token_id bos_token_id eos_token_id unk_token_id pooling matryoshka_dimensions prompts
default_prompt tokenizer sources sparse outputs files plans canary largest"""


@pytest.mark.parametrize(
    ("family", "container", "with_head", "pooling", "precision"),
    [
        (XLM_ROBERTA, "torch", True, Pooling.CLS, "fp16"),
        (XLM_ROBERTA, "safetensors", False, Pooling.MEAN, "fp32"),
        (BERT, "safetensors", False, Pooling.CLS, "fp16"),
        (BERT, "torch", True, Pooling.MEAN, "fp32"),
    ],
)
def test_a_snapshot_becomes_a_package(
    tmp_path: Path,
    family: Family,
    container: str,
    with_head: bool,
    pooling: Pooling,
    precision: str,
) -> None:
    written = snapshots.write(
        tmp_path / "model", family, container=container, with_head=with_head, pooling=pooling
    )
    out = tmp_path / "engines" / "mine"
    wishes = ["--precision", precision, "--pooling", pooling.value]
    manifest = made(out, "--model", written.folder, *wishes)
    assert [path.name for path in out.parent.iterdir()] == ["mine"]
    check_files(out)
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    assert manifest["vocab_size"] == tokenizer.get_vocab_size() < snapshots.ROWS
    assert (manifest["sparse"] is not None) == with_head
    assert ("token_weights" in manifest["outputs"]) == with_head
    assert manifest["pooling"] == pooling.value
    assert manifest["max_input_tokens"] == (38 if family is XLM_ROBERTA else 40)
    canary = manifest["canary"]
    assert tokenizer.encode(canary["text"]).ids == canary["token_ids"]
    expected = ReferenceEncoder(written.encoder).run(canary["token_ids"])
    assert cosine(np.asarray(canary["dense"]), expected.dense) > 0.9999999
    assert bool(canary["sparse"]) == with_head
    long = checks.long_text(canary["token_ids"], manifest["max_input_tokens"])
    expected, golden = ReferenceEncoder(written.encoder).run(long), canary["longest"]
    assert golden["tokens"] == len(long) == manifest["max_input_tokens"]
    assert cosine(np.asarray(golden["dense"]), expected.dense) > 0.9999
    sparse = select_sparse(long, expected.token_weights, set(range(4)))
    assert [token_id for token_id, _ in golden["sparse"]] == (list(sparse) if with_head else [])
    pairs = zip(golden["sparse"], sparse.values(), strict=False)
    assert all(abs(weight - own) < 0.005 for (_, weight), own in pairs)


@pytest.mark.parametrize("words", [[], ["--precision", "bf16"], ["--precision", "fp32"]])
def test_who_exports_16_bits_is_told_that_cpus_want_f32(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model = snapshots.write(tmp_path / "model", BERT, container="safetensors").folder
    made(tmp_path / "out", "--model", model, "--pooling", "cls", "--skip-verify", *words)
    assert ("give --precision fp32" in capsys.readouterr().err) == ("fp32" not in words)


def test_the_manifest_has_the_fields_the_server_reads(tmp_path: Path) -> None:
    options = ["--model-id", "bge-m3", "--alias", "BAAI/bge-m3", "--revision", "5617", "--license"]
    options += ["mit", "--query-prompt", "query: ", "--passage-prompt", "passage: "]
    manifest = made(tmp_path / "bge", *RANDOM, *options)
    assert list(manifest) == FIELDS.split()
    assert (manifest["model_id"], manifest["aliases"]) == ("bge-m3", ["random", "BAAI/bge-m3"])
    assert (manifest["revision"], manifest["license"]) == ("5617", "mit")
    assert manifest["prompts"] == {"query": "query: ", "passage": "passage: "}
    assert manifest["default_prompt"] == "query"
    assert manifest["tokenizer"] == {"normalization": "sentencepiece"}
    assert manifest["sparse"].keys() == {"dropped_token_ids", "head"}
    assert manifest["sparse"]["dropped_token_ids"] == [0, 1, 2, 3]
    assert [manifest[f"{n}_token_id"] for n in ("bos", "pad", "eos", "unk")] == [0, 1, 2, 3]
    assert manifest["max_input_tokens"] == 118
    canary = manifest["canary"]
    assert canary.keys() == {"text", "token_ids", "dense", "sparse", "tolerances", "longest"}
    assert [token_id for token_id, _ in canary["sparse"]] == sorted(
        {token_id for token_id, _ in canary["sparse"]}
    )


def test_every_run_writes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for i, tensor_bytes_min in enumerate([TENSOR_BYTES_MIN, TENSOR_BYTES_MIN, 1024]):
        monkeypatch.setattr(graph_builder, "TENSOR_BYTES_MIN", tensor_bytes_min)
        out = tmp_path / str(i) / "same"
        made(out, *RANDOM)
        check_files(out)
        found.append(digests(out))
    assert found[0] == found[1]
    assert found[2].keys() - found[0].keys() == {"model.onnx.data"}
    made(tmp_path / "0" / "same", *random_model(seed=1), "--skip-verify")
    assert digests(tmp_path / "0" / "same")["model.onnx"] != found[0]["model.onnx"]


def test_a_package_that_fails_its_check_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = layers.Layers._write_penalties

    def forgets_the_texts(graph: layers.Layers) -> None:
        real(graph)
        graph.nodes[-1].input[2] = graph.floats("nothing", 0.0)

    monkeypatch.setattr(layers.Layers, "_write_penalties", forgets_the_texts)
    said = refusal(*RANDOM, "--out", tmp_path / "mine", "--precision", "fp32")
    assert "the package failed its check" in said
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_export_leaves_the_old_package(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = digests(package)
    monkeypatch.setattr(checks, "run_all", Mock(side_effect=KeyboardInterrupt))
    assert run(*random_model(seed=5), "--out", package) == 130
    assert digests(package) == whole
    assert [path.name for path in package.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "./absent", "--out", "x"], "is no folder"),
        (["--model", "..", "--out", "x"], "config.json is missing"),
        (["--model", "a/b", "--max-tokens", "2"], "--max-tokens is 2: at least 3 are needed"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUOVEC_CACHE_DIR", str(tmp_path / "cache"))
    [line] = refusal(*arguments).splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert os.listdir(tmp_path) == []


def test_a_package_is_not_made_otherwise_than_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    asked = ["--model", tmp_path, "--precision", "fp32", "--update"]
    assert run(*asked, "--normalization", "sentencepiece") == 0
    assert capsys.readouterr().out == f"{tmp_path}\n"
    said = refusal(*asked, "--no-sparse", "--query-prompt", "", "--normalization", "huggingface")
    assert said == (
        f"error: {tmp_path} is a package, and --no-sparse, --normalization, --query-prompt cannot "
        "change it: name the model that it was made of\n"
    )
    assert "and --max-tokens cannot change it" in refusal(*asked, "--max-tokens", "0")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = snapshots.write(tmp_path / "model").folder
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["vocab"] += [[f"new{i}", -9.0] for i in range(200)]
    without = json.dumps(wordpiece() | {"post_processor": None})
    cases = [
        (json.dumps(content), "the model knows only"),
        ("{", "tokenizer.json is not a tokenizer that can be read: EOF while parsing"),
        ("{}", "tokenizer.json is not a tokenizer that can be read: Model missing"),
        ('{"model": {}}', "not a tokenizer that can"),
        (without, "0 tokens for an empty text"),
        (None, "is missing"),
    ]
    for text, message in cases:
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text, encoding="utf-8")
        assert message in refused(folder)


def test_the_model_card_names_the_license(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    assert published_license(tmp_path) == "unknown"
    card.write_text("---\npipeline_tag: x\nlicense: mit\ntags:\n---\n# Model\n")
    assert published_license(tmp_path) == "mit"
    for text in ("# Model\nlicense: mit\n", "---\ntags:\n---\n# Model\nlicense: mit\n"):
        card.write_text(text)
        assert published_license(tmp_path) == "unknown"


@pytest.mark.parametrize(("template", "around"), [("$A [SEP]", (None, 3)), ("[CLS] $A", (2, None))])
def test_a_decoder_with_one_special_token_is_exported(
    tmp_path: Path, template: str, around: tuple
) -> None:
    model = shutil.copytree(FAMILIES / "qwen3", tmp_path / "model")
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(wordpiece()))
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(), processors.TemplateProcessing(template, None, special)]
    )
    (model / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    manifest = unchecked(model)
    assert manifest["pooling"] == "last"
    assert (manifest["bos_token_id"], manifest["eos_token_id"]) == around
    ids = manifest["canary"]["token_ids"]
    assert (ids[0] == 2, ids[-1] == 3) == (around[0] is not None, around[1] is not None)


def test_bytes_are_never_unknown_and_other_pieces_may_be() -> None:
    """As in RoBERTa's and ModernBERT's tokenizers, which name no token for unknown text."""
    alphabet = ["<s>", "<pad>", "</s>", *pre_tokenizers.ByteLevel.alphabet()]
    tokenizer = tokenizers.Tokenizer(models.BPE({piece: n for n, piece in enumerate(alphabet)}, []))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    with pytest.raises(PackageError, match="names no token for unknown text"):
        vocabulary.parse(tokenizer.to_str(), 1)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = vocabulary.parse(tokenizer.to_str(), 1)
    assert (words.bos, words.eos, words.unk, words.special_ids) == (0, 2, 1, [0, 1, 2])
    assert len(words.tokenizer.encode("日本").ids) == 2 + 6


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_graph_in_16_bits_is_added_to_a_package(package: Path, precision: str) -> None:
    out, before, old = package, manifest_of(package), digests(package)
    (out / "some.plan").write_bytes(b"plan")
    first = None
    for _ in range(2):
        assert run(f"--{precision}-of-package", out) == 0
        first = first or digests(out)
        assert digests(out) == first
    assert [path.name for path in out.parent.iterdir()] == ["mine"]
    assert (out / "some.plan").read_bytes() == b"plan"
    manifest = manifest_of(out)
    assert manifest["files"].keys() - before["files"].keys() == {f"model.{precision}.onnx"}
    assert manifest | {"files": before["files"]} == before
    assert {name: first[name] for name in ("model.onnx", "tokenizer.json")} == {
        name: old[name] for name in ("model.onnx", "tokenizer.json")
    }
    (out / "some.plan").unlink()
    check_files(out)
    single, twin = (
        Runtime(out / name).run([[0, 5, 2]], "cls")[0].dense
        for name in ("model.onnx", f"model.{precision}.onnx")
    )
    assert cosine(single, twin) > LIMITS[Precision(precision)]["dense_cosine_min"]


def test_a_package_with_numbers_beside_its_graph_gets_an_f16_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mine"
    monkeypatch.setattr(graph_builder, "TENSOR_BYTES_MIN", 512)
    made(out, *RANDOM, "--precision", "fp32", "--no-sparse", "--skip-verify")
    for _ in range(2):
        assert run("--fp16-of-package", out) == 0
        check_files(out)
    kept = {"manifest.json", "tokenizer.json"}
    assert digests(out).keys() == kept | {
        name + end for name in ("model.onnx", "model.fp16.onnx") for end in ("", ".data")
    }
    monkeypatch.setattr(graph_builder, "TENSOR_BYTES_MIN", TENSOR_BYTES_MIN)
    assert run("--fp16-of-package", out) == 0
    check_files(out)
    assert "model.fp16.onnx.data" not in manifest_of(out)["files"]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_package_in_16_bits_needs_no_f16_graph(
    tmp_path: Path, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "mine", *RANDOM, "--precision", precision, "--skip-verify")
    whole = digests(tmp_path / "mine")
    capsys.readouterr()
    assert run("--fp16-of-package", tmp_path / "mine") == 0
    [line] = capsys.readouterr().err.splitlines()
    assert "is in 16 bits already: TensorRT takes it as it is" in line
    assert digests(tmp_path / "mine") == whole


def test_a_failed_f16_graph_leaves_the_package(package: Path) -> None:
    out, single = package, (package / "model.onnx").read_bytes()
    manifest = made(out, *RANDOM, "--precision", "fp16", "--skip-verify")
    whole = digests(out)
    assert "is in 16 bits already" in refusal("--bf16-of-package", out)
    assert digests(out) == whole
    model = onnx.load(out / "model.onnx")
    model.producer_name = "pytorch"
    onnx.save(model, out / "model.onnx")
    assert "was not made by these scripts" in refusal("--fp16-of-package", out)
    (out / "model.onnx").write_bytes(b"\xff" * 9)
    assert "cannot be read" in refusal("--fp16-of-package", out)
    canary = manifest["canary"] | {"dense": [1.0] + [0.0] * 15}
    change(out / "manifest.json", canary=canary)
    (out / "model.onnx").write_bytes(single)
    assert "vectors of the canary" in refusal("--fp16-of-package", out)
    change(out / "manifest.json", format_version=1)
    said = refusal("--fp16-of-package", out)
    assert "has format_version 1, 2 is needed: make it again with" in said
    said = refusal("--fp16-of-package", out.parent / "absent")
    assert "manifest.json is missing: name the folder of a package" in said
    assert [path.name for path in out.parent.iterdir()] == ["mine"]
