"""Metrics and rankings against cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from retrieval import evaluation, metrics, rankers
from retrieval.evaluation import Part
from retrieval.rankers import Embedded, RankFusion
from sparse_training.collection import Query


def test_one_right_answer_at_rank_two() -> None:
    ranked = metrics.ranking(np.asarray([0.1, 0.9, 0.5]))
    assert ranked.tolist() == [1, 2, 0]
    ndcg, recall, mrr = metrics.query_scores(ranked, {2})
    assert (ndcg, recall, mrr) == (pytest.approx(1 / math.log2(3)), 1.0, 0.5)


def test_two_right_answers_at_ranks_one_and_three() -> None:
    ndcg, recall, mrr = metrics.query_scores(np.asarray([4, 0, 2, 1, 3]), {4, 2})
    ideal = 1 + 1 / math.log2(3)
    assert ndcg == pytest.approx((1 + 1 / math.log2(4)) / ideal)
    assert (recall, mrr) == (1.0, 1.0)


def test_behind_the_cut_only_the_reciprocal_rank_counts() -> None:
    ndcg, recall, mrr = metrics.query_scores(np.arange(20), {10})
    assert (ndcg, recall) == (0.0, 0.0)
    assert mrr == pytest.approx(1 / 11)


def test_more_right_answers_than_places() -> None:
    ndcg, recall, _ = metrics.query_scores(np.arange(20), set(range(20)))
    assert (ndcg, recall) == (pytest.approx(1.0), 0.5)


def test_equal_scores_keep_the_order_of_the_pool() -> None:
    assert metrics.ranking(np.asarray([1.0, 2.0, 1.0, 2.0])).tolist() == [1, 3, 0, 2]


def test_bootstrap_resamples_groups() -> None:
    same = metrics.Bootstrap(["a", "a", "b", "b"], 1).interval(np.full(4, 0.25))
    assert (same.mean, same.low, same.high) == (0.25, 0.25, 0.25)
    # Two groups: a resample holds one of them twice, or both.
    two = metrics.Bootstrap(["a", "a", "b", "b"], 1).interval(np.asarray([0.0, 0.0, 1.0, 1.0]))
    assert (two.mean, two.low, two.high) == (0.5, 0.0, 1.0)
    again = metrics.Bootstrap(["a", "a", "b", "b"], 1).interval(np.asarray([0.0, 0.0, 1.0, 1.0]))
    assert two == again


def text(dense: list[float], sparse: dict[int, float], tokens: list[int]) -> Embedded:
    ids = np.asarray(sorted(sparse), np.int64)
    weights = np.asarray([sparse[i] for i in sorted(sparse)], np.float32)
    return Embedded(np.asarray(dense, np.float32), ids, weights, tuple(tokens))


QUERY = text([1.0, 0.0], {5: 0.5, 9: 0.2}, [5, 9, 9, 11])
POOL = [
    text([0.6, 0.8], {5: 0.4, 7: 0.3}, [5, 7, 11]),
    text([0.0, 1.0], {9: 1.0}, [9, 9, 9, 8]),
    text([1.0, 0.0], {}, [4]),
]


def test_scores_of_a_small_pool() -> None:
    assert rankers.dense_scores([QUERY], POOL)[0].tolist() == pytest.approx([0.6, 0.0, 1.0])
    assert rankers.sparse_scores([QUERY], POOL)[0].tolist() == pytest.approx([0.2, 0.2, 0.0])
    assert rankers.overlap_scores([QUERY], POOL)[0].tolist() == [2.0, 1.0, 0.0]
    hybrid = rankers.weighted(np.asarray([[0.6]]), np.asarray([[0.2]]), 0.5)
    assert hybrid[0, 0] == pytest.approx(0.7)


def test_empty_texts_score_zero() -> None:
    empty = text([0.0, 0.0], {}, [])
    assert rankers.sparse_scores([empty], POOL)[0].tolist() == [0.0, 0.0, 0.0]


def test_bm25_is_the_published_formula() -> None:
    found = rankers.bm25_scores([(5,)], [(5, 5, 6), (6, 7, 8), (8, 8, 9)])[0]
    inverse = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert found[0] == pytest.approx(inverse * 2 / (2 + 1.5), rel=1e-5)
    assert found[1:].tolist() == [0.0, 0.0]


def test_reciprocal_rank_gives_equal_scores_one_rank() -> None:
    one, two = np.asarray([[3.0, 2.0, 2.0]]), np.asarray([[0.5, 5.0, 1.0]])
    found = RankFusion(60.0, 100, 1.0).scores(one, two)[0]
    expected = [1 / 61 + 1 / 63, 1 / 62 + 1 / 61, 1 / 62 + 1 / 62]
    assert found.tolist() == pytest.approx(expected)


def test_what_a_ranking_does_not_return_gets_nothing_from_it() -> None:
    # Behind the second place, or without a shared word, a passage is no hit.
    dense, sparse = np.asarray([[3.0, 2.0, 1.0]]), np.asarray([[0.0, 0.0, 4.0]])
    found = RankFusion(10.0, 2, 0.5).scores(dense, sparse)[0]
    assert found.tolist() == pytest.approx([1 / 11, 1 / 12, 0.5 / 11])


def query(lang: str, target: str) -> Query:
    return Query("test", lang, target, "heading", f"{lang}{target}", "", (0,))


def test_evaluation_sums_up_by_language() -> None:
    parts = [
        Part([query("en", "en")], [QUERY], POOL, [{2}]),
        Part([query("en", "de")], [QUERY], POOL, [{0}]),
    ]
    found = evaluation.summary(evaluation.evaluate(parts, 1.0))
    dense, sparse = (
        {scope: found[scope]["methods"][method]["ndcg"][0] for scope in ("en", "en→de")}
        for method in ("dense", "sparse")
    )
    assert dense == {"en": 1.0, "en→de": pytest.approx(1 / math.log2(3), abs=1e-4)}
    assert sparse == {"en": 0.5, "en→de": 1.0}
    assert found["all"]["queries"] == 2
    assert found["across languages"]["queries"] == 1


def test_the_hybrids_are_good_where_they_help_least() -> None:
    # Dense is right in one domain and sparse in the other: only the middle weights keep both.
    agreed = text([0.9, 0.44], {5: 0.3}, [5])
    pool = [*POOL, agreed]
    parts = {
        "a": [Part([query("en", "en")], [QUERY], pool, [{2}])],
        "b": [Part([query("en", "de")], [QUERY], pool, [{3}])],
    }
    choice = evaluation.choose(parts)
    assert choice.scores["a"]["0"] == pytest.approx(1.0)

    def gain(name: str) -> float:
        return min(one[name] - max(one["0"], one["sparse"]) for one in choice.scores.values())

    best = max(gain(f"{one:g}") for one in evaluation.SHARES)
    assert gain(f"{choice.share:g}") >= best - evaluation.TOLERANCE
    assert gain(str(choice.fusion)) == max(gain(str(one)) for one in evaluation.FUSIONS)
