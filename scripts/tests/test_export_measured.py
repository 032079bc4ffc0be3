"""The largest numbers in a graph's layers: they are those of its texts, and fp16's end is told."""

from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
from export_graphs import changed, encoder_of, written
from export_packages import RANDOM, made, manifest_of, random_model, run
from export_snapshots import TOKENIZER
from onnx import TensorProto

from default_package import reference, vocabulary
from default_package.choices import Precision
from default_package.encoder import Encoder
from default_package.reference import ReferenceEncoder, attention
from families import FAMILIES
from fixtures import FAMILIES as FOLDERS
from model_export import measured

TEXTS = [[0, 5, 6, 7, 8, 2], [0, 9, 10, 11, 12, 13, 2]]


def numbers_of(encoder: Encoder, precision: Precision, folder: Path) -> dict[str, list[float]]:
    return measured.measure(written(encoder, precision, folder), TEXTS, "cls")


@pytest.mark.parametrize("precision", list(Precision))
def test_scores_and_values_are_those_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision
) -> None:
    encoder, layers = encoder_of(), encoder_of().sizes.layers
    seen: list[tuple[float, float]] = []

    def watched(query: np.ndarray, key: np.ndarray, value: np.ndarray, added: float) -> np.ndarray:
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[2])
        seen.append((np.abs(scores).max(), np.abs(value).max()))
        return attention(query, key, value, added)

    monkeypatch.setattr(reference, "attention", watched)
    for ids in TEXTS:
        ReferenceEncoder(encoder).run(ids)
    expected = np.reshape(seen, (len(TEXTS), layers, 2)).max(axis=0)
    found = numbers_of(encoder, precision, tmp_path)
    near = 0.05 if precision is Precision.BF16 else 0.01
    np.testing.assert_allclose([found["scores"], found["values"]], expected.T, rtol=near)
    assert found.keys() == measured.KINDS.keys()
    assert all(len(each) == layers and min(each) > 0 for each in found.values())


def test_numbers_near_the_end_of_fp16_are_told_with_what_to_do(tmp_path: Path) -> None:
    def loud(name: str, value: np.ndarray) -> np.ndarray:
        return value * 20_000.0 if name == "l1.fo.w" else value

    calm, found = (
        numbers_of(encoder, Precision.FP32, tmp_path)
        for encoder in (encoder_of(), changed(encoder_of(), loud))
    )
    assert found["feed_forward"][1] > measured.FP16_LARGEST / measured.ROOM
    assert found["feed_forward"][0] == calm["feed_forward"][0]
    about, advice = measured.told({"texts": 2} | found)
    assert f"feed_forward {found['feed_forward'][1]:g} in layer 1" in about
    assert "--bf16-of-package" in advice
    [about] = measured.told({"texts": 2} | calm)


def test_texts_are_cut_to_what_the_model_takes() -> None:
    words = vocabulary.read(TOKENIZER, 1)
    for tokens_max in (20, 5_000):
        *sentences, together = measured.corpus(words, tokens_max)
        assert len(sentences) > 100 and max(map(len, sentences)) <= tokens_max
        assert len(together) == min(tokens_max, measured.LONG_TOKENS)
        assert all((ids[0], ids[-1]) == (words.bos, words.eos) for ids in (*sentences, together))


def test_a_package_without_the_numbers_gets_them_with_its_graph_in_16_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    assert measured.LARGEST not in made(out, *RANDOM, "--precision", "fp32", "--skip-verify")
    for _ in range(2):
        assert run("--fp16-of-package", out) == 0
        assert manifest_of(out)[measured.LARGEST].keys() == {"texts", *measured.KINDS}
        assert "largest numbers over 160 texts: scores" in capsys.readouterr().err
        # The second time it is read.
        monkeypatch.delattr(measured, "measure", raising=False)


def test_a_text_that_a_cpu_cannot_run_in_time_has_no_golden_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "LONGEST_MAX", 117)
    for places, has_some in ((120, False), (119, True)):
        manifest = made(tmp_path / "out", *random_model(positions=places), "--precision", "fp32")
        assert (measured.LONGEST in manifest["canary"]) == has_some


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_all_numbers_that_graphs_in_fp16_round_are_measured(tmp_path: Path, family: str) -> None:
    encoder = snapshots.open_encoder(FOLDERS / family)
    model = onnx.load(written(encoder, Precision.FP16, tmp_path))
    rounded = {
        node.input[0].removesuffix(".exact")
        for node in model.graph.node
        if node.op_type == "Cast"
        and node.attribute[0].i == TensorProto.FLOAT16
        and node.input[0].startswith("layer")
    }
    assert "layer0.ffn.norm" in rounded
    # Shares of an attention are at most one.
    left = {name for name in rounded if not measured.place_of(name)}
    assert {name.split(".")[-1] for name in left} == {"shares"}
