"""quantize_package.py --precision fp8 on a small random package."""

from pathlib import Path

import numpy as np
import pytest
from export_packages import check_files, digests, manifest_of
from quantized_package import make, quantize

from default_package.errors import PackageError
from quantization import fp8


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make(tmp_path / "mine", monkeypatch)


def test_a_package_gets_a_graph_with_what_it_costs(package: Path) -> None:
    before = manifest_of(package)
    for _ in range(2):
        quantize(package, "fp8")
        check_files(package)
        after = manifest_of(package)
        about = after.pop("fp8")
        assert about["file"] == "model.fp8.onnx" and about["tolerances"] == fp8.TOLERANCES
        [score] = about["retrieval"]
        assert (score["collection"], score["queries"]) == ("installation guide, de, en", 2)
        assert score["f32"] == score["fp8"] == {"dense": 1.0, "sparse": 1.0}
        del after["files"]["model.fp8.onnx"]
        assert after == before
    assert [path.name for path in package.parent.iterdir()] == ["mine"]


def test_a_graph_that_is_too_far_from_f32_leaves_the_package(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests(package)
    monkeypatch.setattr(fp8, "TOLERANCES", {"dense_cosine_min": 1.0, "sparse_max_abs": 0.1})
    with pytest.raises(PackageError, match="vectors of the canary"):
        quantize(package, "fp8")
    assert digests(package) == before


def test_inputs_are_seen_over_all_texts(package: Path) -> None:
    ids = [[0, 5, 6, 2], [0, 7, 2], [0, 8, 9, 10, 2]]
    each = [fp8.calibrate(package / "model.onnx", [sequence]) for sequence in ids]
    together = fp8.calibrate(package / "model.onnx", ids)
    assert len(together) == 8
    for name, width in (("embedding.norm", 16), ("layer1.ffn.gelu", 24)):
        assert together[name].largest == max(one[name].largest for one in each) > 0
        sums = sum(one[name].moments for one in each)
        np.testing.assert_allclose(together[name].moments, sums, rtol=1e-5, atol=1e-5)
        assert np.diag(sums).min() >= 0 and sums.shape[0] == width
    assert len({one["embedding.norm"].largest for one in each}) > 1
