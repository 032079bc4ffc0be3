"""export_onnx.py --fp16-of-package and --bf16-of-package: a graph beside the f32 one."""

from pathlib import Path

import onnx
import pytest
from export_packages import RANDOM, check_files, digests, made, manifest_of, refusal, run
from export_snapshots import change

from default_package import graph_builder
from default_package.checks import LIMITS, Runtime, cosine
from default_package.choices import Precision
from default_package.graph_builder import TENSOR_BYTES_MIN


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_graph_in_16_bits_is_added_to_a_package(tmp_path: Path, precision: str) -> None:
    out = tmp_path / "engines" / "mine"
    before, old = made(out, *RANDOM, "--precision", "fp32"), digests(out)
    (out / "some.plan").write_bytes(b"plan")
    first = None
    for _ in range(2):
        assert run(f"--{precision}-of-package", out) == 0
        first = first or digests(out)
        assert digests(out) == first
    assert [path.name for path in out.parent.iterdir()] == ["mine"]
    assert (out / "some.plan").read_bytes() == b"plan"
    manifest = manifest_of(out)
    assert manifest["files"].keys() - before["files"].keys() == {f"model.{precision}.onnx"}
    assert manifest | {"files": before["files"]} == before
    assert {name: first[name] for name in ("model.onnx", "tokenizer.json")} == {
        name: old[name] for name in ("model.onnx", "tokenizer.json")
    }
    (out / "some.plan").unlink()
    check_files(out)
    single, twin = (
        Runtime(out / name).run([[0, 5, 2]], "cls")[0].dense
        for name in ("model.onnx", f"model.{precision}.onnx")
    )
    assert cosine(single, twin) > LIMITS[Precision(precision)]["dense_cosine_min"]


def test_a_package_with_numbers_beside_its_graph_gets_an_f16_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mine"
    monkeypatch.setattr(graph_builder, "TENSOR_BYTES_MIN", 512)
    made(out, *RANDOM, "--precision", "fp32", "--no-sparse")
    for _ in range(2):
        assert run("--fp16-of-package", out) == 0
        check_files(out)
    kept = {"manifest.json", "tokenizer.json"}
    assert digests(out).keys() == kept | {
        name + end for name in ("model.onnx", "model.fp16.onnx") for end in ("", ".data")
    }
    monkeypatch.setattr(graph_builder, "TENSOR_BYTES_MIN", TENSOR_BYTES_MIN)
    assert run("--fp16-of-package", out) == 0
    check_files(out)
    assert "model.fp16.onnx.data" not in manifest_of(out)["files"]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_package_in_16_bits_needs_no_f16_graph(
    tmp_path: Path, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "mine", *RANDOM, "--precision", precision)
    whole = digests(tmp_path / "mine")
    capsys.readouterr()
    assert run("--fp16-of-package", tmp_path / "mine") == 0
    [line] = capsys.readouterr().err.splitlines()
    assert "is in 16 bits already: TensorRT takes it as it is" in line
    assert digests(tmp_path / "mine") == whole


def test_a_failed_f16_graph_leaves_the_package(tmp_path: Path) -> None:
    out = tmp_path / "engines" / "mine"
    made(out, *RANDOM, "--precision", "fp32")
    single = (out / "model.onnx").read_bytes()
    manifest = made(out, *RANDOM, "--precision", "fp16")
    whole = digests(out)
    assert "is in 16 bits already" in refusal("--bf16-of-package", out)
    assert digests(out) == whole
    model = onnx.load(out / "model.onnx")
    model.producer_name = "pytorch"
    onnx.save(model, out / "model.onnx")
    assert "was not made by these scripts" in refusal("--fp16-of-package", out)
    (out / "model.onnx").write_bytes(b"\xff" * 9)
    assert "cannot be read" in refusal("--fp16-of-package", out)
    canary = manifest["canary"] | {"dense": [1.0] + [0.0] * 15}
    change(out / "manifest.json", canary=canary)
    (out / "model.onnx").write_bytes(single)
    assert "vectors of the canary" in refusal("--fp16-of-package", out)
    change(out / "manifest.json", format_version=1)
    said = refusal("--fp16-of-package", out)
    assert "has format_version 1, 2 is needed: make it again with" in said
    said = refusal("--fp16-of-package", tmp_path / "absent")
    assert "manifest.json is missing: name the folder of a package" in said
    assert [path.name for path in tmp_path.iterdir()] == ["engines"]
