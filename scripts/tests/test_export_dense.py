"""The Dense modules of sentence-transformers: what they compute, and which are refused."""

import shutil
from pathlib import Path
from statistics import NormalDist

import export_snapshots as snapshots
import numpy as np
import pytest
from export_graphs import written

from default_package.checks import Runtime, batch
from default_package.choices import Pooling, Precision
from default_package.errors import PackageError
from default_package.reference import ReferenceEncoder
from fixtures import FAMILIES
from model_export.modules import ACTIVATIONS

KINDS = {name.rpartition(".")[2]: name for name in ACTIVATIONS}
"""Class of torch -> its whole name."""
FUNCTIONS = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    # By the normal distribution, unlike the reference.
    "GELU": lambda values: values * np.vectorize(NormalDist().cdf)(values),
}


def write_dense(folder: Path, layers: list, name: str) -> None:
    snapshots.write_modules(folder, Pooling.MEAN, *["Dense"] * len(layers))
    for at, (weight, bias, kind) in enumerate(layers):
        place = folder / f"{2 + at}_Dense"
        place.mkdir()
        about = {"bias": bias is not None, "activation_function": KINDS[kind]}
        snapshots.put(place / "config.json", about)
        tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
        save = snapshots.write_torch if name.endswith("bin") else snapshots.write_safetensors
        save(place / name, tensors)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    "modules",
    [
        [(True, "Identity")],
        # As LaBSE and distiluse have it.
        [(True, "Tanh")],
        [(True, "Identity"), (True, "Identity"), (False, "Tanh"), (True, "Identity")],
        [(False, "GELU"), (True, "Tanh")],
    ],
)
def test_products_behind_the_pooling_have_biases_and_activations(
    tmp_path: Path, modules: list[tuple[bool, str]], name: str
) -> None:
    folder = shutil.copytree(FAMILIES / "bert", tmp_path / "model")
    numbers = np.random.default_rng(5)
    layers, width = [], 32
    for at, (biased, kind) in enumerate(modules):
        wide = 20 + at
        weight = numbers.normal(size=(wide, width)).astype(np.float32) / 3
        bias = numbers.normal(size=wide).astype(np.float32) if biased else None
        width = wide
        layers.append((weight, bias, kind))
    write_dense(folder, layers, name)
    encoder = snapshots.open_encoder(folder)
    ids = [5, 9, 4, 60, 7]
    vectors = ReferenceEncoder(encoder).run(ids)
    expected = vectors.hidden.mean(axis=0)
    for weight, bias, kind in layers:
        expected = weight @ expected + (0 if bias is None else bias)
        expected = FUNCTIONS[kind](expected)
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(vectors.dense, expected, atol=1e-6)
    for precision in Precision:
        graph = written(encoder, precision, tmp_path / precision.value)
        # The first row has a second span, which has no weights.
        rows = batch([ids, ids[:2]], [[0], [1]], 16, 1, "mean")
        dense = Runtime(graph).run_rows(rows.inputs)["dense"]
        assert dense.shape == (2, 2, width)
        close = 1e-5 if precision is Precision.FP32 else 0.05
        np.testing.assert_allclose(dense[0, 0], expected, atol=close)
        assert not dense[:, 1].any()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("activation_function", "torch.nn.modules.activation.SiLU"),
        ("activation_function", None),
        ("module_input_name", "token_embeddings"),
    ],
)
def test_another_product_behind_the_pooling_is_refused(
    tmp_path: Path, key: str, value: object
) -> None:
    folder = shutil.copytree(FAMILIES / "gemma3", tmp_path / "model")
    snapshots.change(folder / "2_Dense" / "config.json", **{key: value})
    with pytest.raises(PackageError, match=rf"2_Dense/config.json has {key} {value!r}"):
        snapshots.open_encoder(folder)
