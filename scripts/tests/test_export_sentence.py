"""What sentence-transformers reads beside the network: honoured, or refused with file and key."""

import json
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import pytest
from export_packages import made, refusal
from export_snapshots import change, put

from default_package.choices import Pooling
from default_package.errors import PackageError
from families import BERT
from model_export import sentence, snapshot
from model_export.sentence import SCALED

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


def test_the_manifest_says_what_was_taken_and_from_where(folder: Path, tmp_path: Path) -> None:
    put(folder / POOLING, {"pooling_mode_mean_tokens": True})
    put(folder / MODULE, {"max_seq_length": 12})
    prompts = {"query": "q: ", "document": "d: ", "sts": "s: "}
    put(folder / MODEL, {"prompts": prompts, "default_prompt_name": "document"})
    exporting = [tmp_path / "out", "--model", folder, "--precision", "fp32", "--skip-verify"]
    manifest = made(*exporting)
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
    manifest = made(*exporting, *flags)
    assert (manifest["pooling"], manifest["max_input_tokens"]) == ("cls", 30)
    assert manifest["prompts"] == {"query": "x ", "passage": "d: "}
    assert manifest["sources"] == {
        "pooling": "--pooling",
        "max_input_tokens": "--max-tokens",
        "prompts": f"--query-prompt, {sent_by_clients}",
    }


def test_a_text_has_no_more_tokens_than_the_network_has_positions(
    folder: Path, tmp_path: Path
) -> None:
    put(folder / MODULE, {"max_seq_length": PLACES + 2})
    exporting = ["--model", folder, "--precision", "fp32", "--skip-verify"]
    manifest = made(tmp_path / "out", *exporting)
    assert manifest["max_input_tokens"] == PLACES
    assert manifest["sources"]["max_input_tokens"] == "config.json"
    said = refusal(*exporting, "--out", tmp_path / "other", "--max-tokens", PLACES + 1)
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
    folder: Path,
    tmp_path: Path,
    stored: Any,
    flags: list[str],
    found: list[int],
    source: str | None,
) -> None:
    change(folder / "config.json", matryoshka_dimensions=stored)
    exporting = [tmp_path / "out", "--model", folder, "--precision", "fp32", "--skip-verify"]
    manifest = made(*exporting, *flags)
    assert manifest["matryoshka_dimensions"] == found
    assert manifest["sources"].get("matryoshka_dimensions") == source


@pytest.mark.parametrize("wrong", [[17], ["8"], "8", [0], [True]])
def test_vectors_that_cannot_be_cut_so_are_refused(
    folder: Path, tmp_path: Path, wrong: Any
) -> None:
    exporting = ["--model", folder, "--precision", "fp32", "--out", tmp_path / "out"]
    said = refusal(*exporting, "--shorter-vectors", "4,16")
    assert "--shorter-vectors: numbers from 1 to 15" in said
    change(folder / "config.json", matryoshka_dimensions=wrong)
    assert "config.json has matryoshka_dimensions" in refusal(*exporting)


def test_what_no_file_says_has_a_source_too(folder: Path) -> None:
    (folder / TOKENIZER).unlink(missing_ok=True)
    assert sentence.read(folder, Pooling.CLS).sources == {
        "pooling": "--pooling",
        "max_input_tokens": "config.json",
        "prompts": "no file has one",
    }


REFUSED = [
    (POOLING, {"pooling_mode_max_tokens": True}, "has pooling_mode max_tokens: only cls, mean"),
    (POOLING, {"pooling_mode": "weightedmean"}, "has pooling_mode weightedmean"),
    (POOLING, {"pooling_mode": ["cls", "mean"]}, "has pooling_mode cls, mean"),
    (POOLING, {"pooling_mode": "cls", "include_prompt": False}, "has include_prompt False"),
    (POOLING, {"pooling_mode": "cls", "layers": 4}, "has layers 4: nobody here"),
    (MODULE, {"max_seq_length": 2}, "has max_seq_length 2: a number from 3"),
    (MODULE, {"max_seq_length": "128"}, "has max_seq_length '128'"),
    (MODULE, {"do_lower_case": True}, "has do_lower_case True: only False"),
    (MODULE, {"transformer_task": "fill-mask"}, "has transformer_task 'fill-mask'"),
    (MODULE, {"model_args": {"num_labels": 2}}, "has 'num_labels' in model_args"),
    (MODULE, {"query_length": 32}, "has query_length 32: nobody"),
    (TOKENIZER, {"model_max_length": True}, "has model_max_length True"),
    (MODEL, {"model_type": "SparseEncoder"}, "has model_type 'SparseEncoder'"),
    (MODEL, {"default_prompt_name": "query"}, "has default_prompt_name 'query'"),
    (
        MODEL,
        {"prompts": {"sts": "s: "}, "default_prompt_name": "sts"},
        "has default_prompt_name 'sts': only a prompt for queries or passages",
    ),
    (MODEL, {"truncate_dim": 8}, "has truncate_dim 8: nobody"),
    ("modules.json", {"a": 1}, "is not a list of modules"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_a_key_that_cannot_be_honoured_is_named(
    folder: Path, name: str, content: Any, message: str
) -> None:
    put(folder / name, content)
    with pytest.raises(PackageError) as refused:
        sentence.read(folder)
    assert f"{folder / name} {message}" in str(refused.value)


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
