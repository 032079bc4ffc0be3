"""Kinds of networks as data: one description each, for all that reads, writes or computes them.

It must be importable without numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FULL = "full_attention"
"""Layers in which each token sees the whole text, as transformers names them."""
SIZES: dict[str, str | float | tuple[str, ...]] = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocab_rows": "vocab_size",
    "positions": "max_position_embeddings",
    "type_rows": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
}
REQUIRED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu", None),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
}


@dataclass(frozen=True)
class Family:
    """One kind of network. The defaults are BERT's; sizes are each model's own."""

    name: str
    """The command line's word."""
    model_types: tuple[str, ...]
    """What its models have in config.json."""
    names: Mapping[str, str]
    """Our name of a tensor, without the layer and `.w` or `.b` -> the published one.

    `#` is the layer's number. `encoder.tensor_shapes` says what our names mean. Names joined by `+`
    are one published tensor, whose rows they share in this order.
    """
    sizes: Mapping[str, str | float | tuple[str, ...]] = field(default_factory=lambda: SIZES)
    """Field of `weights.Config` -> the key of config.json that says it, or the number itself.

    Of several keys the first that is there counts.
    """
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: REQUIRED)
    """Key of config.json -> the only values that this description is right for.

    None stands for an absent key.
    """
    padding_has_positions: bool = False
    """Whether rows up to the padding's id come before the first position's in the table."""
    biased: frozenset[str] = frozenset(("q", "k", "v", "ao", "fi", "fo", "ln"))
    """The parts that have a bias; `ln` stands for all norms."""
    activation: str = "gelu"
    """One of `layers.ACTIVATIONS`."""
    rotary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind of layer -> the keys of config.json that may say how fast queries and keys turn with
    their position; none for networks whose positions do not turn them."""
    head: str | None = None
    """The published name of a head that gives lexical weights, among the other weights."""

    def has(self, part: str) -> bool:
        """Whether its networks have the tensor with this one of our names."""
        return any(part in name.split("+") for name in self.names)


BERT = Family(
    name="bert",
    model_types=("bert",),
    names={
        "emb.word": "embeddings.word_embeddings",
        "emb.pos": "embeddings.position_embeddings",
        "emb.type": "embeddings.token_type_embeddings",
        "emb.ln": "embeddings.LayerNorm",
        "q": "encoder.layer.#.attention.self.query",
        "k": "encoder.layer.#.attention.self.key",
        "v": "encoder.layer.#.attention.self.value",
        "ao": "encoder.layer.#.attention.output.dense",
        "aln": "encoder.layer.#.attention.output.LayerNorm",
        "fi": "encoder.layer.#.intermediate.dense",
        "fo": "encoder.layer.#.output.dense",
        "oln": "encoder.layer.#.output.LayerNorm",
    },
)
XLM_ROBERTA = Family(
    name="xlm-roberta",
    model_types=("xlm-roberta", "roberta", "camembert"),
    names=BERT.names,
    padding_has_positions=True,
)
DISTILBERT = Family(
    name="distilbert",
    model_types=("distilbert",),
    names={
        "emb.word": "embeddings.word_embeddings",
        "emb.pos": "embeddings.position_embeddings",
        "emb.ln": "embeddings.LayerNorm",
        "q": "transformer.layer.#.attention.q_lin",
        "k": "transformer.layer.#.attention.k_lin",
        "v": "transformer.layer.#.attention.v_lin",
        "ao": "transformer.layer.#.attention.out_lin",
        "aln": "transformer.layer.#.sa_layer_norm",
        "fi": "transformer.layer.#.ffn.lin1",
        "fo": "transformer.layer.#.ffn.lin2",
        "oln": "transformer.layer.#.output_layer_norm",
    },
    sizes={
        "hidden": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "ffn": "hidden_dim",
        "vocab_rows": "vocab_size",
        "positions": "max_position_embeddings",
        "type_rows": 0,
        "layer_norm_epsilon": 1e-12,
    },
    required={"activation": ("gelu", None)},
)
MPNET = Family(
    name="mpnet",
    model_types=("mpnet",),
    names={
        "emb.word": "embeddings.word_embeddings",
        "emb.pos": "embeddings.position_embeddings",
        "emb.ln": "embeddings.LayerNorm",
        "emb.rel": "encoder.relative_attention_bias",
        "q": "encoder.layer.#.attention.attn.q",
        "k": "encoder.layer.#.attention.attn.k",
        "v": "encoder.layer.#.attention.attn.v",
        "ao": "encoder.layer.#.attention.attn.o",
        "aln": "encoder.layer.#.attention.LayerNorm",
        "fi": "encoder.layer.#.intermediate.dense",
        "fo": "encoder.layer.#.output.dense",
        "oln": "encoder.layer.#.output.LayerNorm",
    },
    sizes=SIZES | {"type_rows": 0},
    required=REQUIRED | {"relative_attention_num_buckets": (32, None)},
    padding_has_positions=True,
)
NOMIC_BERT = Family(
    name="nomic-bert",
    model_types=("nomic_bert",),
    names={
        "emb.word": "embeddings.word_embeddings",
        "emb.type": "embeddings.token_type_embeddings",
        "emb.ln": "emb_ln",
        "q+k+v": "encoder.layers.#.attn.Wqkv",
        "ao": "encoder.layers.#.attn.out_proj",
        "aln": "encoder.layers.#.norm1",
        "fi": "encoder.layers.#.mlp.fc11",
        "fg": "encoder.layers.#.mlp.fc12",
        "fo": "encoder.layers.#.mlp.fc2",
        "oln": "encoder.layers.#.norm2",
    },
    # Its authors named them as GPT-2 does, transformers names them as BERT.
    sizes={
        "hidden": ("hidden_size", "n_embd"),
        "layers": ("num_hidden_layers", "n_layer"),
        "heads": ("num_attention_heads", "n_head"),
        "ffn": ("intermediate_size", "n_inner"),
        "vocab_rows": "vocab_size",
        "positions": ("max_position_embeddings", "n_positions"),
        "type_rows": "type_vocab_size",
        "layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon"),
    },
    required={
        "hidden_act": ("silu", None),
        "activation_function": ("swiglu", None),
        "causal": (False, None),
        "prenorm": (False, None),
        "parallel_block": (False, None),
        "qkv_proj_bias": (False, None),
        "mlp_fc1_bias": (False, None),
        "mlp_fc2_bias": (False, None),
        "use_rms_norm": (False, None),
        "scale_attn_weights": (True, None),
        "scale_attn_by_inverse_layer_idx": (False, None),
        "rotary_emb_fraction": (1.0, None),
        "rotary_emb_interleaved": (False, None),
        "rotary_emb_scale_base": (None,),
        # Longer texts would turn faster.
        "rotary_scaling_factor": (None,),
        # Version 2 has experts.
        "num_experts": (0, None),
        "moe_every_n_layers": (0, None),
    },
    biased=frozenset(("ln",)),
    activation="silu",
    rotary={FULL: ("rope_theta", "rotary_emb_base")},
)
GTE = Family(
    name="gte",
    model_types=("new", "gte"),
    names={
        "emb.word": "embeddings.word_embeddings",
        "emb.type": "embeddings.token_type_embeddings",
        "emb.ln": "embeddings.LayerNorm",
        "q+k+v": "encoder.layer.#.attention.qkv_proj",
        "ao": "encoder.layer.#.attention.o_proj",
        "aln": "encoder.layer.#.attn_ln",
        "fi+fg": "encoder.layer.#.mlp.up_gate_proj",
        "fo": "encoder.layer.#.mlp.down_proj",
        "oln": "encoder.layer.#.mlp_ln",
    },
    required={
        "hidden_act": ("gelu", None),
        "position_embedding_type": ("rope", None),
        "layer_norm_type": ("layer_norm", None),
        "pack_qkv": (True, None),
        "logn_attention_scale": (False, None),
    },
    biased=frozenset(("q", "k", "v", "ao", "fo", "ln")),
    rotary={FULL: ("rope_theta",)},
    head="classifier",
)
FAMILIES = (BERT, XLM_ROBERTA, DISTILBERT, MPNET, NOMIC_BERT, GTE)
