"""The exported graphs: node types, fusion, positions, padding, fp16 twins."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from default_package.errors import PackageError
from default_package.verify import check_fusion, cosine
from model_export import graph, half_package, random_encoder
from model_export.encoder import Architecture, Encoder, Family, Pooling, TensorSource
from model_export.half import Precision
from model_export.reference import ExportReference
from model_export.verify import PackageRuntime

BATCH = [[0, 5, 6, 7, 8, 2], [0, 9, 10, 2], [0, 2]]
Run = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
SHAPES = [(f, p) for f in Family for p in Pooling]


def encoder_of(
    family: Family = Family.XLM_ROBERTA, pooling: Pooling = Pooling.CLS, *, with_head: bool = True
) -> Encoder:
    return random_encoder.make(snapshots.architecture(family, pooling), 11, with_head=with_head)


def written(encoder: Encoder, precision: Precision, folder: Path, **options: int) -> Path:
    folder.mkdir(exist_ok=True)
    graph.write(encoder, precision, folder / "model.onnx", **options)
    return folder / "model.onnx"


@dataclass(frozen=True)
class Changed:
    """A source whose tensors go through a function of name and value."""

    source: TensorSource
    change: Callable[[str, np.ndarray], np.ndarray]

    def tensor(self, name: str) -> np.ndarray:
        return self.change(name, self.source.tensor(name))

    def word_rows(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.source.word_rows(rows)


def changed(encoder: Encoder, change: Callable[[str, np.ndarray], np.ndarray]) -> Encoder:
    return replace(encoder, source=Changed(encoder.source, change))


def padded(sequences: list[list[int]], pad: int, *, left: bool = False) -> tuple[np.ndarray, ...]:
    length = max(map(len, sequences)) + 1
    ids = np.full((len(sequences), length), pad, np.int32)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        start = length - len(sequence) if left else 0
        ids[row, start : start + len(sequence)] = sequence
        mask[row, start : start + len(sequence)] = 1
    return ids, mask


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(("family", "pooling"), SHAPES)
def test_the_graph_is_the_reference_whatever_the_padding(
    tmp_path: Path, family: Family, pooling: Pooling, precision: Precision
) -> None:
    encoder = encoder_of(family, pooling)
    runtime = PackageRuntime(written(encoder, precision, tmp_path), "f32")
    reference, positive = ExportReference(encoder), False
    tolerance = 1e-5 if precision is Precision.FP32 else 4e-3
    for row, ids in zip(runtime.run(BATCH, encoder.architecture.pad_token_id), BATCH, strict=True):
        expected = reference.run(ids)
        np.testing.assert_allclose(row.dense, expected.dense, atol=tolerance)
        np.testing.assert_allclose(row.token_weights, expected.token_weights, atol=tolerance)
        positive |= bool(expected.token_weights.any())
    assert positive, "a head that gives only zeros would prove nothing"


def test_positions_of_xlm_roberta_are_counted_over_the_mask(tmp_path: Path) -> None:
    encoder = encoder_of()
    runtime = PackageRuntime(written(encoder, Precision.FP32, tmp_path), "f32")
    onward, mask = padded(BATCH[:2], 1)
    right, _ = runtime.run_padded(onward, mask)
    # With padding in front, `<s>` is not at position 0, where CLS pooling looks: the weights tell.
    ids, mask = padded(BATCH[:2], 1, left=True)
    _, weights = runtime.run_padded(ids, mask)
    for row, sequence in enumerate(BATCH[:2]):
        expected = ExportReference(encoder).run(sequence)
        np.testing.assert_allclose(
            weights[row, -len(sequence) :], expected.token_weights, atol=1e-5
        )
        np.testing.assert_allclose(right[row], expected.dense, atol=1e-5)


@pytest.mark.parametrize(("family", "rows"), [(Family.XLM_ROBERTA, "234"), (Family.BERT, "012")])
def test_only_the_rows_of_its_positions_change_a_text(
    tmp_path: Path, family: Family, rows: str
) -> None:
    encoder, text = encoder_of(family), [[0, 5, 2]]
    plain = PackageRuntime(written(encoder, Precision.FP32, tmp_path), "f32").run(text, 1)[0].dense
    seen = ""
    for row in range(6):

        def zeroed(name: str, value: np.ndarray, row: int = row) -> np.ndarray:
            if name == "emb.pos":
                value[row] = 0.0
            return value

        path = written(changed(encoder, zeroed), Precision.FP32, tmp_path)
        found = PackageRuntime(path, "f32").run(text, 1)[0].dense
        seen += "" if np.array_equal(found, plain) else str(row)
    assert seen == rows


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(("family", "pooling"), SHAPES)
def test_a_row_of_padding_gives_zeros(
    tmp_path: Path, family: Family, pooling: Pooling, precision: Precision
) -> None:
    path = written(encoder_of(family, pooling), precision, tmp_path)
    ids, mask = padded(BATCH, 1)
    mask[1] = 0
    for run in (PackageRuntime(path, "f32").run_padded, in_stated_types(path)):
        dense, weights = run(ids, mask)
        assert np.isfinite(dense).all() and np.isfinite(weights).all()
        assert not dense[1].any() and not weights[1].any()
        np.testing.assert_allclose(np.linalg.norm(dense[[0, 2]], axis=1), 1.0, atol=1e-4)


def in_stated_types(path: Path) -> Run:
    """Runs a graph with numpy in the types that are written in it, as TensorRT does."""
    evaluator = ReferenceEvaluator(onnx.load(path))

    def run(ids: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dense, weights = evaluator.run(None, {"input_ids": ids, "attention_mask": mask})
        assert dense.dtype == weights.dtype == np.float32
        return dense, weights

    return run


def test_real_f16_arithmetic_stays_close_to_the_reference(tmp_path: Path) -> None:
    encoder = encoder_of()
    ids, mask = padded(BATCH, 1)
    dense, weights = in_stated_types(written(encoder, Precision.FP16, tmp_path))(ids, mask)
    for row, sequence in enumerate(BATCH):
        expected = ExportReference(encoder).run(sequence)
        assert cosine(dense[row], expected.dense) > 0.9999
        found = weights[row, : len(sequence)]
        np.testing.assert_allclose(found, expected.token_weights, atol=0.005)


@pytest.mark.parametrize("precision", list(Precision))
def test_attention_and_gelu_are_fused_by_openvino(tmp_path: Path, precision: Precision) -> None:
    check_fusion(PackageRuntime(written(encoder_of(), precision, tmp_path), "f32"))


@pytest.mark.parametrize("family", list(Family))
def test_the_longest_text_fits_the_position_table(tmp_path: Path, family: Family) -> None:
    encoder = encoder_of(family)
    runtime = PackageRuntime(written(encoder, Precision.FP32, tmp_path), "f32")
    longest = [0, *range(4, encoder.architecture.max_input_tokens + 2), 2]
    assert len(longest) == encoder.architecture.max_input_tokens
    [row] = runtime.run([longest], 1)
    np.testing.assert_allclose(row.dense, ExportReference(encoder).run(longest).dense, atol=1e-5)


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    typed = [*inferred.value_info, *inferred.output, *inferred.input]
    return {v.name: v.type.tensor_type.elem_type for v in typed} | {
        i.name: i.data_type for i in inferred.initializer
    }


def test_f16_is_for_products_and_f32_for_norms_and_softmax(tmp_path: Path) -> None:
    model = onnx.load(written(encoder_of(), Precision.FP16, tmp_path))
    types = types_of(model)
    kinds: dict[str, set[int]] = {}
    for node in model.graph.node:
        if node.op_type != "Cast" and types[node.output[0]] in (1, 10):
            kinds.setdefault(node.op_type, set()).add(types[node.output[0]])
    layer_products = {
        types[n.output[0]]
        for n in model.graph.node
        if n.op_type == "MatMul" and n.output[0].startswith("layer")
    }
    assert layer_products == kinds["Gelu"] == {TensorProto.FLOAT16}
    assert kinds["LayerNormalization"] == kinds["Softmax"] == {TensorProto.FLOAT}
    assert types["embedding.norm"] == types["layer1.ffn.norm"] == TensorProto.FLOAT16
    assert types["sparse.product"] == types["layer0.scores.masked"] == TensorProto.FLOAT
    assert types["layer0.attention.sum"] == types["dense"] == TensorProto.FLOAT
    assert types["input_ids"] == types["attention_mask"] == TensorProto.INT32
    casts = [node.input[0] for node in model.graph.node if node.op_type == "Cast"]
    assert max(Counter(casts).values()) <= 1, "a tensor is cast twice to the same type"


@pytest.mark.parametrize("precision", list(Precision))
def test_norms_are_one_operator_and_the_opset_allows_it(
    tmp_path: Path, precision: Precision
) -> None:
    model = onnx.load(written(encoder_of(), precision, tmp_path))
    kinds = Counter(node.op_type for node in model.graph.node)
    layers = snapshots.SIZES.layers
    assert (kinds["LayerNormalization"], kinds["Gelu"]) == (2 * layers + 1, layers)
    assert kinds["Softmax"] == layers
    assert model.opset_import[0].version >= 17
    assert not {"Erf", "Pow", "Sqrt", "If", "Loop", "Where"} & kinds.keys()


def test_a_model_without_a_head_has_one_output(tmp_path: Path) -> None:
    model = onnx.load(written(encoder_of(with_head=False), Precision.FP16, tmp_path))
    assert [output.name for output in model.graph.output] == ["dense"]
    assert not [node.name for node in model.graph.node if "sparse" in node.name]


@pytest.mark.parametrize("precision", list(Precision))
def test_numbers_beside_the_graph_are_the_same_numbers(
    tmp_path: Path, precision: Precision
) -> None:
    encoder = encoder_of()
    inline = written(encoder, precision, tmp_path / "inline")
    beside = written(encoder, precision, tmp_path / "beside", external_bytes_min=0)
    assert [path.name for path in inline.parent.iterdir()] == ["model.onnx"]
    names = sorted(path.name for path in beside.parent.iterdir())
    assert names == ["model.onnx", "model.onnx.data"]
    header = onnx.load(beside, load_external_data=False)
    outside = [i for i in header.graph.initializer if i.data_location == TensorProto.EXTERNAL]
    assert "word.table" in {initializer.name for initializer in outside}
    for initializer in outside:
        place = {entry.key: entry.value for entry in initializer.external_data}
        assert place["location"] == "model.onnx.data"
        assert int(place["offset"]) % 4096 == 0
    left, right = onnx.load(inline), onnx.load(beside)
    for a, b in zip(left.graph.initializer, right.graph.initializer, strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(a), onnx.numpy_helper.to_array(b))
    assert list(left.graph.node) == list(right.graph.node)
    ids, mask = padded(BATCH, 1)
    results = [PackageRuntime(path, "f32").run_padded(ids, mask) for path in (inline, beside)]
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_a_weight_that_f16_cannot_hold_is_named(tmp_path: Path) -> None:
    def with_first(wanted: str, number: float) -> Encoder:
        def change(name: str, value: np.ndarray) -> np.ndarray:
            if name == wanted:
                value.flat[0] = number
            return value

        return changed(encoder_of(), change)

    huge = with_first("l1.fi.w", 7e4)
    with pytest.raises(PackageError, match=r"layer1\.ffn\.in\.weight .*float16 cannot hold"):
        written(huge, Precision.FP16, tmp_path)
    written(huge, Precision.FP32, tmp_path)
    for number in (np.nan, np.inf):
        with pytest.raises(PackageError, match=r"layer0\.q\.bias"):
            written(with_first("l0.q.b", number), Precision.FP32, tmp_path)


def test_large_scores_do_not_overflow_with_the_mask(tmp_path: Path) -> None:
    def loud(name: str, value: np.ndarray) -> np.ndarray:
        """Queries and keys so large that the scores reach thousands."""
        return value * 20.0 if name.endswith((".q.w", ".k.w")) else value

    path = written(changed(encoder_of(), loud), Precision.FP16, tmp_path)
    dense, weights = in_stated_types(path)(*padded(BATCH, 1))
    assert np.isfinite(dense).all() and np.isfinite(weights).all()


def test_the_f16_twin_of_an_f32_graph_is_the_f16_export(tmp_path: Path) -> None:
    for family, pooling in SHAPES:
        folder = tmp_path / f"{family.name}-{pooling.name}"
        encoder = encoder_of(family, pooling)
        single = written(encoder, Precision.FP32, folder)
        direct = onnx.load(written(encoder, Precision.FP16, folder / "half"))
        half_package.write(single, folder / "twin.onnx")
        twin = onnx.load(folder / "twin.onnx")
        assert list(twin.graph.node) == list(direct.graph.node)
        numbers = [
            {i.name: (i.data_type, i.raw_data) for i in model.graph.initializer}
            for model in (twin, direct)
        ]
        assert numbers[0] == numbers[1]
        assert list(twin.graph.output) == list(direct.graph.output)


def test_an_architecture_tells_its_limits() -> None:
    shape = Architecture(
        replace(snapshots.SIZES, positions=8194), Family.XLM_ROBERTA, Pooling.CLS, 1
    )
    assert shape.max_input_tokens == 8192
