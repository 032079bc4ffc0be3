"""Kinds of networks as data: one description each, for all that reads, writes or computes them.

It must be importable without numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

FULL = "full_attention"
"""Layers in which each token sees the whole text, as transformers names them."""
LOCAL = "sliding_attention"
"""Layers in which it sees only its neighbours."""
REQUIRED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu", None),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
}
OFF = (False, None)


@dataclass(frozen=True)
class Family:
    """One kind of network. The defaults are BERT's; sizes are each model's own."""

    name: str
    """The command line's word."""
    model_types: tuple[str, ...]
    """What its models have in config.json."""
    names: Mapping[str, str]
    """How published names begin -> all tensors that begin so: `our name=how theirs ends`.

    `#` is the layer's number. `encoder.tensor_shapes` says what our names mean. Names joined by `+`
    are one published tensor, whose rows they share in this order. What has no name is not there.
    """
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: REQUIRED)
    """Key of config.json -> the only values that this description is right for.

    None stands for an absent key.
    """
    padding_has_positions: bool = False
    """Whether rows up to the padding's id come before the first position's in the table."""
    biased: frozenset[str] = frozenset(("q", "k", "v", "ao", "fi", "fo", "ln"))
    """The parts that have a bias; `ln` stands for all norms."""
    norm_epsilon: float | None = None
    """Where config.json does not say it."""
    activation: str = "gelu"
    """One of `layers.ACTIVATIONS`."""
    rotary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind of layer -> the keys of config.json that may say how fast queries and keys turn with
    their position; none for networks whose positions do not turn them."""
    window: str = ""
    """The key of config.json with twice the largest distance of a neighbour in local layers."""
    full_every: tuple[str, int] = ("", 0)
    """Where config.json does not list the kinds of layers: the key that says of how many layers one
    is full, and the number of the first."""
    norm_before: bool = False
    """Whether attention and feed-forward are behind their norms, and not in front of them."""
    first_norm: bool = True
    """Whether the first layer has the norm of its attention."""
    head: str | None = None
    """The published name of a head that gives lexical weights, among the other weights."""

    @cached_property
    def published(self) -> dict[str, str]:
        """Our names, joined ones too -> the published ones."""
        found = {}
        for before, pairs in self.names.items():
            for ours, theirs in (pair.split("=") for pair in pairs.split()):
                found[ours] = before + theirs
        return found

    def has(self, part: str) -> bool:
        """Whether its networks have the tensor with this one of our names."""
        return any(part in name.split("+") for name in self.published)


BERT = Family(
    name="bert",
    model_types=("bert",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "embeddings.token_": "emb.type=type_embeddings",
        "encoder.layer.#.attention.self.": "q=query k=key v=value",
        "encoder.layer.#.attention.output.": "ao=dense aln=LayerNorm",
        "encoder.layer.#.": "fi=intermediate.dense fo=output.dense oln=output.LayerNorm",
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
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "transformer.layer.#.attention.": "q=q_lin k=k_lin v=v_lin ao=out_lin",
        "transformer.layer.#.": "aln=sa_layer_norm fi=ffn.lin1 fo=ffn.lin2 oln=output_layer_norm",
    },
    required={"activation": ("gelu", None)},
    norm_epsilon=1e-12,
)
MPNET = Family(
    name="mpnet",
    model_types=("mpnet",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "encoder.": "emb.rel=relative_attention_bias",
        "encoder.layer.#.attention.": "q=attn.q k=attn.k v=attn.v ao=attn.o aln=LayerNorm",
        "encoder.layer.#.": "fi=intermediate.dense fo=output.dense oln=output.LayerNorm",
    },
    required=REQUIRED | {"relative_attention_num_buckets": (32, None)},
    padding_has_positions=True,
)
NOMIC_OFF = """causal prenorm parallel_block qkv_proj_bias mlp_fc1_bias mlp_fc2_bias use_rms_norm
scale_attn_by_inverse_layer_idx rotary_emb_interleaved rotary_emb_scale_base rotary_scaling_factor
num_experts moe_every_n_layers"""
"""The last two are of version 2; `rotary_scaling_factor` turns longer texts in another way."""
NOMIC_BERT = Family(
    name="nomic-bert",
    model_types=("nomic_bert",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.type=token_type_embeddings",
        "": "emb.ln=emb_ln",
        "encoder.layers.#.": "q+k+v=attn.Wqkv ao=attn.out_proj aln=norm1 oln=norm2",
        "encoder.layers.#.mlp.": "fi=fc11 fg=fc12 fo=fc2",
    },
    required={
        "hidden_act": ("silu", None),
        "activation_function": ("swiglu", None),
        "rotary_emb_fraction": (1.0, None),
        "scale_attn_weights": (True, None),
    }
    | dict.fromkeys(NOMIC_OFF.split(), OFF),
    biased=frozenset(("ln",)),
    activation="silu",
    rotary={FULL: ("rope_theta", "rotary_emb_base")},
)
GTE = Family(
    name="gte",
    model_types=("new", "gte"),
    names={
        "embeddings.": "emb.word=word_embeddings emb.type=token_type_embeddings emb.ln=LayerNorm",
        "encoder.layer.#.attention.": "q+k+v=qkv_proj ao=o_proj",
        "encoder.layer.#.": "aln=attn_ln fi+fg=mlp.up_gate_proj fo=mlp.down_proj oln=mlp_ln",
    },
    required={
        "hidden_act": ("gelu", None),
        "position_embedding_type": ("rope", None),
        "layer_norm_type": ("layer_norm", None),
        "pack_qkv": (True, None),
        "logn_attention_scale": OFF,
    },
    biased=frozenset(("q", "k", "v", "ao", "fo", "ln")),
    rotary={FULL: ("rope_theta",)},
    head="classifier",
)
MODERNBERT = Family(
    name="modernbert",
    model_types=("modernbert",),
    names={
        "embeddings.": "emb.word=tok_embeddings emb.ln=norm",
        "layers.#.": "aln=attn_norm q+k+v=attn.Wqkv ao=attn.Wo oln=mlp_norm fg+fi=mlp.Wi fo=mlp.Wo",
        "": "fin.ln=final_norm",
    },
    required={
        "hidden_activation": ("gelu", None),
        "rope_scaling": (None,),
    }
    | dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias"), OFF),
    biased=frozenset(),
    rotary={FULL: ("global_rope_theta", "rope_theta"), LOCAL: ("local_rope_theta", "rope_theta")},
    window="local_attention",
    full_every=("global_attn_every_n_layers", 0),
    norm_before=True,
    first_norm=False,
)
FAMILIES = (BERT, XLM_ROBERTA, DISTILBERT, MPNET, NOMIC_BERT, GTE, MODERNBERT)
