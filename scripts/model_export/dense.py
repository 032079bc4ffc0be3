"""The Dense modules of sentence-transformers, which stand between a model's pooling and its end."""

import json
from pathlib import Path

import numpy as np

from default_package.encoder import Dense
from default_package.errors import PackageError
from default_package.json_file import read_json

from . import torch_file
from .stored import Stored, read_safetensors

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": False,
    "torch.nn.modules.activation.Tanh": True,
}
"""Whether each is a tanh."""
READERS = {"model.safetensors": read_safetensors, "pytorch_model.bin": torch_file.read}
ONE = "sentence_embedding"
PLAIN = {"module_input_name": ONE, "module_output_name": ONE}


def read(folder: Path, width: int) -> tuple[tuple[Dense, ...], dict[str, np.ndarray]]:
    """What is behind pooled hidden states of `width` numbers, and f32 tensors by our names.

    Nothing is between modules without an activation: they become one product.
    """
    path = folder / "modules.json"
    modules = json.loads(path.read_text("utf-8")) if path.exists() else []
    found: list[tuple[np.ndarray, np.ndarray, bool]] = []
    for module in modules:
        if module["type"].endswith(".Dense"):
            weight, bias, tanh = _read(folder / module["path"])
            before = len(found[-1][0]) if found else width
            if weight.shape[1] != before:
                raise PackageError(
                    f"{path} has a Dense module for {weight.shape[1]} numbers, not {before}"
                )
            if found and not found[-1][2]:
                earlier, earlier_bias, _ = found.pop()
                weight, bias = weight @ earlier, weight @ earlier_bias + bias
            found.append((weight, bias, tanh))
    shapes, tensors = [], {}
    for number, (weight, bias, tanh) in enumerate(found):
        shapes.append(Dense(len(weight), biased := bool(bias.any()), tanh))
        tensors[f"dense{number}.w"] = weight.astype(np.float32)
        if biased:
            tensors[f"dense{number}.b"] = bias.astype(np.float32)
    return tuple(shapes), tensors


def _read(module: Path) -> tuple[np.ndarray, np.ndarray, bool]:
    """f64 weight `[out, in]` and bias `[out]`, and whether a tanh is behind them."""
    path = module / "config.json"
    stored = read_json(path)
    for key, plain in PLAIN.items():
        if stored.get(key, plain) != plain:
            raise PackageError(f"{path} has {key} {stored[key]!r}: only {plain!r} can be exported")
    activation = stored.get("activation_function")
    if activation not in ACTIVATIONS:
        raise PackageError(
            f"{path} has activation_function {activation!r}: only {' or '.join(ACTIVATIONS)} can "
            "be exported"
        )
    name = next((name for name in READERS if (module / name).is_file()), None)
    if name is None:
        raise PackageError(f"{module / 'model.safetensors'} is missing, the weights of this module")
    tensors: dict[str, Stored] = READERS[name](module / name)
    biased = stored.get("bias", True)
    for tensor in ("linear.weight", "linear.bias")[: 1 + biased]:
        if tensor not in tensors:
            raise PackageError(f"{module / name} lacks the tensor {tensor}")
    weight = tensors["linear.weight"].read().astype(np.float64)
    bias = tensors["linear.bias"].read().astype(np.float64) if biased else np.zeros(len(weight))
    return weight, bias, ACTIVATIONS[activation]
