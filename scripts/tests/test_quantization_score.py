"""What a graph in 8 bits is measured with, and when it is not kept."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from default_package import manifest
from default_package.errors import PackageError
from default_package.reference import Found
from quantization import score
from quantization.score import Collection, Embedded, Package, Passage, Query


def test_other_languages_are_left_out_and_positions_stay_right() -> None:
    passages = [Passage(lang, lang) for lang in ("de", "en", "fr", "en")]
    asked = [("en", "en", (1, 3)), ("de", "en", (3,)), ("fr", "en", (1,)), ("en", "fr", (2,))]
    queries = [Query(a, b, "title", "page", a + b, right) for a, b, right in asked]
    kept = score.in_languages(Collection(passages, queries), ["de", "en"])
    assert [passage.lang for passage in kept.passages] == ["de", "en", "en"]
    assert [(query.text, query.relevant) for query in kept.queries] == [
        ("enen", (1, 2)),
        ("deen", (2,)),
    ]


def test_prompts_and_dropped_ids_have_no_weight_and_equal_texts_run_once() -> None:
    class Words:
        dropped, pooling = frozenset({0, 2}), "cls"

        def encode(self, texts: list[str], kind: str) -> tuple[list[list[int]], int]:
            assert (texts, kind) == (["a", "b"], "query")
            return [[0, 9, 5, 7, 5, 2], [0, 9, 6, 2]], 2

    class Fixed:
        def run(self, sequences: list[list[int]], pooling: str) -> list[Found]:
            assert pooling == "cls"
            weights = np.asarray([0.9, 0.8, 0.1, 0.0, 0.3, 0.7], np.float32)
            return [Found(np.ones(2), weights[: len(ids)]) for ids in sequences]

    embedder = score.GraphEmbedder(Words(), Fixed())  # type: ignore[arg-type]
    second, first, again = embedder.embed(["b", "a", "b"], "query")
    assert again is second
    assert first.sparse == pytest.approx({5: 0.3})
    assert second.sparse == pytest.approx({6: 0.1})


def embedded(sparse: dict[int, float]) -> score.Embed:
    """Texts are unit vectors: `a` and `b` stand at right angles."""
    dense = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    return lambda texts, _: [Embedded(np.asarray(dense[text]), sparse) for text in texts]


def test_scores_are_over_all_queries_each_in_its_target_language() -> None:
    passages = [Passage(lang, text) for lang in ("en", "de") for text in ("a", "b")]
    asked = [("en", (0,)), ("de", (3,)), ("de", (3,))]
    queries = [Query("en", lang, "title", "page", "a", right) for lang, right in asked]
    found = score.ndcg(Collection(passages, queries), embedded({5: 1.0}))
    # The first finds its passage, the others rank theirs second. Equal weights rank as they stand.
    second = pytest.approx((1 + 2 * 0.6309) / 3, abs=1e-4)
    assert found == {"dense": second, "sparse": second}


def test_a_package_without_lexical_weights_is_measured_by_its_dense_vectors(tmp_path: Path) -> None:
    dense_only = {"format_version": manifest.FORMAT_VERSION, "model_id": "m", "prompts": {}}
    dense_only |= {"sparse": None, "max_input_tokens": 8, "pad_token_id": 1, "pooling": "mean"}
    (tmp_path / "manifest.json").write_text(json.dumps(dense_only))
    assert Package.load(tmp_path).dropped == frozenset()
    one = Collection([Passage("en", "a")], [Query("en", "en", "title", "page", "a", (0,))])
    assert score.ndcg(one, embedded({})) == {"dense": 1.0}


def test_ndcg_is_worked_out_by_hand() -> None:
    scores = np.asarray([0.1, 0.9, 0.5])
    assert score.query_ndcg(scores, {2}) == pytest.approx(1 / math.log2(3))
    ideal = 1 + 1 / math.log2(3)
    assert score.query_ndcg(scores, {1, 0}) == pytest.approx((1 + 1 / math.log2(4)) / ideal)
    # Behind the cut nothing counts, and equal scores rank in the order of the pool.
    assert score.query_ndcg(-np.arange(20.0), {10}) == 0.0
    assert score.query_ndcg(np.ones(3), {0}) == 1.0
    assert score.query_ndcg(np.ones(20), set(range(20))) == pytest.approx(1.0)


def test_lexical_scores_sum_products_of_shared_ids() -> None:
    texts = [{5: 0.5, 7: 2.0}, {6: 1.0}, {}]
    pool = [Embedded(np.ones(1), sparse) for sparse in texts]
    query = Embedded(np.ones(1), {5: 0.5, 6: 0.25})
    assert score.sparse_scores(query, pool).tolist() == [0.25, 0.25, 0.0]


@pytest.mark.parametrize(("after", "kept"), [(0.5, True), (0.396, True), (0.395, False)])
def test_a_graph_that_loses_more_than_a_hundredth_is_refused(after: float, kept: bool) -> None:
    entry = {"collection": "c", "f32": {"dense": 0.5, "sparse": 0.4}}
    entry["int8"] = {"dense": 0.5, "sparse": after}
    if kept:
        score.demand_little_loss(entry, "int8")
        return
    with pytest.raises(PackageError, match="nDCG@10 of sparse vectors on c is 0.395"):
        score.demand_little_loss(entry, "int8")
