"""The tiny package of the Rust tests is what its recipe makes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tokenizers

import make_tiny_package
from default_package import graph, sparse_head
from default_package.checks import check_neighbours
from default_package.errors import PackageError
from default_package.reference import ReferenceEncoder, ReferenceTokenizer
from default_package.runtime import Runtime
from default_package.segments import SAME_TEXT
from default_package.wheel import digest
from fixtures import tiny_package

COMMITTED = make_tiny_package.OUT


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("engines") / "tiny"
    tiny_package.make(out)
    return out


@pytest.fixture(scope="module")
def runtime(package: Path) -> Runtime:
    return Runtime(package / "model.onnx", "f32")


def test_every_run_writes_the_committed_bytes(package: Path) -> None:
    names = sorted(path.name for path in package.iterdir())
    assert names == ["manifest.json", "model.onnx", "tokenizer.json"]
    for name in names:
        assert (package / name).read_bytes() == (COMMITTED / name).read_bytes(), name


def test_nothing_is_left_beside_the_package(package: Path) -> None:
    assert [path.name for path in package.parent.iterdir()] == ["tiny"]


def test_the_manifest_vouches_for_the_files() -> None:
    manifest = json.loads((COMMITTED / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["format_version"] == 2
    assert (manifest["model_id"], manifest["aliases"]) == ("tiny-test", ["tiny"])
    assert (manifest["hidden_size"], manifest["max_input_tokens"]) == (8, 64)
    assert manifest["matryoshka_dimensions"] == [4]
    assert (manifest["prompts"], manifest["default_prompt"]) == ({}, None)
    assert manifest["sparse"]["dropped_token_ids"] == [0, 1, 2, 3]
    assert len(manifest["canary"]["dense"]) == manifest["hidden_size"]
    for name, entry in manifest["files"].items():
        path = COMMITTED / name
        assert (entry["sha256"], entry["bytes"]) == (digest(path), path.stat().st_size)
    tokenizer = tokenizers.Tokenizer.from_file(str(COMMITTED / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == manifest["vocab_size"]
    assert tokenizer.encode(manifest["canary"]["text"]).ids == manifest["canary"]["token_ids"]


def test_ascii_text_has_no_unknown_token() -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(COMMITTED / "tokenizer.json"))
    for text in ("".join(map(chr, range(128))), *map(chr, range(128)), "Hello_World-42 {}"):
        assert 3 not in tokenizer.encode(text).ids, repr(text)
    assert 3 in tokenizer.encode("\u13a0").ids


def test_graph_and_reference_agree_whatever_is_beside_a_text(runtime: Runtime) -> None:
    model = tiny_package.tiny_model()
    encoder = ReferenceEncoder(model, tiny_package.tiny_head())
    texts = ["", "a", "the quick test", "Wasser und Brot", "x" * 61]
    sequences = [ReferenceTokenizer(model).encode(text) for text in texts]
    for row, ids in zip(runtime.run(sequences, 1, "mean"), sequences, strict=True):
        expected = encoder.run(ids)
        np.testing.assert_allclose(row.dense, expected.dense, atol=1e-5)
        np.testing.assert_allclose(row.token_weights, expected.token_weights, atol=1e-5)


def lexical_head() -> sparse_head.SparseHead:
    """With surprisals, repeats and norm, as the default package's."""
    pieces = tiny_package.tiny_vocabulary().pieces
    biases = np.linspace(0.1, 0.6, len(pieces)).astype(np.float32)
    biases[:4] = sparse_head.SPECIAL_BIAS
    head = tiny_package.tiny_head()
    return replace(head, piece_biases=biases, repeat_weight=0.2, norm_exponent=0.5)


def test_a_head_with_surprisals_repeats_and_norm_is_the_reference_too(tmp_path: Path) -> None:
    model, head = tiny_package.tiny_model(), lexical_head()
    path = tmp_path / "model.onnx"
    graph.write(model, head, path)
    encoder = ReferenceEncoder(model, head)
    sequences = [ReferenceTokenizer(model).encode(text) for text in ("", "a", "the the quick")]
    for row, ids in zip(Runtime(path, "f32").run(sequences, 1, "mean"), sequences, strict=True):
        expected = encoder.run(ids).token_weights
        np.testing.assert_allclose(row.token_weights, expected, atol=1e-5)
        assert row.token_weights[0] == row.token_weights[-1] == 0.0
    plain = ReferenceEncoder(model, replace(head, norm_exponent=0.0)).run(ids).token_weights
    np.testing.assert_allclose(expected, plain / np.linalg.norm(plain) ** 0.5, rtol=1e-5)


HEADS = {"plain": tiny_package.tiny_head, "lexical": lexical_head}


@pytest.mark.parametrize("head", HEADS)
def test_no_text_sees_another_one(tmp_path: Path, head: str) -> None:
    model = tiny_package.tiny_model()
    path = tmp_path / "model.onnx"
    graph.write(model, HEADS[head](), path)
    runtime = Runtime(path, "f32")
    for seed in range(10):
        for pooling in ("mean", "cls"):
            shape = replace(tiny_package.shape_of(model), pooling=pooling)
            check_neighbours(runtime, shape, seed)


@pytest.mark.parametrize(
    ("node", "what"),
    [("penalty", "dense"), ("sparse.repeats.same", "weights"), ("sparse.norm.own", "weights")],
)
def test_a_graph_that_mixes_texts_is_noticed(tmp_path: Path, node: str, what: str) -> None:
    model = tiny_package.tiny_model()
    path = tmp_path / "model.onnx"
    graph.write(model, lexical_head(), path)
    wrong = onnx.load(path)
    [found] = (one for one in wrong.graph.node if one.name == node)
    [at] = (i for i, name in enumerate(found.input) if name == SAME_TEXT)
    found.input[at] = "everything"
    own = ["segments.column", "segments.column"]
    wrong.graph.node.insert(2, onnx.helper.make_node("Equal", own, ["everything"]))
    onnx.save(wrong, path)
    with pytest.raises(PackageError, match=f"a text's {what}.* what is beside it"):
        check_neighbours(Runtime(path, "f32"), tiny_package.shape_of(model))
