"""The memo against the real server, which counts what it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from duovec import Client, Memo, Paired, Sparse, UnreachableError

TEXTS = [f"the sofa number {number}" for number in range(30)]


def test_dense_then_sparse_runs_each_text_once(
    client: Client, texts_run: Callable[[], int]
) -> None:
    memo = Memo(client)
    dense = memo.dense(TEXTS)
    sparse = memo.sparse(TEXTS)
    assert texts_run() == 30
    expected = client.both(TEXTS)
    assert np.array_equal(dense, expected.dense)
    assert [one.to_dict() for one in sparse] == [one.to_dict() for one in expected.sparse]


def test_a_text_that_comes_twice_in_a_call_runs_once(
    client: Client, texts_run: Callable[[], int]
) -> None:
    dense = Memo(client).dense(["a", "b", "a"])
    assert texts_run() == 2
    assert np.array_equal(dense[0], dense[2])


def test_a_query_is_not_a_passage(client: Client, texts_run: Callable[[], int]) -> None:
    memo = Memo(client)
    memo.dense(["a"], input_type="query")
    memo.dense(["a"], input_type="passage")
    assert texts_run() == 2


def test_the_oldest_are_forgotten_and_a_call_may_be_larger_than_the_memo(
    client: Client, texts_run: Callable[[], int]
) -> None:
    memo = Memo(client, texts=10)
    assert memo.dense(TEXTS).shape == (30, 8)
    memo.dense(TEXTS[20:])
    assert texts_run() == 30
    memo.dense(TEXTS[:5])
    assert texts_run() == 35
    assert len(memo) == 10


def test_threads_that_ask_at_once_share_one_run(
    client: Client, texts_run: Callable[[], int]
) -> None:
    memo = Memo(client)
    together = threading.Barrier(8)

    def ask(number: int) -> bool:
        together.wait()
        if number % 2:
            return memo.dense(TEXTS).shape == (30, 8)
        return len(memo.sparse(TEXTS)) == 30

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert texts_run() == 30


class Failing(Client):
    """Fails once, after another thread began to wait."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.begun = threading.Event()
        self.may_fail = threading.Event()

    def both(self, texts: list[str], **options: object) -> Paired:  # type: ignore[override]
        if not self.begun.is_set():
            self.begun.set()
            self.may_fail.wait(10)
            raise UnreachableError("gone")
        return super().both(texts)


def test_the_failure_of_one_thread_is_not_that_of_another(url: str) -> None:
    client = Failing(url)
    memo = Memo(client)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(memo.dense, ["a"])
        assert client.begun.wait(10)
        second = pool.submit(memo.dense, ["a"])
        client.may_fail.set()
        with pytest.raises(UnreachableError):
            first.result()
        assert second.result().shape == (1, 8)
    assert memo.dense(["a"]).shape == (1, 8)


class Short:
    """Answers once with less than it was asked for."""

    def __init__(self) -> None:
        self.rows = [1, 2]

    def check(self, texts: list[str]) -> None:
        """All texts are good."""

    def both(self, texts: list[str], **options: object) -> Paired:
        rows = self.rows.pop(0)
        one = Sparse(np.zeros(1, np.int32), np.ones(1, np.float32))
        return Paired(np.ones((rows, 8), np.float32), [one] * rows)


def test_an_answer_that_cannot_be_kept_leaves_nobody_waiting() -> None:
    memo = Memo(Short())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="zip"):
        memo.dense(["a", "b", "c"])
    assert len(memo) == 1, "the text that was answered"
    assert memo.dense(["a", "b", "c"]).shape == (3, 8)


def test_what_is_shared_cannot_be_written_to(client: Client) -> None:
    memo = Memo(client)
    memo.dense(["a"])[0, 0] = 7.0
    assert memo.dense(["a"])[0, 0] != 7.0
    (sparse,) = memo.sparse(["a"])
    with pytest.raises(ValueError, match="read-only"):
        sparse.values[0] = 7.0


def test_wrong_texts_are_named_by_their_place_in_the_call(client: Client) -> None:
    memo = Memo(client)
    memo.dense(["a"])
    with pytest.raises(TypeError, match=r"texts\[1\] is of type int"):
        memo.dense(["a", 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="give a list of texts"):
        memo.dense("a")
    with pytest.raises(ValueError, match="at least one"):
        Memo(client, texts=0)
