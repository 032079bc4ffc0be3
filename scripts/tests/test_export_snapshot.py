"""Snapshots: config.json of families, the tokenizer's, and missing and wrong tensors."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import numpy as np
import pytest
from export_snapshots import PUBLISHED

import export_onnx
import families
from default_package.encoder import WORD_TABLE, tensor_shapes
from default_package.errors import PackageError
from families import BERT, XLM_ROBERTA, Family
from fixtures import FAMILIES, random_encoder
from model_export import sentence, snapshot
from model_export.configuration import NORM_EPSILON, SIZES


def write(folder: Path, family: str, change: dict[str, Any], *, whole: bool = False) -> Path:
    """A copy of the family's model whose config.json has the keys of `change`, or only those."""
    copy = shutil.copytree(FAMILIES / family, folder / family)
    path = copy / "config.json"
    if whole:
        path.unlink()
    snapshots.change(path, **change)
    return copy


@pytest.mark.parametrize("family", [family.name for family in families.FAMILIES])
def test_a_key_that_nobody_understands_is_refused_unless_it_says_nothing(
    tmp_path: Path, family: str
) -> None:
    for nothing in (None, False, [], {}):
        folder = write(tmp_path / repr(nothing), family, {"residual_scale": nothing})
        snapshots.open_encoder(folder)
    folder = write(tmp_path, family, {"residual_scale": 2.0})
    with pytest.raises(PackageError, match=r"config.json has residual_scale 2.0: nobody here"):
        snapshots.open_encoder(folder)


@pytest.mark.parametrize("family", [family.name for family in families.FAMILIES])
def test_another_name_of_a_number_without_a_value_says_nothing(tmp_path: Path, family: str) -> None:
    known = json.loads((FAMILIES / family / "config.json").read_text())
    names = [*SIZES.values(), NORM_EPSILON, ("is_causal", "global_attn_every_n_layers")]
    nothing = {key: None for keys in names for key in keys if key not in known}
    found = snapshots.open_encoder(write(tmp_path, family, nothing)).architecture
    assert found == snapshots.open_encoder(FAMILIES / family).architecture


@pytest.mark.parametrize(("family", "config"), PUBLISHED.items())
def test_a_configuration_as_its_authors_write_it_is_the_same_network(
    tmp_path: Path, family: str, config: dict[str, Any]
) -> None:
    expected = snapshots.open_encoder(FAMILIES / family).architecture
    found = snapshots.open_encoder(write(tmp_path, family, config, whole=True)).architecture
    assert found == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 3}, "3 heads cannot share"),
        ({"vocab_size": 451}, r"asks for \[451, 32\]"),
    ],
)
def test_a_configuration_that_is_not_of_its_weights_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(PackageError, match=message):
        snapshots.open_encoder(write(tmp_path, "bert", change))


def test_a_key_that_transformers_does_not_read_changes_no_angles(tmp_path: Path) -> None:
    """Its ModernBERT has two keys, one for each kind of layer, and no third for both."""
    config = PUBLISHED["modernbert"]
    assert {"global_rope_theta", "local_rope_theta"} <= config.keys()
    expected = snapshots.open_encoder(write(tmp_path / "two", "modernbert", config, whole=True))
    config = config | {"rope_theta": 12345.0}
    found = snapshots.open_encoder(write(tmp_path / "three", "modernbert", config, whole=True))
    assert found.architecture == expected.architecture


def test_angles_of_gte_are_those_of_its_own_code(tmp_path: Path) -> None:
    """NTKScalingRotaryEmbedding of the model's code, which transformers does not have."""
    scaling = {"rope_scaling": {"type": "ntk", "factor": 8.0}, "rope_theta": 20000}
    folder = write(tmp_path, "gte", PUBLISHED["gte"] | scaling, whole=True)
    [rotary] = {one.rotary for one in snapshots.open_encoder(folder).architecture.attentions}
    assert rotary is not None
    width = 8
    speeds = 1.0 / (20000 * 8.0) ** (np.arange(0, width, 2) / width) / 8.0 ** (2 / width)
    expected = np.arange(160)[:, None] * speeds
    np.testing.assert_allclose(rotary.angles(160, width), expected, rtol=1e-12)


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
    np.testing.assert_array_equal(
        *(one.read(WORD_TABLE, rows) for one in (encoder, written.encoder))
    )


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
    for new, old in (("Norm.weight", "Norm.gamma"), ("Norm.bias", "Norm.beta")):
        tensors = {name.replace(new, old): value for name, value in tensors.items()}
    rewrite(tmp_path, tensors)
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
    snapshots.change(snapshots.write(tmp_path).folder / "config.json", num_hidden_layers=1)
    with pytest.raises(PackageError, match="the weights have 2 layers, config.json says 1"):
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


def test_the_class_of_a_tokenizer_must_be_a_text(tmp_path: Path) -> None:
    folder = snapshots.write(tmp_path, BERT).folder
    snapshots.put(folder / "tokenizer_config.json", {"tokenizer_class": 3})
    options = export_onnx._parser().parse_args(["--model", str(folder)])
    with pytest.raises(PackageError, match="has tokenizer_class 3: a text is needed"):
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
    made = random_encoder.make(snapshots.architecture(), 3, with_head=True)
    whole = made.tensor(WORD_TABLE)
    assert abs(float(whole.mean())) < 0.05
    assert abs(float(whole.std()) - 1.0) < 0.05
