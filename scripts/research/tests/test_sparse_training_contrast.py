"""The loss against its numerical gradient, the max and relu rules, and repeatable training."""

from __future__ import annotations

import numpy as np
import pytest

from sparse_training import contrast, fit
from sparse_training.collection import Collection, Passage, Query
from sparse_training.contrast import Penalty, Problem, TextStore
from sparse_training.fit import Settings
from sparse_training.hidden_states import States

WIDTH = 6
VOCABULARY = 30
NOISE_FROM = 16


def states(texts: list[list[int]], seed: int) -> States:
    chance = np.random.default_rng(seed)
    ids = np.concatenate([np.asarray(text, np.int32) for text in texts])
    # A hidden state that depends on the token and a little on the place, as an encoder's does.
    table = np.random.default_rng(99).normal(size=(VOCABULARY, WIDTH))
    # One hidden unit tells the ids that matter, below NOISE_FROM, from the others.
    table[:, 0] = np.where(np.arange(VOCABULARY) < NOISE_FROM, 1.0, -1.0)
    hidden = table[ids] + 0.1 * chance.normal(size=(len(ids), WIDTH))
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
    return States(ids, hidden.astype(np.float16), offsets, np.zeros((len(texts), WIDTH)))


def random_texts(count: int, length: int, seed: int) -> list[list[int]]:
    chance = np.random.default_rng(seed)
    return [chance.integers(4, VOCABULARY, length).tolist() for _ in range(count)]


def small_problem() -> Problem:
    queries = TextStore(states(random_texts(5, 7, 1), 1))
    passages = TextStore(states(random_texts(9, 12, 2), 2))
    ids = queries.token_ids(np.arange(5))
    excused = np.zeros((5, 9), bool)
    excused[2, 3] = True
    return Problem(
        queries.pick(np.arange(5)),
        passages.pick(np.arange(9), only=ids),
        ids,
        np.asarray([0, 4, 2, 8, 1]),
        excused,
    )


def test_gradient_is_the_numerical_one() -> None:
    problem, penalty = small_problem(), Penalty(0.3, 0.2)
    head = np.append(np.random.default_rng(3).normal(size=WIDTH) * 0.3, 0.2)
    _, gradient = contrast.loss_and_gradient(problem, head, penalty)
    step = 1e-3
    for at in range(WIDTH + 1):
        change = np.zeros(WIDTH + 1)
        change[at] = step
        above, _ = contrast.loss_and_gradient(problem, head + change, penalty)
        below, _ = contrast.loss_and_gradient(problem, head - change, penalty)
        assert gradient[at] == pytest.approx((above - below) / (2 * step), rel=0.02, abs=2e-4)


def test_weight_of_an_id_is_the_maximum_and_not_below_zero() -> None:
    # Text 0: id 7 at two positions with values 1 and 3, id 5 with -2. Text 1: id 7 with -1.
    hidden = np.asarray([[1.0], [-2.0], [3.0], [-1.0]], np.float16)
    ids = np.asarray([7, 5, 7, 7], np.int32)
    store = TextStore(States(ids, hidden, np.asarray([0, 3, 4]), np.zeros((2, 1))))
    batch = store.pick(np.arange(2))
    active = contrast.activate(batch, np.asarray([1.0, 0.0]))
    assert batch.token.tolist() == [5, 7, 7]
    assert batch.text.tolist() == [0, 0, 1]
    assert active.weight.tolist() == [0.0, 3.0, 0.0]
    assert batch.hidden[active.winner[1]].tolist() == [3.0]


def test_loss_is_worked_out_by_hand() -> None:
    # One query, weight 2 for id 7; passages give it 1 and 0.5: scores 2 and 1.
    query = TextStore(States(np.asarray([7]), np.asarray([[2.0]]), np.asarray([0, 1]), None))
    passages = States(np.asarray([7, 7]), np.asarray([[1.0], [0.5]]), np.asarray([0, 1, 2]), None)
    problem = Problem(
        query.pick(np.arange(1)),
        TextStore(passages).pick(np.arange(2)),
        np.asarray([7]),
        np.asarray([0]),
        np.zeros((1, 2), bool),
    )
    loss, _ = contrast.loss_and_gradient(problem, np.asarray([1.0, 0.0]), Penalty(0.0, 0.0))
    assert loss == pytest.approx(np.log(1.0 + np.exp(-1.0)), rel=1e-6)


def test_empty_texts_have_no_entries() -> None:
    store = TextStore(states([[5, 6], [], [7]], 1))
    batch = store.pick(np.asarray([1, 2]))
    assert batch.count == 2
    assert batch.token.tolist() == [7]
    nothing = store.pick(np.asarray([1]))
    assert len(contrast.activate(nothing, np.zeros(WIDTH + 1)).weight) == 0


def tiny_training() -> tuple[fit.Trainer, Collection, TextStore, TextStore]:
    """Every passage holds the two ids of its query, and noise."""
    chance = np.random.default_rng(5)
    wanted = [chance.choice(np.arange(4, NOISE_FROM), 2, replace=False).tolist() for _ in range(40)]
    passage_texts = [
        [*pair, *chance.integers(NOISE_FROM, VOCABULARY, 8).tolist()] for pair in wanted
    ]
    query_texts = [[*pair, *chance.integers(NOISE_FROM, VOCABULARY, 4).tolist()] for pair in wanted]
    collection = Collection()
    for number in range(len(wanted)):
        split = "validation" if number >= 30 else "train"
        collection.passages.append(Passage(split, "en", str(number), ""))
        query = Query(split, "en", "en", "summary", str(number), "", (number,))
        collection.queries.append(query)
    queries, passages = TextStore(states(query_texts, 6)), TextStore(states(passage_texts, 7))
    return fit.Trainer(collection, queries, passages), collection, queries, passages


def test_training_repeats_bit_for_bit_and_helps() -> None:
    settings = Settings(steps=60, learning_rate=0.02, penalty=0.0, pull=0.0, seed=4)
    start = np.append(np.zeros(WIDTH), 0.3)
    trainer, collection, queries, passages = tiny_training()
    head = trainer.fit(start, settings)
    again = tiny_training()[0].fit(start, settings)
    assert head.tobytes() == again.tobytes()
    before = fit.validate(collection, queries, passages, start)["ndcg_all"]
    assert fit.validate(collection, queries, passages, head)["ndcg_all"] > before


def test_coordinates_are_inverse_and_slopes_match() -> None:
    positions = np.random.default_rng(1).normal(2.0, 3.0, (200, WIDTH))
    basis = fit.Basis(positions, np.random.default_rng(2))
    head = np.random.default_rng(3).normal(size=WIDTH + 1)
    np.testing.assert_allclose(basis.outward(basis.inward(head)), head)
    slope = np.random.default_rng(4).normal(size=WIDTH + 1)
    change = np.random.default_rng(5).normal(size=WIDTH + 1)
    direct = slope @ (basis.outward(basis.inward(head) + change) - head)
    assert basis.slope_inward(slope) @ change == pytest.approx(direct)
