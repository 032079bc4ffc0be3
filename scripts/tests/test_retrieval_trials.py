"""What measure_retrieval.py computes, on numbers that are worked out by hand."""

import numpy as np
import pytest

from quantization.score import Part
from retrieval import trials
from retrieval.texts import Text


def text(*dense: float, tokens: tuple[int, ...] = (), **weights: float) -> Text:
    sparse = {int(name[1:]): weight for name, weight in weights.items()}
    return Text(np.asarray(dense, np.float32), sparse, list(tokens))


def part() -> Part:
    pool = [text(1.0, 0.0, _5=2.0), text(0.8, 0.6), text(0.6, 0.8, _5=1.0, _7=3.0)]
    return Part([text(1.0, 0.0, tokens=(5, 5, 7), _5=0.5)], pool, [{0}])


def test_only_the_first_hits_are_ranked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "DEPTH", 2)
    found = part()
    lexical = trials._sparse(found).copy()
    by_lexical = trials._again(trials._dense, trials._sparse, found)
    assert by_lexical.tolist() == [[1.0, 0.0, -np.inf]]
    # What others rank by is as it was.
    assert (trials._sparse(found) == lexical).all()


def test_ranks_are_fused_and_a_lexical_score_of_zero_is_no_hit() -> None:
    found = trials._fused(10, 0.5, part())
    expected = [1 / 11 + 0.5 / 11, 1 / 12, 1 / 13 + 0.5 / 12]
    assert found == pytest.approx(np.asarray([expected]))


def test_vectors_are_compared_as_they_are_kept() -> None:
    found = trials._dense(part(), ask=lambda x: x * 2, keep=np.sign)
    assert found.tolist() == [[2.0, 2.0, 2.0]]
