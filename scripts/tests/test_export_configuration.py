"""config.json of families: other ways to write the same network, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import numpy as np
import pytest

import families
from default_package.errors import PackageError
from fixtures import FAMILIES

NOMIC: dict[str, Any] = {
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "attn_pdrop": 0.1,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "dense_seq_output": True,
    "fused_bias_fc": True,
    "max_trained_positions": 2048,
    "pad_vocab_size_multiple": 64,
    "summary_type": "cls_index",
    "use_flash_attn": True,
    "use_xentropy": True,
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 32,
    "n_head": 4,
    "n_inner": 40,
    "n_layer": 2,
    "n_positions": 160,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "vocab_size": 96,
}
"""As its authors wrote it."""
GTE = {
    "model_type": "new",
    "hidden_act": "gelu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "max_position_embeddings": 160,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pack_qkv": True,
    "pad_token_id": 1,
    "position_embedding_type": "rope",
    "rope_scaling": None,
    "rope_theta": 160000,
    "type_vocab_size": 1,
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "unpad_inputs": True,
    "vocab_size": 96,
}
MODERNBERT = {
    "model_type": "modernbert",
    "attention_bias": False,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "local_attention": 16,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 160,
    "mlp_bias": False,
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 1,
    "position_embedding_type": "absolute",
    "reference_compile": True,
    "sparse_pred_ignore_index": -100,
    "vocab_size": 96,
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "_sliding_window_pattern": 6,
    "architectures": ["Gemma3TextModel"],
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "cache_implementation": "hybrid",
    "final_logit_softcapping": 30.0,
    "head_dim": 12,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 32,
    "intermediate_size": 40,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 160,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 1,
    "query_pre_attn_scalar": 12,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": 16,
    "use_bidirectional_attention": True,
    "vocab_size": 96,
}
QWEN3 = {
    "model_type": "qwen3",
    "bos_token_id": 2,
    "head_dim": 12,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "max_position_embeddings": 160,
    "max_window_layers": 28,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 1,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 96,
}
BERT = {
    "model_type": "bert",
    "directionality": "bidi",
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 160,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "pooler_fc_size": 768,
    "pooler_type": "first_token_transform",
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "vocab_size": 96,
}
DISTILBERT = {
    "model_type": "distilbert",
    "activation": "gelu",
    "attention_dropout": 0.1,
    "dim": 32,
    "hidden_dim": 40,
    "max_position_embeddings": 160,
    "n_heads": 4,
    "n_layers": 2,
    "pad_token_id": 0,
    "qa_dropout": 0.1,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
    "vocab_size": 96,
}
PUBLISHED = {
    "bert": BERT,
    "distilbert": DISTILBERT,
    "gemma3": GEMMA3,
    "gte": GTE,
    "modernbert": MODERNBERT,
    "nomic-bert": NOMIC,
    "qwen3": QWEN3,
}


def write(folder: Path, family: str, change: dict[str, Any], *, whole: bool = False) -> Path:
    """A copy of the family's model whose config.json has the keys of `change`, or only those."""
    copy = folder / family
    shutil.copytree(FAMILIES / family, copy)
    path = copy / "config.json"
    stored = {} if whole else json.loads(path.read_text())
    path.write_text(json.dumps(stored | change))
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


@pytest.mark.parametrize(("family", "config"), PUBLISHED.items())
def test_a_configuration_as_its_authors_write_it_is_the_same_network(
    tmp_path: Path, family: str, config: dict[str, Any]
) -> None:
    expected = snapshots.open_encoder(FAMILIES / family).architecture
    found = snapshots.open_encoder(write(tmp_path, family, config, whole=True)).architecture
    assert found == expected


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("bert", "auto_map", {"AutoModel": "modeling.Own"}),
        ("bert", "quantization_config", {"bits": 4}),
        ("bert", "layer_types", ["full_attention", "full_attention"]),
        ("gte", "sliding_window", 128),
        ("distilbert", "activation", "relu"),
        ("mpnet", "relative_attention_num_buckets", 64),
        ("gemma3", "use_bidirectional_attention", False),
        ("gemma3", "query_pre_attn_scalar", 8),
        ("gemma3", "layer_types", None),
        ("gemma3", "attn_logit_softcapping", 50.0),
        ("gte", "pack_qkv", False),
        ("gte", "logn_attention_scale", True),
        ("gte", "rope_scaling", {"type": "ntk", "factor": 8.0, "mixed_b": 0.6}),
        ("modernbert", "norm_bias", True),
        ("modernbert", "layer_types", ["full_attention", "chunked_attention"]),
        ("nomic-bert", "activation_function", "geglu"),
        ("qwen3", "use_sliding_window", True),
        ("qwen3", "num_key_value_heads", 3),
        ("nomic-bert", "num_experts", 8),
        ("nomic-bert", "rotary_scaling_factor", 2),
        ("nomic-bert", "rope_parameters", {"rope_theta": 1e4, "rope_type": "yarn"}),
        ("nomic-bert", "rope_parameters", {"rope_theta": "fast"}),
        ("nomic-bert", "rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("nomic-bert", "intermediate_size", None),
    ],
)
def test_what_a_description_cannot_say_is_refused_by_key_and_value(
    tmp_path: Path, family: str, key: str, value: object
) -> None:
    folder = write(tmp_path, family, {key: value})
    with pytest.raises(PackageError) as refused:
        snapshots.open_encoder(folder)
    named = list(value.items())[-1] if key.startswith("rope") else (key, value)
    assert f"config.json has {named[0]} {named[1]!r}: " in str(refused.value)


def test_angles_of_gte_are_those_of_its_own_code(tmp_path: Path) -> None:
    """NTKScalingRotaryEmbedding of the model's code, which transformers does not have."""
    scaling = {"rope_scaling": {"type": "ntk", "factor": 8.0}, "rope_theta": 20000}
    folder = write(tmp_path, "gte", GTE | scaling, whole=True)
    [rotary] = {one.rotary for one in snapshots.open_encoder(folder).architecture.attentions}
    assert rotary is not None
    width = 8
    speeds = 1.0 / (20000 * 8.0) ** (np.arange(0, width, 2) / width) / 8.0 ** (2 / width)
    expected = np.arange(160)[:, None] * speeds
    np.testing.assert_allclose(rotary.angles(160, width), expected, rtol=1e-12)
