"""The loss against its numerical gradient, max, relu and norm, and repeatable training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sparse_training import contrast, fit
from sparse_training.collection import Collection, Passage, Query
from sparse_training.contrast import Problem, TextStore
from sparse_training.fit import Domain, Settings
from sparse_training.hidden_states import States

WIDTH = 6
VOCABULARY = 30
NOISE_FROM = 16
SURPRISAL = np.linspace(0.2, 1.5, VOCABULARY).astype(np.float32)


def states(texts: list[list[int]], seed: int) -> States:
    chance = np.random.default_rng(seed)
    ids = np.concatenate([np.asarray(text, np.int32) for text in texts])
    # A hidden state that depends on the token and a little on the place, as an encoder's does.
    table = np.random.default_rng(99).normal(size=(VOCABULARY, WIDTH))
    # One hidden unit tells the ids that matter, below NOISE_FROM, from the others.
    table[:, 0] = np.where(np.arange(VOCABULARY) < NOISE_FROM, 1.0, -1.0)
    hidden = table[ids] + 0.1 * chance.normal(size=(len(ids), WIDTH))
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
    return States(ids, hidden.astype(np.float16), offsets, np.zeros((len(texts), WIDTH)), 0)


def random_texts(count: int, length: int, seed: int) -> list[list[int]]:
    chance = np.random.default_rng(seed)
    return [chance.integers(4, VOCABULARY, length).tolist() for _ in range(count)]


def store(texts: list[list[int]], seed: int, prompt: int = 0) -> TextStore:
    return TextStore(replace(states(texts, seed), prompt=prompt), SURPRISAL)


def small_problem() -> Problem:
    queries, passages = store(random_texts(5, 7, 1), 1), store(random_texts(9, 12, 2), 2, 1)
    excused = np.zeros((5, 9), bool)
    excused[2, 3] = True
    return Problem(
        queries.pick(np.arange(5)),
        passages.pick(np.arange(9)),
        queries.token_ids(np.arange(5)),
        np.asarray([0, 4, 2, 8, 1]),
        excused,
    )


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_gradient_is_the_numerical_one(exponent: float) -> None:
    problem = small_problem()
    point = np.append(np.random.default_rng(3).normal(size=WIDTH + 3) * 0.3, 0.7)
    _, gradient = contrast.loss_and_gradient(problem, point, exponent)
    step = 1e-3
    for at in range(len(point)):
        change = np.zeros(len(point))
        change[at] = step
        above, _ = contrast.loss_and_gradient(problem, point + change, exponent)
        below, _ = contrast.loss_and_gradient(problem, point - change, exponent)
        assert gradient[at] == pytest.approx((above - below) / (2 * step), rel=0.02, abs=2e-4)


def of_one_unit(ids: list[int], hidden: list[float], offsets: list[int], prompt: int) -> TextStore:
    rows = np.asarray(hidden, np.float16)[:, None]
    dense = np.zeros((len(offsets) - 1, 1))
    found = States(np.asarray(ids, np.int32), rows, np.asarray(offsets), dense, prompt)
    return TextStore(found, np.zeros(VOCABULARY))


PLAIN_HEAD = np.asarray([1.0, 0.0, 0.0, 0.0])
"""The weight of a position is relu of its one hidden unit."""


def test_weight_of_an_id_is_the_maximum_and_not_below_zero() -> None:
    # Text 0: id 7 at two positions with values 1 and 3, id 5 with -2. Text 1: id 7 with -1.
    found = of_one_unit([7, 5, 7, 7], [1.0, -2.0, 3.0, -1.0], [0, 3, 4], 0)
    batch = found.pick(np.arange(2))
    active = contrast.activate(batch, PLAIN_HEAD, 0.0)
    assert batch.token.tolist() == [5, 7, 7]
    assert batch.text.tolist() == [0, 0, 1]
    assert active.weight.tolist() == [0.0, 3.0, 0.0]
    assert batch.features[active.winner[1], 0] == 3.0


def test_weights_are_divided_by_the_norm_of_all_positions() -> None:
    # The prompt has 4, the text 12 and 3: the norm is 13. Negative values add nothing.
    found = of_one_unit([9, 7, 5, 6], [4.0, 12.0, 3.0, -8.0], [0, 4], 1)
    batch = found.pick(np.arange(1))
    whole = contrast.activate(batch, PLAIN_HEAD, 1.0).weight
    half = contrast.activate(batch, PLAIN_HEAD, 0.5).weight
    assert batch.token.tolist() == [contrast.PROMPT, 5, 6, 7]
    assert whole[1:].tolist() == pytest.approx([3 / 13, 0.0, 12 / 13])
    assert half[1:].tolist() == pytest.approx([3 / 13**0.5, 0.0, 12 / 13**0.5])


def test_features_tell_surprisal_and_repeats() -> None:
    found = TextStore(states([[5, 7, 5]], 1), SURPRISAL).pick(np.arange(1))
    assert found.features[:, -3].tolist() == SURPRISAL[[5, 5, 7]].tolist()
    assert found.features[:, -2].tolist() == pytest.approx([np.log(2), np.log(2), 0.0])
    assert found.features[:, -1].tolist() == [1.0, 1.0, 1.0]


def test_loss_is_worked_out_by_hand() -> None:
    # One query, weight 2 for id 7; passages give it 1 and 0.5: scores 2 and 1.
    problem = Problem(
        of_one_unit([7], [2.0], [0, 1], 0).pick(np.arange(1)),
        of_one_unit([7, 7], [1.0, 0.5], [0, 1, 2], 0).pick(np.arange(2)),
        np.asarray([7]),
        np.asarray([0]),
        np.zeros((1, 2), bool),
    )
    loss, _ = contrast.loss_and_gradient(problem, np.append(PLAIN_HEAD, 0.0), 0.0)
    assert loss == pytest.approx(np.log(1.0 + np.exp(-1.0)), rel=1e-6)
    loss, _ = contrast.loss_and_gradient(problem, np.append(PLAIN_HEAD, np.log(3.0)), 0.0)
    assert loss == pytest.approx(np.log(1.0 + np.exp(-3.0)), rel=1e-6)


def test_empty_texts_have_no_entries() -> None:
    some = store([[5, 6], [], [7]], 1)
    batch = some.pick(np.asarray([1, 2]))
    assert batch.count == 2
    assert batch.token.tolist() == [7]
    nothing = some.pick(np.asarray([1]))
    assert len(contrast.activate(nothing, np.zeros(WIDTH + 3), 0.5).weight) == 0


def tiny_domain() -> Domain:
    """Every passage holds the two ids of its query, and noise."""
    chance = np.random.default_rng(5)
    wanted = [chance.choice(np.arange(4, NOISE_FROM), 2, replace=False).tolist() for _ in range(40)]
    passage_texts = [
        [*pair, *chance.integers(NOISE_FROM, VOCABULARY, 8).tolist()] for pair in wanted
    ]
    query_texts = [[*pair, *chance.integers(NOISE_FROM, VOCABULARY, 4).tolist()] for pair in wanted]
    collection = Collection()
    for number in range(len(wanted)):
        collection.passages.append(Passage("train", "en", str(number), ""))
        query = Query("train", "en", "en", "summary", str(number), "", (number,))
        collection.queries.append(query)
    tokens = [tuple(text) for text in query_texts], [tuple(text) for text in passage_texts]
    return Domain(collection, store(query_texts, 6), store(passage_texts, 7), *tokens)


TINY_SETTINGS = Settings(
    steps=60,
    learning_rate=0.02,
    pull=0.0,
    norm_exponent=0.5,
    surprisal=True,
    repeats=True,
    hard=True,
    domains=("tiny",),
    seed=4,
)


def test_training_repeats_bit_for_bit_and_helps() -> None:
    start = np.append(np.zeros(WIDTH + 2), 0.3)
    trainer = fit.Trainer([tiny_domain()], hard=True)
    head = trainer.fit(start, TINY_SETTINGS)
    again = fit.Trainer([tiny_domain()], hard=True).fit(start, TINY_SETTINGS)
    assert head.tobytes() == again.tobytes()

    def loss(one: np.ndarray) -> float:
        problem = trainer.problem(np.random.default_rng(9))
        factors = (np.append(one, np.log(factor)) for factor in fit.FACTORS)
        return min(contrast.loss_and_gradient(problem, p, 0.5)[0] for p in factors)

    assert loss(head) < 0.8 * loss(start)


def test_what_the_head_shall_not_read_has_no_weight() -> None:
    start = np.append(np.zeros(WIDTH + 2), 0.3)
    settings = replace(TINY_SETTINGS, surprisal=False, repeats=False)
    head = fit.Trainer([tiny_domain()], hard=False).fit(start, settings)
    assert head[-3:-1].tolist() == [0.0, 0.0]
    assert np.isfinite(head).all()


def test_mined_passages_are_wrong_and_always_candidates() -> None:
    domain = tiny_domain()
    problem = fit.Trainer([domain], hard=True).problem(np.random.default_rng(1))
    assert not problem.excused[np.arange(len(problem.wanted)), problem.wanted].any()
    # All forty passages are within the limit, so that each is there once.
    assert problem.candidates.count == len(domain.collection.passages)


def test_coordinates_are_inverse_and_slopes_match() -> None:
    basis = fit.Basis(tiny_domain().passages, np.random.default_rng(2), TINY_SETTINGS)
    head = np.random.default_rng(3).normal(size=WIDTH + 3)
    np.testing.assert_allclose(basis.outward(basis.inward(head)), head)
    slope = np.random.default_rng(4).normal(size=WIDTH + 3)
    change = np.random.default_rng(5).normal(size=WIDTH + 3)
    direct = slope @ (basis.outward(basis.inward(head) + change) - head)
    assert basis.slope_inward(slope) @ change == pytest.approx(direct)
