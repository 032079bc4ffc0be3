"""quantize_package.py --precision int8 on a small random package, and what is kept of it."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
from export_packages import check_files, digests, manifest_of
from quantized_package import make, measure_with_pages, quantize

import quantize_package
from default_package.errors import PackageError
from quantization import guide, int8, kept

SIZES = {"layers": 1, "hidden": 256, "ffn": 256}
"""Large enough for a file of 8-bit numbers, and for wide columns."""

REPOSITORY = kept.PATH


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package `plain`, with `rounded` that has a graph in 8 bits too, and with
    what is kept of that."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "PATH", folder / "kept.json")
        make(folder / "plain", patch, **SIZES)
        shutil.copytree(folder / "plain", folder / "rounded")
        # What an earlier version made is replaced.
        (folder / "rounded/model.int8.xml").write_text("old")
        quantize(folder / "rounded", "int8", keep=True)
        yield folder


@pytest.fixture
def package(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`plain`; what a test does to it and to what is kept is gone afterwards."""
    monkeypatch.setattr(kept, "PATH", Path(shutil.copy(made / "kept.json", tmp_path)))
    return shutil.copytree(made / "plain", tmp_path / "mine")


ADDED = ("model.int8.onnx", "model.int8.onnx.data")


def change(edit: Callable[[dict[str, Any]], None]) -> None:
    """Edits what is kept."""
    content = json.loads(kept.PATH.read_text(encoding="utf-8"))
    edit(content)
    kept.PATH.write_text(json.dumps(content), encoding="utf-8")


def test_a_package_gets_a_graph_whose_products_are_in_8_bits(made: Path) -> None:
    check_files(made / "rounded")
    before, after = manifest_of(made / "plain"), manifest_of(made / "rounded")
    about = after.pop("quantized")
    assert (about["file"], about["tolerances"]) == ("model.int8.onnx", int8.TOLERANCES)
    assert about["retrieval"][0]["int8"] == {"dense": 1.0, "sparse": 1.0}
    added = {name: after["files"].pop(name) for name in ADDED}
    assert after == before
    # The word table is not there twice.
    assert added["model.int8.onnx.data"]["bytes"] == 6 * 256 * 256
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(made / "rounded/model.int8.onnx", "CPU", hint)
    nodes = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    layers = [node for node in nodes if node["layerType"].astype(str) == "FullyConnected"]
    kinds = Counter(node["runtimePrecision"].astype(str) for node in layers)
    # The sparse head is in f32.
    assert kinds == {"u8": 6, "f32": 1}


def test_kept_results_give_the_graph_that_was_measured_without_measuring(
    made: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(guide, "make")
    for quick in (True, False):
        quantize(package, "int8", quick=quick)
        assert digests(package) == digests(made / "rounded")


def test_results_of_another_graph_are_refused_with_what_to_run(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests(package)
    change(lambda content: content["sources"].update({"model.onnx.data": "0" * 64}))
    command = rf"scripts/quantize_package.py --package {package} \(minutes\)$"
    with pytest.raises(PackageError, match=command):
        quantize(package, "int8", quick=True)
    assert digests(package) == before
    # That command measures, where nobody asked for what is kept.
    measure_with_pages(monkeypatch)
    quantize(package, "int8")
    assert "quantized" in manifest_of(package)


def test_results_of_a_graph_that_was_rounded_in_another_way_are_refused(package: Path) -> None:
    before = digests(package)
    change(lambda content: content["ranges"]["embedding.norm"].update({"largest": 4.0}))
    with pytest.raises(PackageError, match=r"not the one .*quantize_package.py --keep$"):
        quantize(package, "int8", quick=True)
    assert digests(package) == before


def test_results_that_lose_too_much_are_refused(package: Path) -> None:
    change(lambda content: content["retrieval"][0]["int8"].update({"sparse": 0.98}))
    with pytest.raises(PackageError, match=r"sparse vectors on .* guide, de, en is 0\.98"):
        quantize(package, "int8", quick=True)


def test_what_the_repository_keeps_is_of_a_graph_that_is_good_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "PATH", REPOSITORY)
    content = json.loads(kept.PATH.read_text(encoding="utf-8"))
    found = kept.find({"files": {n: {"sha256": d} for n, d in content["sources"].items()}})
    assert found is not None
    assert sorted(found.graph) == ["model.int8.onnx", "model.int8.onnx.data"]
    assert len(found.ranges) == 48 and len(found.retrieval) == 1


def test_wide_columns_are_divided_down_to_the_widest_of_the_others() -> None:
    least, largest = np.full(96, -0.5, np.float32), np.full(96, 1.0, np.float32)
    least[7], largest[90] = -8.0, 3.0
    assert int8.range_of(least, largest) == int8.Range(-1.0, 1.0, [7, 90], [8.0, 3.0])
    # Zero is always within, and an input may be all zeros.
    assert int8.range_of(largest, largest) == int8.Range(0.0, 1.0, [0, 90], [1.0, 3.0])
    nothing = np.zeros(8, np.float32)
    assert int8.range_of(nothing, nothing) == int8.Range(0.0, 0.0, [], [])


@pytest.mark.parametrize("flag", ["--quick", "--keep"])
def test_nothing_is_kept_for_fp8(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["quantize_package.py", "--precision", "fp8", flag])
    with pytest.raises(SystemExit, match="2"):
        quantize_package.main()
    assert "nothing is kept for fp8" in capsys.readouterr().err
