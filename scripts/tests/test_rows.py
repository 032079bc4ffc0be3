"""Packing texts into rows."""

import random

import numpy as np
import pytest

from default_package import rows


def packed(counts: list[int], pooling: str) -> list[rows.Batch]:
    sequences = [[10 + text] * count for text, count in enumerate(counts)]
    return list(rows.batches(sequences, 7, pooling))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_every_text_is_in_one_place_with_its_own_positions(pooling: str) -> None:
    choose = random.Random(3)
    counts = [choose.choice([1, 2, 8, 9, choose.randrange(1, 300)]) for _ in range(200)]
    seen = []
    for batch in packed(counts, pooling):
        ids, positions, segments, weights = batch.inputs.values()
        assert [a.dtype for a in (ids, positions, segments)] == [np.int32] * 3
        length = ids.shape[1]
        assert weights.shape == (len(ids), length // 8, length) and weights.dtype == np.float32
        assert ids.size <= rows.BATCH_TOKENS
        taken = np.zeros(ids.shape, bool)
        for at in batch.places:
            own = at.row, at.tokens
            count = counts[at.text]
            assert not taken[own].any() and taken[own].size == count
            taken[own] = True
            assert (ids[own] == 10 + at.text).all() and (segments[own] == at.segment).all()
            assert positions[own].tolist() == list(range(count))
            span = weights[at.row, at.segment]
            wanted = [1 / count] * count if pooling == "mean" else [1] + [0] * (count - 1)
            np.testing.assert_allclose(span[at.tokens], wanted)
            assert span.sum() == pytest.approx(1)
            seen.append(at.text)
        assert (ids[~taken] == 7).all() and not positions[~taken].any()
        assert (segments[~taken] == -1).all()
    assert sorted(seen) == list(range(len(counts)))


def test_short_texts_share_rows_and_a_long_one_gets_a_longer_row() -> None:
    short, long = packed([40, 1, 200, 30, 52], "mean")
    assert short.inputs["input_ids"].shape == (1, 128)
    assert [(at.text, at.segment, at.tokens.start) for at in short.places] == [
        (0, 0, 0),
        (1, 1, 40),
        (3, 2, 48),
    ]
    assert long.inputs["input_ids"].shape == (1, 256)
    assert [at.text for at in long.places] == [2, 4]


def test_little_room_is_left_over() -> None:
    choose = random.Random(5)
    counts = [choose.randrange(8, 80) for _ in range(2000)]
    room = sum(batch.inputs["input_ids"].size for batch in packed(counts, "mean"))
    assert sum(counts) > 0.94 * room
