"""quantize_package.py --precision fp8 on a small random package."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from export_packages import RANDOM, run

from default_package.errors import PackageError
from quantization import add, fp8
from quantization.collection import Collection, Passage, Query


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Without prompts, as BGE-M3 is."""
    out = tmp_path / "mine"
    words = ["--positions", "600", "--precision", "fp32", "--out", out]
    assert run(monkeypatch, *RANDOM, *words) == 0
    passages = [Passage(lang, "page", f"a text in {lang}") for lang in ("de", "en")]
    queries = [Query(lang, lang, "title", "page", "a", (i,)) for i, lang in enumerate(["de", "en"])]
    both = Collection(passages, queries)
    monkeypatch.setattr(add, "collections", lambda cache: {"pages": both})
    return out


def quantize(package: Path) -> None:
    add.run(
        argparse.Namespace(precision="fp8", package=package, languages=["de", "en"], cache=None)
    )


def test_a_package_gets_a_graph_with_what_it_costs(package: Path) -> None:
    before = json.loads((package / "manifest.json").read_text(encoding="utf-8"))
    for _ in range(2):
        quantize(package)
        after = json.loads((package / "manifest.json").read_text(encoding="utf-8"))
        about = after.pop("fp8")
        assert about["file"] == "model.fp8.onnx" and about["tolerances"] == fp8.TOLERANCES
        [score] = about["retrieval"]
        assert (score["collection"], score["queries"]) == ("pages, de, en", 2)
        assert score["f32"] == score["fp8"] == {"dense": 1.0, "sparse": 1.0}
        content = (package / "model.fp8.onnx").read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        assert after["files"].pop("model.fp8.onnx") == {"sha256": digest, "bytes": len(content)}
        assert after == before
    assert [path.name for path in package.parent.iterdir()] == ["mine"]


def test_a_graph_that_is_too_far_from_f32_leaves_the_package(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in package.iterdir())
    monkeypatch.setattr(fp8, "TOLERANCES", {"dense_cosine_min": 1.0, "sparse_max_abs": 0.1})
    with pytest.raises(PackageError, match="dense vector of the canary"):
        quantize(package)
    assert sorted(path.name for path in package.iterdir()) == before


def test_inputs_are_seen_over_all_texts(package: Path) -> None:
    names = ["embedding.norm", "layer1.ffn.gelu"]
    ids = [[0, 5, 6, 2], [0, 7, 2], [0, 8, 9, 10, 2]]
    each = [fp8.measure(package / "model.onnx", names, [sequence]) for sequence in ids]
    together = fp8.measure(package / "model.onnx", names, ids)
    for name in names:
        assert together[name].largest == max(one[name].largest for one in each) > 0
        sums = sum(one[name].moments for one in each)
        np.testing.assert_allclose(together[name].moments, sums, rtol=1e-5, atol=1e-5)
        assert np.diag(sums).min() >= 0 and sums.shape[0] == {"e": 16, "l": 24}[name[0]]
    assert len({one["embedding.norm"].largest for one in each}) > 1
