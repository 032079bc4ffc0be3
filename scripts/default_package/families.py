"""Kinds of networks as data: one description each, for all that reads, writes or computes them.

It must be importable without numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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
    padding_has_positions: bool = False
    """Whether rows up to the padding's id come before the first position's in the table."""


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
FAMILIES = (BERT, XLM_ROBERTA)
