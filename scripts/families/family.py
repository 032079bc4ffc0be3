"""What a description of a family of networks can say."""

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
class Scorer:
    """The head of a cross-encoder: product, activation, norm, and what gives the score."""

    activation: str = "tanh"
    """`tanh` or `gelu`."""
    biased: bool = True
    """Whether the first product has a bias."""
    pooling: str = ""
    """The key of config.json that says what the head is given; else the first token."""


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
    scaled_words: bool = False
    """Whether words are multiplied by the root of their width."""
    biased: frozenset[str] = frozenset(("q", "k", "v", "ao", "fi", "fo", "ln"))
    """The parts that have a bias; `ln` stands for all norms."""
    rms: bool = False
    """Whether norms divide by the root mean square, and leave the mean as it is."""
    norm_adds_one: bool = False
    """Whether the weights of norms are stored without the one that is added to them."""
    norm_epsilon: float | None = None
    """Where config.json does not say it."""
    activation: str = "gelu"
    """`gelu`, `gelu_tanh` (as it is computed in fewer steps) or `silu`."""
    rotary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind of layer -> the keys of config.json that may say how fast queries and keys turn with
    their position, if `rope_parameters` does not; none for networks whose positions do not turn
    them."""
    causal: bool = False
    """Whether a token sees only what comes before it, and itself."""
    window: str = ""
    """The key of config.json with twice the largest distance of a neighbour in local layers."""
    full_every: str = ""
    """The key that says of how many layers one is full, beginning with the first, where config.json
    does not list their kinds."""
    norm_before: bool = False
    """Whether attention and feed-forward are behind their norms, and not in front of them."""
    first_norm: bool = True
    """Whether the first layer has the norm of its attention."""
    own_code: bool = False
    """Whether config.json names code of the model's own, for which this description stands."""
    head: str | None = None
    """The published name of a head that gives lexical weights, among the other weights."""
    scorer: Scorer = Scorer()
    """What is special of the head of its cross-encoders."""

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
