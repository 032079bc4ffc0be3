"""What the files of a model say that cannot be honoured: refused with file, key and reason."""

import re
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import pytest
from export_snapshots import PUBLISHED, change, copied

from default_package.errors import PackageError

NETWORK = "config.json"
POOLING = "1_Pooling/config.json"
MODULE = "sentence_bert_config.json"
TOKENIZER = "tokenizer_config.json"
MODEL = "config_sentence_transformers.json"
ROUTER = "router_config.json"
SPLADE = "document_1_SpladePooling"
STATIC = "query_0_SparseStaticEmbedding"
KINDS = "sentence_transformers.sparse_encoder.models"
Keys = dict[str, Any]
UNKNOWN: dict[str, Keys] = {
    "xlm-roberta": {"pad_token_id": None},
    "bert": {
        "model_type": "electra",
        "hidden_size": 0,
        "num_hidden_layers": "2",
        "layer_norm_eps": 0,
        "auto_map": {"AutoModel": "modeling.Own"},
        "quantization_config": {"bits": 4},
        "layer_types": ["full_attention", "full_attention"],
        "is_decoder": True,
    },
    "distilbert": {"model_type": None, "activation": "relu"},
    "mpnet": {"relative_attention_num_buckets": 64},
    "gemma3": {
        "use_bidirectional_attention": False,
        "query_pre_attn_scalar": 8,
        "layer_types": None,
        "attn_logit_softcapping": 50.0,
    },
    "gte": {"sliding_window": 128, "pack_qkv": False, "logn_attention_scale": True},
    "modernbert": {"norm_bias": True, "layer_types": ["full_attention", "chunked_attention"]},
    "nomic-bert": {
        "activation_function": "geglu",
        "num_experts": 8,
        "rotary_scaling_factor": 2,
        "intermediate_size": None,
    },
    "qwen3": {"use_sliding_window": True, "is_causal": False, "num_key_value_heads": 3},
}
"""Keys of config.json with values that the description of a network has no word for."""
OTHER_KINDS: dict[tuple[str, str], Keys] = {
    ("bert", NETWORK): {"model_type": [], "architectures": 3},
    ("gte", NETWORK): {"rope_parameters": "x", "rope_scaling": 8.0},
    ("gemma3", NETWORK): {"rope_parameters": True},
    ("gemma3", "2_Dense/config.json"): {"bias": None, "activation_function": {}},
    ("xlm-roberta", MODULE): {"model_args": True},
    ("xlm-roberta", MODEL): {"prompts": ["query"], "default_prompt_name": []},
    ("xlm-roberta-pairs", MODEL): {"prompts": "query"},
    ("bert-pairs", TOKENIZER): {"model_input_names": True},
    ("distilbert-words", f"{SPLADE}/config.json"): {"activation_function": []},
}
"""Model and file -> keys with values of a kind that nobody writes there."""
REFUSED: dict[tuple[str, str], list[tuple[Keys, str]]] = {
    ("bert", NETWORK): [
        ({"hidden_act": "gelu_new"}, "has hidden_act 'gelu_new': only 'gelu' can be exported of"),
        ({"position_embedding_type": "relative_key"}, "only 'absolute'"),
        ({"is_decoder": True}, "only False"),
        # A key of the file is no pattern for others.
        ({"*": False, "odd": 1}, "has odd 1: nobody here"),
    ],
    ("gte", NETWORK): [
        ({"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.6}}, "has mixed_b 0.6: "),
    ],
    ("nomic-bert", NETWORK): [
        # As version 2 has them.
        (
            {"num_experts": 8, "activation_function": "gelu", "qkv_proj_bias": True},
            "has num_experts 8: only 0 can be exported of nomic-bert models",
        ),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}, "has rope_type 'yarn': "),
        ({"rope_parameters": {"rope_theta": "fast"}}, "has rope_theta 'fast': "),
        (
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            "has partial_rotary_factor 0.5: ",
        ),
    ],
    ("xlm-roberta", POOLING): [
        (
            {"pooling_mode_cls_token": False, "pooling_mode_max_tokens": True},
            "has pooling_mode max_tokens: only cls, mean",
        ),
        ({"pooling_mode": "weightedmean"}, "has pooling_mode weightedmean"),
        ({"pooling_mode": ["cls", "mean"]}, "has pooling_mode cls, mean"),
        ({"include_prompt": False}, "has include_prompt False"),
        ({"layers": 4}, "has layers 4: nobody here"),
    ],
    ("xlm-roberta", MODULE): [
        ({"max_seq_length": 2}, "has max_seq_length 2: a number from 3"),
        ({"max_seq_length": "128"}, "has max_seq_length '128'"),
        ({"do_lower_case": True}, "has do_lower_case True: only False"),
        ({"transformer_task": "fill-mask"}, "has transformer_task 'fill-mask'"),
        ({"model_args": {"num_labels": 2}}, "has 'num_labels' in model_args"),
        ({"query_length": 32}, "has query_length 32: nobody"),
    ],
    ("xlm-roberta", TOKENIZER): [({"model_max_length": True}, "has model_max_length True")],
    ("xlm-roberta", MODEL): [
        ({"model_type": "SparseEncoder"}, "has model_type 'SparseEncoder'"),
        ({"default_prompt_name": "query"}, "has default_prompt_name 'query'"),
        (
            {"prompts": {"sts": "s: "}, "default_prompt_name": "sts"},
            "has default_prompt_name 'sts': only a prompt for queries or passages",
        ),
        ({"truncate_dim": 8}, "has truncate_dim 8: nobody"),
    ],
    ("gemma3", "2_Dense/config.json"): [
        ({"activation_function": "torch.nn.SiLU"}, "has activation_function 'torch.nn.SiLU'"),
        ({"activation_function": None}, "has activation_function None"),
        ({"module_input_name": "token_embeddings"}, "has module_input_name 'token_embeddings'"),
    ],
    ("xlm-roberta-pairs", NETWORK): [
        ({"id2label": {"0": "no", "1": "yes"}}, "with one label"),
        ({"id2label": None}, "with one label"),
        ({"model_type": "distilbert"}, "of bert, xlm-roberta, gte, modernbert can .* none"),
    ],
    ("modernbert-pairs", NETWORK): [
        ({"classifier_pooling": "max"}, "cls or mean is needed"),
        ({"classifier_bias": True}, "only False can be exported"),
    ],
    ("xlm-roberta-pairs", MODULE): [
        ({"transformer_task": "fill-mask"}, "has transformer_task 'fill-mask'"),
    ],
    ("xlm-roberta-pairs", MODEL): [
        ({"prompts": {"query": "q: "}}, "prompts .* cannot be served"),
        ({"model_type": "SentenceTransformer"}, "that of a CrossEncoder"),
    ],
    ("distilbert-words", f"{SPLADE}/config.json"): [
        ({"pooling_strategy": "sum"}, "has pooling_strategy 'sum': only 'max'"),
        ({"activation_function": "gelu"}, "has activation_function 'gelu': only relu or"),
        ({"temperature": 2}, "has temperature 2: nobody here understands it"),
    ],
    ("distilbert-words", MODULE): [
        ({"transformer_task": "feature-extraction"}, "has transformer_task"),
    ],
    ("distilbert-words", MODEL): [
        ({"model_type": "SentenceTransformer"}, "only SparseEncoder, a model of lexical weights"),
    ],
    ("distilbert-words", ROUTER): [
        ({"structure": {"query": []}}, "lacks 'document': routes for query"),
        (
            {"structure": {"query": [""], "document": ["", SPLADE]}},
            "has the modules MLMTransformer: only SparseStaticEmbedding can be served",
        ),
        (
            {"structure": {"query": [STATIC], "document": [STATIC]}},
            "only Transformer or MLMTransformer and SpladePooling can be served",
        ),
        (
            {"types": {STATIC: "own.SparseStaticEmbedding", "": "", SPLADE: ""}},
            "has the type 'own.SparseStaticEmbedding', code of the model's own",
        ),
        # The network of documents lies in the root.
        (
            {
                "types": {
                    STATIC: f"{KINDS}.SparseStaticEmbedding",
                    "document_0_T": "sentence_transformers.models.Transformer",
                    SPLADE: f"{KINDS}.SpladePooling",
                },
                "structure": {"query": [STATIC], "document": ["document_0_T", SPLADE]},
            },
            "its Transformer in 'document_0_T': only '' is read",
        ),
    ],
    ("distilbert-words", NETWORK): [
        ({"model_type": "mpnet"}, "SPLADE models of bert, distilbert can be exported"),
    ],
}
"""Model of tests/fixtures/families and file -> other keys and what is said of them."""
OF_NETWORKS = {(model, NETWORK): keys for model, keys in UNKNOWN.items()}
for place, keys in [*OF_NETWORKS.items(), *OTHER_KINDS.items()]:
    rows = [({key: value}, f"has {key} {re.escape(repr(value))}: ") for key, value in keys.items()]
    REFUSED.setdefault(place, []).extend(rows)


@pytest.mark.parametrize(
    ("model", "name", "keys", "message"),
    [(*place, *row) for place, rows in REFUSED.items() for row in rows],
)
def test_a_key_that_cannot_be_honoured_is_named_with_its_file(
    tmp_path: Path, model: str, name: str, keys: Keys, message: str
) -> None:
    folder = copied(model, tmp_path)
    change(folder / name, **keys)
    with pytest.raises(PackageError, match=f"{folder / name}.* {message}"):
        snapshots.open_encoder(folder)


ANGLES = "rope_parameters .*: what it says must"


@pytest.mark.parametrize(
    ("family", "keys", "message"),
    [
        # transformers has another number for local layers where nothing is said of them.
        (
            "gemma3",
            {"rope_local_base_freq": None, "rope_theta": 1e6},
            "rope_local_base_freq None: a",
        ),
        ("modernbert", {"local_rope_theta": None, "rope_theta": 1.6e5}, "local_rope_theta None: a"),
        # They are said of no kind of layer.
        ("gemma3", {"rope_parameters": {"rope_theta": 1e6}}, ANGLES),
        ("modernbert", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, ANGLES),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_theta": 1e5}, "factor": 4.0}},
            ANGLES,
        ),
    ],
)
def test_angles_of_each_kind_of_layer_must_be_said(
    tmp_path: Path, family: str, keys: Keys, message: str
) -> None:
    folder = copied(family, tmp_path)
    snapshots.put(folder / NETWORK, PUBLISHED[family] | keys)
    with pytest.raises(PackageError, match=f"config.json has {message}"):
        snapshots.open_encoder(folder)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"norm_eps": 1e-6}, "norm_eps 1e-06: nobody here"),
        ({"global_attn_every_n_layers": 2}, "layer_types .*_every_n_layers 2 says otherwise"),
    ],
)
def test_two_keys_that_contradict_each_other_are_refused(
    tmp_path: Path, keys: Keys, message: str
) -> None:
    folder = copied("modernbert", tmp_path)
    snapshots.put(folder / NETWORK, PUBLISHED["modernbert"] | keys)
    with pytest.raises(PackageError, match=f"config.json has {message}"):
        snapshots.open_encoder(folder)
