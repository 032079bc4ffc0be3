"""Kinds of networks as data: one description each, for all that reads, writes or computes them.

It must be importable without numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SIZES: dict[str, str | float] = {
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

    `#` is the layer's number. `encoder.tensor_shapes` says what our names mean.
    """
    sizes: Mapping[str, str | float] = field(default_factory=lambda: SIZES)
    """Field of `weights.Config` -> the key of config.json that says it, or the number itself."""
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: REQUIRED)
    """Key of config.json -> the only values that this description is right for.

    None stands for an absent key.
    """
    padding_has_positions: bool = False
    """Whether rows up to the padding's id come before the first position's in the table."""

    def has(self, part: str) -> bool:
        """Whether its networks have the tensor with this one of our names."""
        return part in self.names


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
FAMILIES = (BERT, XLM_ROBERTA, DISTILBERT, MPNET)
