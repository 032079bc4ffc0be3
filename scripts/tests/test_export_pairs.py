"""Cross-encoders: the package of one, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import numpy as np
import pytest
from export_packages import check_files, made, refusal
from export_snapshots import change, copied

from default_package.checks import Runtime
from default_package.choices import Pooling
from default_package.errors import PackageError
from fixtures import FAMILIES
from model_export import sentence, snapshot
from model_export.modules import STEADY
from quantization.score import Package

TASK = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
MODULE = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied("xlm-roberta-pairs", tmp_path)


@pytest.mark.parametrize("family", ["xlm-roberta", "bert", "modernbert"])
def test_the_package_of_a_cross_encoder_scores_as_transformers_does(
    family: str, tmp_path: Path
) -> None:
    folder, out = copied(f"{family}-pairs", tmp_path), tmp_path / "out"
    manifest = made(out, "--model", folder, "--precision", "fp32")
    check_files(out)
    assert (manifest["kind"], manifest["hidden_size"]) == ("cross-encoder", 2)
    pooling = "mean" if family == "modernbert" else "cls"
    assert (manifest["pooling"], manifest["sparse"], manifest["prompts"]) == (pooling, None, {})
    assert manifest["max_input_tokens"] == 160
    assert manifest["sources"]["pooling"] == "config.json, architectures"
    pairs = json.loads((folder / "expected.json").read_text())["texts"]
    runtime = Runtime(out / "model.onnx")
    found = runtime.run([pair["ids"] for pair in pairs], pooling)
    logits = [STEADY * row.dense[0] / row.dense[1] for row in found]
    np.testing.assert_allclose(logits, [pair["logit"] for pair in pairs], atol=1e-4)
    with pytest.raises(PackageError, match="is a cross-encoder model: only graphs"):
        Package.load(out)


def test_files_of_sentence_transformers_are_those_of_the_same_model(folder: Path) -> None:
    plain = sentence.read(folder)
    snapshots.put(folder / "modules.json", [MODULE])
    change(folder / "sentence_bert_config.json", **TASK, max_seq_length=20)
    about = {"model_type": "CrossEncoder", "prompts": {}, "activation_fn": "torch.nn.Sigmoid"}
    change(folder / "config_sentence_transformers.json", **about)
    change(folder / "config.json", sentence_transformers={"activation_fn": "torch.nn.Identity"})
    said = sentence.read(folder)
    assert (said.scorer, said.pooling, said.tokens_max) == (plain.scorer, Pooling.CLS, 20)
    snapshots.open_encoder(folder)


def test_modules_of_a_cross_encoder_are_checked(folder: Path) -> None:
    for modules, message in [
        ([MODULE | {"type": "custom_st.Transformer"}], "custom_st.Transformer', code of the model"),
        ([MODULE | {"path": "0_T"}], "its Transformer in '0_T'"),
        ([MODULE, MODULE], "the modules Transformer, Transformer: only Transformer"),
    ]:
        snapshots.put(folder / "modules.json", modules)
        with pytest.raises(PackageError, match=message):
            sentence.read(folder)


def test_a_classifier_with_a_pooling_is_a_model_of_vectors(folder: Path) -> None:
    assert sentence.read(folder, Pooling.MEAN).scorer is None
    snapshots.write_modules(folder, Pooling.CLS)
    assert sentence.read(folder).scorer is None


def test_a_classifier_of_texts_gives_no_lexical_weights(tmp_path: Path) -> None:
    folder = copied("gte-pairs", tmp_path)
    assert snapshots.open_encoder(folder, Pooling.CLS).head is None
    change(folder / "config.json", architectures=["GteForTokenClassification"])
    assert snapshots.open_encoder(folder, Pooling.CLS).head is not None


def test_shapes_are_enough_to_check_one_whose_weights_are_not_there(folder: Path) -> None:
    headers = snapshots.headers(folder)
    said = sentence.read(folder)
    snapshot.open_encoder(folder, said, headers)
    for name in ("classifier.dense.bias", "classifier.out_proj.weight"):
        less = {key: one for key, one in headers.items() if key != name}
        with pytest.raises(PackageError, match=f"the weights lack the tensor {name}"):
            snapshot.open_encoder(folder, said, less)


@pytest.mark.parametrize(
    ("model", "name", "keys", "message"),
    [
        ("xlm-roberta", "config.json", {"id2label": {"0": "no", "1": "yes"}}, "with one label"),
        ("xlm-roberta", "config.json", {"id2label": None}, "with one label"),
        ("distilbert", "config.json", {}, "of bert, xlm-roberta, gte, modernbert can .* none"),
        ("modernbert", "config.json", {"classifier_pooling": "max"}, "cls or mean is needed"),
        ("modernbert", "config.json", {"classifier_bias": True}, "only False can be exported"),
        ("xlm-roberta", "sentence_bert_config.json", {"transformer_task": "fill-mask"}, "fill-m"),
        (
            "xlm-roberta",
            "config_sentence_transformers.json",
            {"prompts": {"query": "q: "}},
            "prompts .* cannot be served",
        ),
        (
            "xlm-roberta",
            "config_sentence_transformers.json",
            {"model_type": "SentenceTransformer"},
            "that of a CrossEncoder",
        ),
    ],
)
def test_another_cross_encoder_is_refused_by_what_it_lacks(
    tmp_path: Path, model: str, name: str, keys: dict[str, Any], message: str
) -> None:
    folder = shutil.copytree(FAMILIES / model, tmp_path / "model")
    (folder / "modules.json").unlink()
    named = {"architectures": ["AnyForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    change(folder / "config.json", **named)
    change(folder / name, **keys)
    with pytest.raises(PackageError, match=message):
        sentence.read(folder)


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


def test_what_only_models_of_vectors_have_cannot_be_asked_for(folder: Path, tmp_path: Path) -> None:
    for flags in (["--query-prompt", "q: "], ["--shorter-vectors", "1"], ["--token-vectors"]):
        said = refusal("--model", folder, "--out", tmp_path / "out", *flags)
        assert "is a cross-encoder" in said
