"""Packages with a vector for each token, of the head that BGE-M3 has in colbert_linear.pt.

What the reference implementation gives is compared in test_export_families.py.
"""

from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
from export_graphs import written, written_in_fp8
from export_packages import made, refusal

from default_package import checks
from default_package.checks import Runtime
from default_package.choices import Precision
from default_package.errors import PackageError
from default_package.reference import ReferenceEncoder, cosine
from model_export.snapshot import COLBERT_FILE
from quantization import int8

WIDTH = 6
SEQUENCES = [[0, 5, 6, 7, 8, 2], [0, 2], [0, *range(20, 50), 2]]


def head(width: int = WIDTH, hidden: int = 16) -> dict[str, np.ndarray]:
    numbers = np.random.RandomState(5)
    return {
        "weight": numbers.standard_normal((width, hidden)).astype(np.float32),
        "bias": numbers.standard_normal(width).astype(np.float32),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with both heads."""
    folder = snapshots.write(tmp_path / "model").folder
    snapshots.write_torch(folder / COLBERT_FILE, head())
    return folder


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_the_head_becomes_an_output_with_golden_numbers(
    folder: Path, tmp_path: Path, precision: str
) -> None:
    out = tmp_path / "out"
    manifest = made(out, "--model", folder, "--precision", precision, "--token-vectors")
    assert manifest["token_vector_size"] == WIDTH
    assert manifest["outputs"]["token_vectors"] == "float32"
    canary = manifest["canary"]
    ids = canary["token_ids"]
    encoder = snapshots.open_encoder(folder)
    expected = ReferenceEncoder(encoder).run(ids).token_vectors
    assert expected is not None and expected.shape == (len(ids), WIDTH)
    assert [place for place, _ in canary["token_vectors"]] == [1, len(ids) // 2, len(ids) - 1]
    for place, golden in canary["token_vectors"]:
        np.testing.assert_allclose(golden, expected[place], atol=1e-6)
    # A graph whose vectors are those of other tokens is found.
    canary["token_vectors"][0][0] = 2
    runtime = Runtime(out / "model.onnx")
    with pytest.raises(PackageError, match="vectors of the canary"):
        checks.check_canary(runtime, manifest, checks.LIMITS[Precision(precision)])


def test_a_package_has_the_head_only_when_it_is_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = made(tmp_path / "out", "--model", folder)
    assert "--token-vectors takes them in" in capsys.readouterr().err
    assert "token_vector_size" not in manifest
    assert "token_vectors" not in {**manifest["outputs"], **manifest["canary"]}


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (None, f"{COLBERT_FILE} is missing, the head for token vectors that BGE-M3 has: add"),
        (head(hidden=8), "tensor weight of the numbers in colbert_linear.pt has shape [6, 8]"),
        ({"weight": head()["weight"]}, "the numbers in colbert_linear.pt lack the tensor bias"),
        ({"weight": np.ones((), np.float32)}, "has shape [], config.json asks for [0, 16]"),
        ({"bias": head()["bias"]}, "the numbers in colbert_linear.pt lack the tensor weight"),
    ],
)
def test_a_head_that_cannot_be_used_is_one_sentence(
    folder: Path, tmp_path: Path, file: dict[str, np.ndarray] | None, sentence: str
) -> None:
    (folder / COLBERT_FILE).unlink()
    if file is not None:
        snapshots.write_torch(folder / COLBERT_FILE, file)
    said = refusal("--model", folder, "--out", tmp_path / "out", "--token-vectors")
    assert sentence in said


def test_token_vectors_come_beside_lexical_weights(folder: Path, tmp_path: Path) -> None:
    wishes = ["--token-vectors", "--no-sparse"]
    said = refusal("--model", folder, "--out", tmp_path / "out", *wishes)
    assert "do not go together: leave one out" in said


def test_graphs_in_8_bits_have_the_output(folder: Path, tmp_path: Path) -> None:
    encoder = snapshots.open_encoder(folder)
    source = written(encoder, Precision.FP32, tmp_path / "single")
    whole = Runtime(source).run(SEQUENCES, "cls")
    target = source.parent / int8.GRAPH
    int8.write(source, target, int8.calibrate(source, SEQUENCES))
    model = onnx.load(written_in_fp8(encoder, tmp_path / "fp8"))
    assert [one.name for one in model.graph.output] == ["dense", "token_weights", "token_vectors"]
    for graph in (target, tmp_path / "fp8" / "fp8.onnx"):
        for found, exact in zip(Runtime(graph).run(SEQUENCES, "cls"), whole, strict=True):
            assert found.token_vectors is not None and exact.token_vectors is not None
            for one, other in zip(found.token_vectors, exact.token_vectors, strict=True):
                assert cosine(one, other) > 0.98
