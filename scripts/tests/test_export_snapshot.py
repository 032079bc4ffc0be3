"""Reading snapshots: families, poolings, missing and wrong tensors."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import pytest

import export_onnx
from default_package.encoder import tensor_shapes
from default_package.errors import PackageError
from families import BERT, XLM_ROBERTA, Family
from fixtures import random_encoder
from model_export import sentence, snapshot


def rewrite(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    snapshots.write_safetensors(folder / "model.safetensors", tensors)


@pytest.mark.parametrize(
    ("family", "container", "kind", "prefix"),
    [
        (XLM_ROBERTA, "safetensors", "F32", ""),
        (XLM_ROBERTA, "safetensors", "BF16", "roberta."),
        (XLM_ROBERTA, "torch", "F32", ""),
        (BERT, "torch", "F16", "bert."),
        (BERT, "safetensors", "F16", ""),
    ],
)
def test_every_tensor_comes_back_under_its_own_name(
    tmp_path: Path, family: Family, container: str, kind: str, prefix: str
) -> None:
    written = snapshots.write(tmp_path, family, container=container, kind=kind, prefix=prefix)
    encoder = snapshots.open_encoder(tmp_path)
    assert encoder.architecture == written.encoder.architecture
    assert encoder.head is not None and written.encoder.head is not None
    assert encoder.head.weights == written.encoder.head.weights
    assert np.float32(encoder.head.bias) == np.float32(written.encoder.head.bias)
    for name in tensor_shapes(encoder.architecture):
        value = written.encoder.tensor(name)
        np.testing.assert_array_equal(encoder.tensor(name), value)
    rows = slice(440, 450)
    np.testing.assert_array_equal(encoder.word_rows(rows), written.encoder.word_rows(rows))


def test_weights_may_be_in_several_files(tmp_path: Path) -> None:
    written = snapshots.write(tmp_path)
    tensors = snapshots.published(written.encoder, "")
    names = list(tensors)
    (tmp_path / "model.safetensors").unlink()
    parts = {f"part-{i}.safetensors": names[i::2] for i in range(2)}
    for part, held in parts.items():
        snapshots.write_safetensors(tmp_path / part, {name: tensors[name] for name in held})
    weight_map = {name: part for part, held in parts.items() for name in held}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    encoder = snapshots.open_encoder(tmp_path)
    value = written.encoder.tensor("l1.fo.w")
    np.testing.assert_array_equal(encoder.tensor("l1.fo.w"), value)
    for bad in ("../part-0.safetensors", "absent.safetensors"):
        index.write_text(json.dumps({"weight_map": {"a": bad}}))
        with pytest.raises(PackageError, match="no file beside it"):
            snapshots.open_encoder(tmp_path)


def test_the_names_of_the_first_bert_models_are_known(tmp_path: Path) -> None:
    written = snapshots.write(tmp_path)
    tensors = snapshots.published(written.encoder, "")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in tensors.items()
    }
    rewrite(tmp_path, old)
    encoder = snapshots.open_encoder(tmp_path)
    np.testing.assert_array_equal(encoder.tensor("l0.aln.w"), written.encoder.tensor("l0.aln.w"))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    written = snapshots.write(tmp_path)
    for name in ("encoder.layer.1.output.dense.bias", "embeddings.LayerNorm.weight"):
        tensors = snapshots.published(written.encoder, "")
        del tensors[name]
        rewrite(tmp_path, tensors)
        with pytest.raises(PackageError, match="lack the tensor"):
            snapshots.open_encoder(tmp_path)
    rewrite(tmp_path, {})
    with pytest.raises(PackageError, match="have 0 tables"):
        snapshots.open_encoder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(PackageError, match="has no weights"):
        snapshots.open_encoder(tmp_path)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    written = snapshots.write(tmp_path)
    tensors = snapshots.published(written.encoder, "")
    tensors["encoder.layer.0.intermediate.dense.weight"] = np.zeros((16, 24), np.float32)
    rewrite(tmp_path, tensors)
    with pytest.raises(PackageError, match=r"intermediate\.dense\.weight .*shape \[16, 24\]"):
        snapshots.open_encoder(tmp_path)


def test_a_head_of_another_width_is_named(tmp_path: Path) -> None:
    snapshots.write(tmp_path)
    head = {"weight": np.zeros((1, 8), np.float32), "bias": np.zeros(1, np.float32)}
    snapshots.write_torch(tmp_path / "sparse_linear.pt", head)
    with pytest.raises(PackageError, match=r"sparse_linear\.pt has shape \[1, 8\]"):
        snapshots.open_encoder(tmp_path)


def test_more_layers_than_the_configuration_says_are_refused(tmp_path: Path) -> None:
    written = snapshots.write(tmp_path)
    sizes = replace(written.encoder.sizes, layers=1)
    shallow = replace(written.encoder.architecture, sizes=sizes)
    snapshots.write_config(tmp_path, shallow)
    with pytest.raises(PackageError, match="the weights have 2 layers, config.json says 1"):
        snapshots.open_encoder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "electra"}, "has model_type 'electra'"),
        ({"model_type": None}, "has model_type None"),
        ({"hidden_act": "gelu_new"}, "hidden_act 'gelu_new': only 'gelu' can be exported of"),
        ({"position_embedding_type": "relative_key"}, "only 'absolute'"),
        ({"is_decoder": True}, "is_decoder True: only False"),
        ({"hidden_size": 0}, "hidden_size 0"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers '2'"),
        ({"num_attention_heads": 3}, "3 heads cannot share"),
        ({"layer_norm_eps": 0}, "layer_norm_eps 0"),
        ({"pad_token_id": None}, "pad_token_id None"),
        ({"vocab_size": 451}, r"asks for \[451, 16\]"),
    ],
)
def test_a_configuration_that_cannot_be_exported_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    written = snapshots.write(tmp_path)
    snapshots.write_config(tmp_path, written.encoder.architecture, **change)
    with pytest.raises(PackageError, match=message):
        snapshots.open_encoder(tmp_path)


@pytest.mark.parametrize(
    ("about", "made", "key"),
    [
        # As models are published.
        ({"tokenizer_class": "BertTokenizer", "strip_accents": None}, {}, ""),
        ({"tokenizer_class": "MPNetTokenizer", "do_lower_case": False}, {"lowercase": False}, ""),
        ({"do_lower_case": True, "model_max_length": 512}, {}, ""),
        ({"strip_accents": True}, {}, ""),
        ({"strip_accents": False}, {"strip_accents": False}, ""),
        # Its class takes tokenizer.json as it is.
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, {"lowercase": False}, ""),
        (None, {"lowercase": False}, "do_lower_case None"),
        ({"tokenizer_class": "BertTokenizerFast"}, {"lowercase": False}, "do_lower_case None"),
        ({"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False}, {}, "do_lower_case F"),
        ({"strip_accents": False}, {}, "strip_accents False"),
        ({"strip_accents": None}, {"strip_accents": False}, "strip_accents None"),
        ({"tokenize_chinese_chars": False}, {}, "tokenize_chinese_chars False"),
    ],
)
def test_a_tokenizer_that_transformers_reads_otherwise_is_refused(
    tmp_path: Path, about: dict[str, object] | None, made: dict[str, object], key: str
) -> None:
    """The cases were compared with what transformers 5.24 makes of the two files."""
    folder = snapshots.write(tmp_path, BERT).folder
    steps = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    steps |= {"strip_accents": None, "lowercase": True} | made
    snapshots.change(folder / "tokenizer.json", normalizer=steps)
    if about is not None:
        snapshots.put(folder / "tokenizer_config.json", about)
    options = export_onnx._parser().parse_args(["--model", str(folder)])
    if not key:
        snapshot.check(folder, os.listdir(folder), options)
        return
    with pytest.raises(PackageError, match=f"tokenizer_config.json has {key}.* goes by it, and "):
        snapshot.check(folder, os.listdir(folder), options)


@pytest.mark.parametrize("family", ["gte", "modernbert", "nomic-bert"])
def test_shapes_are_enough_to_check_a_tensor_that_several_share(
    tmp_path: Path, family: str
) -> None:
    folder = snapshots.copied(family, tmp_path)
    headers, said = snapshots.headers(folder), sentence.read(folder)
    snapshot.open_encoder(folder, said, headers)
    [name] = (
        name for name in headers if re.search(r"0\.attn?(ention)?\.(Wqkv|qkv_proj)\.weight", name)
    )
    headers[name].shape[0] += 1
    with pytest.raises(PackageError, match=f"tensor {name} of the weights has shape"):
        snapshot.open_encoder(folder, said, headers)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_folder_without_a_configuration_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(PackageError, match="config.json"):
        snapshots.open_encoder(tmp_path)


def test_random_numbers_have_the_mean_0_and_the_deviation_1() -> None:
    whole = random_encoder.make(snapshots.architecture(), 3, with_head=True).word_rows(slice(None))
    assert abs(float(whole.mean())) < 0.05
    assert abs(float(whole.std()) - 1.0) < 0.05
