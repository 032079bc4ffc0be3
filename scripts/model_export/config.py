"""Reads what a snapshot says of its network: config.json and the files of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from default_package.choices import Family, Pooling
from default_package.encoder import Architecture
from default_package.errors import PackageError
from default_package.json_file import read_json
from default_package.weights import Config

FAMILIES = {
    "bert": Family.BERT,
    "xlm-roberta": Family.XLM_ROBERTA,
    "roberta": Family.XLM_ROBERTA,
    "camembert": Family.XLM_ROBERTA,
}
SIZES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocab_rows": "vocab_size",
    "positions": "max_position_embeddings",
    "type_rows": "type_vocab_size",
}
REQUIRED = {
    "hidden_act": ("gelu", "the exact GELU"),
    "position_embedding_type": ("absolute", "absolute positions"),
    "is_decoder": (False, "encoders"),
}
"""Field -> the only value that is supported (and the default when absent), and its name."""
KNOWN_MODULES = {"Transformer", "Pooling", "Normalize"}


def read(folder: Path, pooling: Pooling | None) -> Architecture:
    """The snapshot's architecture; `pooling` wins over what the snapshot says."""
    stored = read_json(folder / "config.json")
    kind = stored.get("model_type")
    if kind not in FAMILIES:
        raise PackageError(
            f"{folder / 'config.json'} has model_type {kind!r}: "
            f"only {', '.join(FAMILIES)} can be exported"
        )
    for field, (value, name) in REQUIRED.items():
        if stored.get(field, value) != value:
            raise PackageError(f"config.json has {field} {stored[field]!r}: only {name} are known")
    _check_modules(folder)
    return Architecture(
        sizes=_sizes(stored),
        family=FAMILIES[kind],
        pooling=pooling or _pooling(folder),
        pad_token_id=_whole(stored, "pad_token_id", 0),
    )


def _whole(stored: dict[str, Any], field: str, least: int) -> int:
    value = stored.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PackageError(f"config.json has {field} {value!r}: a number from {least} is needed")
    return value


def _sizes(stored: dict[str, Any]) -> Config:
    sizes = {name: _whole(stored, field, 1) for name, field in SIZES.items()}
    if sizes["hidden"] % sizes["heads"]:
        raise PackageError(
            f"config.json has hidden_size {sizes['hidden']}, "
            f"which {sizes['heads']} heads cannot share"
        )
    epsilon = stored.get("layer_norm_eps")
    if not isinstance(epsilon, float) or not 0.0 < epsilon < 0.1:
        raise PackageError(f"config.json has layer_norm_eps {epsilon!r}, not a small number")
    return Config(**sizes, layer_norm_epsilon=epsilon)


def _pooling(folder: Path) -> Pooling:
    """What sentence-transformers would do; CLS, as BGE does, when the snapshot does not say."""
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return Pooling.CLS
    stored = read_json(path)
    prefix = "pooling_mode_"
    modes = {key.removeprefix(prefix) for key, on in stored.items() if on is True}
    known = {"cls_token": Pooling.CLS, "mean_tokens": Pooling.MEAN}
    wanted = [known.get(mode) for mode in modes if f"{prefix}{mode}" in stored]
    if len(wanted) != 1 or wanted[0] is None:
        raise PackageError(f"{path} asks for {sorted(modes)}: only cls or mean can be exported")
    return wanted[0]


def _check_modules(folder: Path) -> None:
    """A layer behind the pooling would silently be lost."""
    path = folder / "modules.json"
    if not path.exists():
        return
    try:
        kinds = {entry["type"].split(".")[-1] for entry in json.loads(path.read_text("utf-8"))}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PackageError(f"{path} is not a list of modules") from error
    if kinds - KNOWN_MODULES:
        raise PackageError(f"{path} has modules {sorted(kinds - KNOWN_MODULES)}: not supported")
