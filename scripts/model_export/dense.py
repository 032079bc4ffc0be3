"""What stands between a model's pooling and its end: Dense modules of sentence-transformers, or the
head of a cross-encoder."""

from pathlib import Path

import numpy as np

from default_package.encoder import Dense, Rows
from default_package.errors import JsonFile, PackageError
from families.family import Scorer

from . import modules, stored
from .stored import Stored

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.GELU": "gelu",
}
"""Their names in `encoder.Dense`."""
ONE = "sentence_embedding"
STEADY = 4.0
"""The number beside a score; `crates/model/src/package/manifest/kind.rs` knows it."""


def read(folder: Path, width: int) -> tuple[tuple[Dense, ...], dict[str, Stored]]:
    """What is behind pooled hidden states of `width` numbers, and tensors by our names.

    Nothing is between modules without an activation: they become one product.
    """
    path = folder / modules.NAME
    found: list[tuple[np.ndarray, np.ndarray, str | None]] = []
    for module in modules.read(folder):
        if module.kind == "Dense":
            weight, bias, activation = _read(folder / module.place)
            before = len(found[-1][0]) if found else width
            if weight.shape[1] != before:
                raise PackageError(
                    f"{path} has a Dense module for {weight.shape[1]} numbers, not {before}"
                )
            if found and not found[-1][2]:
                earlier, earlier_bias, _ = found.pop()
                weight, bias = weight @ earlier, weight @ earlier_bias + bias
            found.append((weight, bias, activation))
    shapes, tensors = [], {}
    for number, (weight, bias, activation) in enumerate(found):
        shapes.append(Dense(len(weight), biased := bool(bias.any()), activation))
        parts = {"w": weight, "b": bias} if biased else {"w": weight}
        for name, value in parts.items():
            tensors[f"dense{number}.{name}"] = Stored(value.shape, "F32", value.__getitem__)
    return tuple(shapes), tensors


def of_pairs(scorer: Scorer, width: int, *, normed: bool) -> tuple[Dense, Dense]:
    """The head of a cross-encoder. The score is the first of the two numbers that it gives."""
    return Dense(width, scorer.biased, scorer.activation, normed), Dense(2, biased=True)


def beside_steady(score: Stored, name: str) -> Stored:
    """The published weight or bias of a score, with what makes the other number.

    That is always the same, so that the length 1, which every vector gets, leaves the score as
    their quotient.
    """
    value = STEADY if name.endswith(".b") else 0.0

    def part(rows: Rows) -> np.ndarray:
        first = score.read()
        return np.concatenate([first, np.full_like(first, value)])[rows]

    return Stored((2, *score.shape[1:]), "F32", part)


def _read(module: Path) -> tuple[np.ndarray, np.ndarray, str | None]:
    """f64 weight `[out, in]` and bias `[out]`, and the activation behind them."""
    about = JsonFile(module / "config.json")
    for key in ("module_input_name", "module_output_name"):
        about.demand(about.get(key, ONE) == ONE, key, f"only {ONE!r} can be exported")
    activation, key = about.get("activation_function"), "activation_function"
    about.demand(activation in ACTIVATIONS, key, f"only {' or '.join(ACTIVATIONS)} can be exported")
    file = stored.file_of(module)
    if file is None:
        raise PackageError(f"{module / stored.FILES[0]} is missing, the weights of this module")
    tensors, numbers = stored.read(file), []
    for name in ("linear.weight", "linear.bias")[: 1 + about.get("bias", True)]:
        if name not in tensors:
            raise PackageError(f"{file} lacks the tensor {name}")
        numbers.append(tensors[name].read().astype(np.float64))
    weight, *biases = numbers
    return weight, biases[0] if biases else np.zeros(len(weight)), ACTIVATIONS[activation]
