"""The Dense modules of sentence-transformers, which stand between a model's pooling and its end."""

import json
from pathlib import Path

import numpy as np

from default_package.errors import PackageError
from default_package.json_file import read_json

from .stored import read_safetensors

PLAIN = {"activation_function": "torch.nn.modules.linear.Identity", "bias": False}
"""All of them together are one product then."""


def read(folder: Path, width: int) -> np.ndarray | None:
    """f32 `[out, width]`: what the pooled hidden states are multiplied with, if there are any."""
    path = folder / "modules.json"
    modules = json.loads(path.read_text("utf-8")) if path.exists() else []
    product = None
    for module in modules:
        if module["type"].endswith(".Dense"):
            weight = _weight(folder / module["path"])
            product = weight if product is None else weight @ product
    if product is None:
        return None
    if product.shape[1] != width:
        raise PackageError(f"{path} has Dense modules for {product.shape[1]} numbers, not {width}")
    return product.astype(np.float32)


def _weight(module: Path) -> np.ndarray:
    """f64 `[out, in]`."""
    stored = read_json(module / "config.json")
    for key, value in PLAIN.items():
        if stored.get(key) != value:
            raise PackageError(
                f"{module / 'config.json'} has {key} {stored.get(key)!r}: only {value!r} can be "
                "exported"
            )
    if not (module / "model.safetensors").is_file():
        raise PackageError(f"{module / 'model.safetensors'} is missing, the weights of this module")
    tensors = read_safetensors(module / "model.safetensors")
    if "linear.weight" not in tensors:
        raise PackageError(f"{module / 'model.safetensors'} lacks the tensor linear.weight")
    return tensors["linear.weight"].read().astype(np.float64)
