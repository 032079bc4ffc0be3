"""Kinds of networks as data, for all that reads, writes or computes them.

They must be importable without numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

FULL = "full_attention"
"""Layers in which each token sees the whole text, as transformers names them."""
LOCAL = "sliding_attention"  # layers in which it sees only its neighbours
REQUIRED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu", None),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
}
OFF = (False, None)


@dataclass(frozen=True)
class Scorer:
    """The head of a cross-encoder: product, activation, norm, and what gives the score."""

    activation: str = "tanh"  # `tanh` or `gelu`
    biased: bool = True  # whether the first product has a bias
    pooling: str = ""
    """The key of config.json that says what the head is given; else the first token."""


@dataclass(frozen=True)
class Family:
    """One kind of network. The defaults are BERT's; sizes are each model's own."""

    name: str  # the command line's word
    model_types: tuple[str, ...]  # what its models have in config.json
    names: Mapping[str, str]
    """How published names begin -> all tensors that begin so: `our name=how theirs ends`.

    `#` is the layer's number. `encoder.tensor_shapes` says what our names mean. Names joined by `+`
    are one published tensor, whose rows they share in this order. What has no name is not there.
    `*` stands for anything: `dense0` and `dense1` are the head of its cross-encoders, `mlm` and
    `words` that of its models for masked words, if they can be served.
    """
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: REQUIRED)
    """Key of config.json -> the only values that this description is right for.

    None stands for an absent key.
    """
    harmless: str = ""
    """Keys of config.json that change nothing where it has the values of `required`."""
    padding_has_positions: bool = False
    """Whether rows up to the padding's id come before the first position's in the table."""
    scaled_words: bool = False  # whether words are multiplied by the root of their width
    biased: frozenset[str] = frozenset(("q", "k", "v", "ao", "fi", "fo", "ln"))
    """The parts that have a bias; `ln` stands for all norms."""
    rms: bool = False  # whether norms divide by the root mean square, and leave the mean as it is
    norm_adds_one: bool = False
    """Whether the weights of norms are stored without the one that is added to them."""
    norm_epsilon: float | None = None  # where config.json does not say it
    activation: str = "gelu"  # `gelu`, `gelu_tanh` (as it is computed in fewer steps) or `silu`
    rotary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind of layer -> the keys of config.json that may say how fast queries and keys turn with
    their position, if `rope_parameters` does not; none for networks whose positions do not turn
    them."""
    causal: bool = False  # whether a token sees only what comes before it, and itself
    window: str = ""
    """The key of config.json with twice the largest distance of a neighbour in local layers."""
    full_every: str = ""
    """The key that says of how many layers one is full, beginning with the first, where config.json
    does not list their kinds."""
    norm_before: bool = False
    """Whether attention and feed-forward are behind their norms, and not in front of them."""
    first_norm: bool = True  # whether the first layer has the norm of its attention
    own_code: bool = False
    """Whether config.json names code of the model's own, for which this description stands."""
    head: str | None = None
    """The published name of a head that gives lexical weights, among the other weights."""
    scorer: Scorer = Scorer()  # what is special of the head of its cross-encoders

    @cached_property
    def published(self) -> dict[str, str]:
        """Our names, joined ones too -> the published ones."""
        named = ((before, pair) for before, pairs in self.names.items() for pair in pairs.split())
        pairs = ((before, *pair.split("=")) for before, pair in named)
        return {ours: before + theirs for before, ours, theirs in pairs}

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
        "*": "dense0=pooler.dense dense1=classifier",
        "*cls.predictions.": "mlm=transform.dense mlm.ln=transform.LayerNorm words=decoder",
    },
)
"""BERT: bge, all-MiniLM, multilingual-e5-small, mxbai, arctic v1, ms-marco-MiniLM, SPLADE."""
XLM_ROBERTA = Family(
    name="xlm-roberta",
    model_types=("xlm-roberta", "roberta", "camembert"),
    names={name: ours for name, ours in BERT.names.items() if not name.startswith("*")}
    | {"*classifier.": "dense0=dense dense1=out_proj"},
    padding_has_positions=True,
)
"""XLM-R and RoBERTa: BGE-M3, bge-reranker, multilingual-e5, arctic-l-v2."""
DISTILBERT = Family(
    name="distilbert",
    model_types=("distilbert",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "transformer.layer.#.attention.": "q=q_lin k=k_lin v=v_lin ao=out_lin",
        "transformer.layer.#.": "aln=sa_layer_norm fi=ffn.lin1 fo=ffn.lin2 oln=output_layer_norm",
        "*vocab_": "mlm=transform mlm.ln=layer_norm words=projector",
    },
    required={"activation": ("gelu", None)},
    norm_epsilon=1e-12,
)
"""DistilBERT: multi-qa-distilbert, encoders of inference-free sparse models."""
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
"""MPNet: all-mpnet-base-v2."""
NOMIC_OFF = """causal prenorm parallel_block qkv_proj_bias mlp_fc1_bias mlp_fc2_bias use_rms_norm
scale_attn_by_inverse_layer_idx rotary_emb_interleaved rotary_emb_scale_base
rotary_scaling_factor"""
"""The last one turns longer texts in another way."""
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
        # Of version 2, which differs in more: its experts are what a person knows it by.
        "num_experts": (0, None),
        "moe_every_n_layers": (0, None),
        "hidden_act": ("silu", None),
        "activation_function": ("swiglu", None),
        "rotary_emb_fraction": (1.0, None),
        "scale_attn_weights": (True, None),
    }
    | dict.fromkeys(NOMIC_OFF.split(), OFF),
    harmless="max_trained_positions moe_* expert_*",
    biased=frozenset(("ln",)),
    activation="silu",
    rotary={FULL: ("rope_theta", "rotary_emb_base")},
    own_code=True,
)
"""NomicBERT: nomic-embed-text v1 and v1.5."""
GTE = Family(
    name="gte",
    model_types=("new", "gte"),
    names={
        "embeddings.": "emb.word=word_embeddings emb.type=token_type_embeddings emb.ln=LayerNorm",
        "encoder.layer.#.attention.": "q+k+v=qkv_proj ao=o_proj",
        "encoder.layer.#.": "aln=attn_ln fi+fg=mlp.up_gate_proj fo=mlp.down_proj oln=mlp_ln",
        "*": "dense0=pooler.dense dense1=classifier",
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
    own_code=True,
    head="classifier",
)
"""GTE's own layers: gte-multilingual-base and its re-ranker, snowflake-arctic-embed-m-v2.0."""
MODERNBERT = Family(
    name="modernbert",
    model_types=("modernbert",),
    names={
        "embeddings.": "emb.word=tok_embeddings emb.ln=norm",
        "layers.#.": "aln=attn_norm q+k+v=attn.Wqkv ao=attn.Wo oln=mlp_norm fg+fi=mlp.Wi fo=mlp.Wo",
        "": "fin.ln=final_norm",
        "*": "dense0=head.dense dense0.ln=head.norm dense1=classifier",
    },
    required={
        "hidden_activation": ("gelu", None),
        "position_embedding_type": ("absolute", None),
        "rope_scaling": (None,),
    }
    | dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias"), OFF),
    harmless="rope_theta",
    biased=frozenset(),
    rotary={FULL: ("global_rope_theta",), LOCAL: ("local_rope_theta",)},
    window="local_attention",
    full_every="global_attn_every_n_layers",
    norm_before=True,
    first_norm=False,
    scorer=Scorer("gelu", biased=False, pooling="classifier_pooling"),
)
"""ModernBERT: gte-modernbert-base and its re-ranker, granite-embedding r2."""
QWEN3 = Family(
    name="qwen3",
    model_types=("qwen3",),
    names={
        "": "emb.word=embed_tokens fin.ln=norm",
        "layers.#.": "aln=input_layernorm oln=post_attention_layernorm",
        "layers.#.self_attn.": "q=q_proj k=k_proj v=v_proj ao=o_proj qln=q_norm kln=k_norm",
        "layers.#.mlp.": "fg=gate_proj fi=up_proj fo=down_proj",
    },
    required={"hidden_act": ("silu", None), "is_causal": (True, None)}
    | dict.fromkeys(("attention_bias", "use_sliding_window"), OFF),
    harmless="sliding_window max_window_layers",
    biased=frozenset(),
    rms=True,
    norm_before=True,
    activation="silu",
    rotary={FULL: ("rope_theta",)},
    causal=True,
)
"""Qwen3: Qwen3-Embedding."""
GEMMA3 = Family(
    name="gemma3",
    model_types=("gemma3_text",),
    names=QWEN3.names
    | {
        "layers.#.": "aln=input_layernorm oln=pre_feedforward_layernorm",
        "layers.#.post_": "aoln=attention_layernorm ooln=feedforward_layernorm",
    },
    required={
        "hidden_activation": ("gelu_pytorch_tanh", None),
        "attention_bias": OFF,
        "attn_logit_softcapping": OFF,
        "rope_scaling": OFF,
        "use_bidirectional_attention": (True,),
    },
    harmless="*sliding_window_pattern final_logit_softcapping",
    biased=frozenset(),
    rms=True,
    norm_adds_one=True,
    norm_before=True,
    scaled_words=True,
    activation="gelu_tanh",
    rotary={FULL: ("rope_theta",), LOCAL: ("rope_local_base_freq",)},
    window="sliding_window",
)
"""Gemma 3 that sees in both directions: EmbeddingGemma."""
FAMILIES = (BERT, XLM_ROBERTA, DISTILBERT, MPNET, NOMIC_BERT, GTE, MODERNBERT, QWEN3, GEMMA3)
