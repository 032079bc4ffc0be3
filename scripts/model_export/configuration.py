"""config.json of a published model: the family, the sizes, and what its description demands."""

from pathlib import Path
from typing import Any

from default_package.encoder import Attention, Rotary
from default_package.errors import PackageError
from default_package.weights import Config
from families import FAMILIES
from families.family import FULL, LOCAL, Family

SIZES = {
    "hidden": ("hidden_size", "n_embd", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "ffn": ("intermediate_size", "n_inner", "hidden_dim"),
    "vocab_rows": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions"),
    "type_rows": ("type_vocab_size",),
    "key_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",),
}
NORM_EPSILON = ("layer_norm_eps", "layer_norm_epsilon", "norm_eps", "rms_norm_eps")
"""Field of `weights.Config` -> the keys that may say it: of BERT, GPT-2 and DistilBERT."""
WAYS = ("default", "linear", "ntk")
ROTARY = {"rope_type": WAYS, "type": WAYS}
"""Values that are known of keys which say how queries and keys turn. `ntk` is that of GTE's own
code, which transformers does not have."""


def family_of(path: Path, stored: dict[str, Any]) -> Family:
    """That of the content `stored` of config.json at `path`, which keeps to its description."""
    families = {kind: family for family in FAMILIES for kind in family.model_types}
    kind = stored.get("model_type")
    if kind not in families:
        raise PackageError(
            f"{path} has model_type {kind!r}: only {', '.join(families)} can be exported"
        )
    family = families[kind]
    for key, allowed in family.required.items():
        if stored.get(key) not in allowed:
            known = " or ".join(repr(value) for value in allowed if value is not None)
            raise PackageError(
                f"{path} has {key} {stored.get(key)!r}: only {known or 'no value'} can be "
                f"exported of {family.name} models"
            )
    return family


def whole(stored: dict[str, Any], key: str, least: int) -> int:
    """The number of a key, at least `least`."""
    value = stored.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PackageError(f"config.json has {key} {value!r}: a number from {least} is needed")
    return value


def padding(stored: dict[str, Any], family: Family) -> int:
    """The padding's id; where no position depends on it, it only fills rows, and any would do."""
    if stored.get("pad_token_id") is None and not family.padding_has_positions:
        return 0
    return whole(stored, "pad_token_id", 0)


def attentions(stored: dict[str, Any], family: Family, sizes: Config) -> tuple[Attention, ...]:
    """That of each layer."""
    if not family.rotary:
        return ()
    kinds, every = stored.get("layer_types"), family.full_every[0]
    if kinds is None and every:
        step, first = whole(stored, every, 1), family.full_every[1]
        kinds = [LOCAL if (n - first) % step else FULL for n in range(sizes.layers)]
    if kinds is None and LOCAL not in family.rotary:
        kinds = [FULL] * sizes.layers
    if not kinds or len(kinds) != sizes.layers or set(kinds) - set(family.rotary):
        raise PackageError(
            f"config.json has layer_types {kinds!r}: {sizes.layers} are needed, each one of "
            + ", ".join(family.rotary)
        )
    found = {
        kind: Attention(
            _rotary(stored, family, kind, sizes.head_size),
            whole(stored, family.window, 2) // 2 if kind == LOCAL else None,
        )
        for kind in set(kinds)
    }
    return tuple(found[kind] for kind in kinds)


def _rotary(stored: dict[str, Any], family: Family, kind: str, width: int) -> Rotary:
    """That of one kind of layer, by any of the ways in which transformers has written it."""
    about = stored.get("rope_parameters") or {}
    about = about.get(kind, about) | (stored.get("rope_scaling") or {})
    free = (*family.rotary[kind], "factor")
    for key, value in about.items():
        if key not in free and value not in ROTARY.get(key, (None,)):
            raise PackageError(f"config.json has {key} {value!r}, which cannot be exported")
    key = _first(stored | about, family.rotary[kind])
    theta = _number(key, about.get(key, stored.get(key)))
    way, factor = about.get("rope_type", about.get("type", "default")), 1.0
    if way != "default":
        factor = _number("factor", about.get("factor"))
    if way == "ntk":
        theta, factor = theta * factor, factor ** (2 / width)
    return Rotary(theta, factor)


def _number(key: str, value: object) -> float:
    if not isinstance(value, int | float) or value < 1:
        raise PackageError(f"config.json has {key} {value!r}: a number from 1 is needed")
    return float(value)


def _first(stored: dict[str, Any], keys: tuple[str, ...]) -> str:
    """The first key that is there, or else the one that most models have."""
    return next((key for key in keys if key in stored), keys[0])


def sizes(stored: dict[str, Any], family: Family) -> Config:
    """Those of the network."""
    keys = {name: _first(stored, names) for name, names in SIZES.items()}
    absent = {name for name in ("key_heads", "head_width") if stored.get(keys[name]) is None}
    absent |= set() if family.has("emb.type") else {"type_rows"}
    named = {name: key for name, key in keys.items() if name not in absent}
    found = {"type_rows": 0} | {name: whole(stored, key, 1) for name, key in named.items()}
    hidden, heads = found["hidden"], found["heads"]
    if hidden % heads and "head_width" in absent:
        raise PackageError(
            f"config.json has {keys['hidden']} {hidden}, which {heads} heads cannot share"
        )
    for name, usual in (("key_heads", heads), ("head_width", hidden // heads)):
        if found.get(name) == usual:
            del found[name]
    if heads % (shared := found.get("key_heads", 1)):
        raise PackageError(
            f"config.json has {keys['key_heads']} {shared}, which {heads} heads cannot share"
        )
    key = _first(stored, NORM_EPSILON)
    epsilon = family.norm_epsilon or stored.get(key)
    if not isinstance(epsilon, float) or not 0.0 < epsilon < 0.1:
        raise PackageError(f"config.json has {key} {epsilon!r}, not a small number")
    config = Config(**found, layer_norm_epsilon=epsilon)
    if (scalar := stored.get("query_pre_attn_scalar", config.head_size)) != config.head_size:
        raise PackageError(
            f"config.json has query_pre_attn_scalar {scalar!r}: only {config.head_size}, the "
            "width of a head, can be exported"
        )
    return config
