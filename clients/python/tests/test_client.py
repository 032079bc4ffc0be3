"""Both clients against the real server."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

import duovec
from duovec import AsyncClient, Client, Limits, answer
from duovec.call import TOKENS, Caller
from server import FAKE, TINY, running

TEXTS = [f"the cat number {number}" for number in range(20)]


class Recorder(httpx.HTTPTransport):
    """Sends, and remembers what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        return super().handle_request(request)


def recording(url: str, limits: Limits | None = None) -> tuple[Client, list[httpx.Request]]:
    recorder = Recorder()
    http = httpx.Client(transport=recorder)
    return Client(url, http=http, limits=limits, parallel=1), recorder.sent


def test_dense_vectors_are_those_that_plain_json_has(url: str, client: Client) -> None:
    plain = httpx.post(url + "/v1/embeddings", json={"input": TEXTS[:3]}).json()
    dense = client.dense(TEXTS[:3])
    assert dense.shape == (3, 8)
    assert dense.dtype == np.float32
    assert np.allclose(dense, [item["embedding"] for item in plain["data"]], atol=1e-6)
    assert np.allclose(np.linalg.norm(dense, axis=1), 1, atol=1e-5)


def test_sparse_weights_are_those_that_plain_json_has(url: str, client: Client) -> None:
    request = {"input": TEXTS[:3], "sparse_format": "dict"}
    plain = httpx.post(url + "/v1/sparse-embeddings", json=request).json()
    for sparse, item in zip(client.sparse(TEXTS[:3]), plain["data"], strict=True):
        expected = {int(key): value for key, value in item["sparse_values"].items()}
        assert sparse.to_dict() == pytest.approx(expected)


def test_both_are_what_each_route_gives(client: Client) -> None:
    dense, sparse = client.both([*TEXTS, ""])
    assert np.array_equal(dense, client.dense([*TEXTS, ""]))
    alone = client.sparse([*TEXTS, ""])
    assert [one.to_dict() for one in sparse] == [one.to_dict() for one in alone]
    assert len(sparse[-1]) == 0


def test_vectors_of_tokens_are_those_that_plain_json_has(tmp_path: Path) -> None:
    fixtures = Path(TINY).parent
    for file in (fixtures / "tiny/tokenizer.json", *(fixtures / "tiny-tokens").iterdir()):
        shutil.copy(file, tmp_path)
    with (
        running("--engine", "fake", "--package", str(tmp_path)) as server,
        Client(server.url) as one,
    ):
        request = {"input": TEXTS[:2], "token_vectors": True, "output_type": "float16"}
        plain = httpx.post(server.url + "/v1/embeddings", json=request).json()["data"]
        found = one.tokens(TEXTS[:2])
        for vectors, halves in zip(found, answer.tokens(plain), strict=True):
            assert vectors.dtype == halves.dtype == np.float32
            assert vectors.shape == halves.shape and vectors.shape[1] == 4
            assert np.allclose(vectors, halves, atol=1e-3)
            assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    job = Caller("http://localhost:1", None, None, None, None).job(TOKENS, ["a"] * 40, {})
    assert job.counts == [16, 16, 8]
    with pytest.raises(duovec.AnswerError):
        answer.tokens([{"token_vectors": {"shape": [2, 4], "dtype": "float32", "data": "AAAA"}}])


def test_a_model_without_vectors_of_tokens_says_so(client: Client) -> None:
    with pytest.raises(duovec.BadRequestError) as wrong:
        client.tokens(TEXTS[:1])
    assert wrong.value.code == "invalid_value"


def test_the_product_of_weights_is_over_shared_ids(client: Client) -> None:
    one, other = client.sparse(["the cat sleeps on the sofa", "the sofa sleeps"])
    shared = one.to_dict().keys() & other.to_dict().keys()
    expected = sum(one.to_dict()[key] * other.to_dict()[key] for key in shared)
    assert shared
    assert one.dot(other) == pytest.approx(expected)


def test_options_reach_the_server(client: Client) -> None:
    assert client.dense(TEXTS[:1], dimensions=4, input_type="query").shape == (1, 4)
    (two,) = client.sparse(["the cat sleeps on a sofa"], sparse_top_k=2)
    assert len(two) == 2
    with pytest.raises(duovec.BadRequestError) as wrong:
        client.both(["the cat " * 100], truncate=False)
    assert wrong.value.code == "context_length_exceeded"


def test_an_unknown_option_is_refused_with_those_that_exist(client: Client) -> None:
    with pytest.raises(TypeError, match=r"'top_k' is no option here; those are .*sparse_top_k"):
        client.sparse(TEXTS, top_k=3)  # type: ignore[call-arg]


def test_many_texts_are_many_requests_in_order(
    url: str, texts_run: Callable[[], int], client: Client
) -> None:
    small, sent = recording(url, Limits(texts=3))
    assert np.array_equal(small.dense(TEXTS), client.dense(TEXTS))
    assert [len(json.loads(one.content)["input"]) for one in sent] == [3] * 6 + [2]
    assert texts_run() == 40


def test_no_body_is_larger_than_the_limit(url: str) -> None:
    limits = Limits(body_bytes=4096 + 2000)
    long_texts = ['"\\é\n' * 100 + str(number) for number in range(9)]
    client, sent = recording(url, limits)
    assert client.dense(long_texts).shape == (9, 8)
    assert len(sent) > 1
    assert all(len(one.content) <= limits.body_bytes for one in sent)
    assert [text for one in sent for text in json.loads(one.content)["input"]] == long_texts


def test_requests_of_one_call_run_side_by_side(url: str, client: Client) -> None:
    with Client(url, limits=Limits(texts=1), parallel=4) as wide:
        assert np.array_equal(wide.dense(TEXTS), client.dense(TEXTS))


def test_large_calls_are_bulk_and_small_ones_are_not(url: str) -> None:
    client, sent = recording(url)
    client.dense(TEXTS[:8])
    client.dense(TEXTS[:9])
    client.dense(TEXTS[:1], bulk=True)
    client.dense(TEXTS[:9], bulk=False, timeout_s=2.5)
    client.dense(TEXTS[:1], timeout_s=float("inf"))
    assert [one.headers.get("x-priority") for one in sent] == [None, "bulk", "bulk", None, None]
    times_ms = [int(one.headers["x-request-timeout-ms"]) for one in sent]
    for told, wanted in zip(times_ms, [30_000, 300_000, 300_000, 2500, 10**9], strict=True):
        assert wanted - 1000 < told <= wanted


@pytest.mark.parametrize(
    ("texts", "kind", "message"),
    [
        ("one text", TypeError, "give a list of texts"),
        (["a", None], TypeError, r"texts\[1\] is of type NoneType"),
        (["a", "\ud800"], ValueError, r"texts\[1\] has half a character at 0"),
        (["é" * 600_000], ValueError, r"texts\[0\] has 1200000 bytes"),
    ],
)
def test_texts_that_no_server_takes_are_refused_before_anything_is_sent(
    url: str, texts: list[str], kind: type[Exception], message: str
) -> None:
    client, sent = recording(url)
    with pytest.raises(kind, match=message):
        client.dense(texts)
    assert sent == []


def test_no_texts_are_no_request(url: str) -> None:
    client, sent = recording(url)
    assert client.dense([]).shape == (0, 0)
    assert client.both([]).sparse == []
    assert sent == []


def test_a_failed_part_fails_the_call_and_names_the_text(url: str) -> None:
    texts = [*TEXTS, "the cat " * 100]
    with (
        Client(url, limits=Limits(texts=2)) as client,
        pytest.raises(duovec.BadRequestError, match="item 20 has 202 tokens"),
    ):
        client.dense(texts, truncate=False)


def test_a_failed_part_fails_the_call_while_another_one_waits() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        code, status = ("queue_full", 429) if b"cat" in request.content else ("invalid_input", 400)
        error = {"error": {"message": "no", "type": "t", "param": "input", "code": code}}
        return httpx.Response(status, json=error, headers={"retry-after": "20"})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    client = Client("http://a:1", http=http, limits=Limits(texts=1), parallel=2)
    with pytest.raises(duovec.BadRequestError):
        client.dense(["the cat", "the sofa"])


def test_wrong_addresses_and_times_are_refused() -> None:
    with pytest.raises(ValueError, match="no URL of a server"):
        Client("localhost:8080")
    with pytest.raises(ValueError, match="at least one URL"):
        Client([])
    for name in ["texts", "body_bytes", "text_bytes"]:
        with pytest.raises(ValueError, match=f"{name} is 0; it is a number above 0"):
            Limits(**{name: 0})
    with pytest.raises(ValueError, match="timeout_s is 0"):
        Client().dense(["a"], timeout_s=0)


def test_an_answer_of_another_service_is_an_answer_error() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": [{"index": 0}] * 2})

    client = Client("http://a:1", http=httpx.Client(transport=httpx.MockTransport(answer)))
    with pytest.raises(duovec.AnswerError, match="2 entries for 1 texts"):
        client.dense(["a"])


def test_a_key_is_sent() -> None:
    with running(*FAKE, "--api-key", "secret") as server:
        with Client(server.url, api_key="secret") as client:
            assert client.dense(["a"]).shape == (1, 8)
        with Client(server.url) as client, pytest.raises(duovec.AuthenticationError) as refused:
            client.dense(["a"])
        assert refused.value.status == 401


def test_a_dead_server_among_two_costs_nothing(url: str) -> None:
    with Client(["http://127.0.0.1:9", url], limits=Limits(texts=2)) as client:
        assert client.dense(TEXTS).shape == (20, 8)


def test_an_overloaded_server_is_asked_again_until_all_is_answered() -> None:
    slow = ["--fake-run-ms", "20", "--max-items", "4", "--queue-capacity", "4"]
    with running(*FAKE, *slow) as server:
        with Client(server.url, limits=Limits(texts=4), parallel=3) as client:
            assert client.dense(TEXTS).shape == (20, 8)
        metrics = httpx.get(server.url + "/metrics").text
        assert 'code="queue_full"' in metrics or 'status="429"' in metrics


def test_the_asynchronous_client_does_the_same(url: str, client: Client) -> None:
    async def ask() -> tuple[duovec.Paired, duovec.Dense, list[duovec.Sparse]]:
        async with AsyncClient(url, limits=Limits(texts=3)) as asynchronous:
            both = await asynchronous.both(TEXTS)
            with pytest.raises(duovec.BadRequestError):
                await asynchronous.dense([*TEXTS, "the cat " * 100], truncate=False)
            dense = await asynchronous.dense(TEXTS)
            return both, dense, await asynchronous.sparse(TEXTS)

    both, dense, sparse = asyncio.run(ask())
    expected = client.both(TEXTS)
    assert np.array_equal(both.dense, expected.dense)
    assert np.array_equal(dense, expected.dense)
    for one in (both.sparse, sparse):
        assert [weights.to_dict() for weights in one] == [
            weights.to_dict() for weights in expected.sparse
        ]
