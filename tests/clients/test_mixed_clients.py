"""Many clients at once with mixed routes and sizes: every answer belongs to its request."""

from __future__ import annotations

import random
import threading
import time

import httpx

from server import Server, texts

CLIENTS = 24
SECONDS = 15
# Half precision rounds differently in batches of another shape.
LEAST_COSINE = 0.998
LARGEST_WEIGHT_DIFFERENCE = 0.06


class Golden:
    """What each text gives when it is asked for alone."""

    def __init__(self, url: str) -> None:
        """Ask once for each text."""
        self.texts = [entry["text"] for entry in texts()]
        self.dense: list[list[float]] = []
        self.sparse: list[dict[str, float]] = []
        self.tokens: list[int] = []
        with httpx.Client(base_url=url, timeout=60) as client:
            for text in self.texts:
                body = {"input": text, "sparse_format": "dict"}
                answer = client.post("/v1/embeddings:both", json=body).raise_for_status().json()
                self.dense.append(answer["data"][0]["embedding"])
                self.sparse.append(answer["data"][0]["sparse_values"])
                self.tokens.append(answer["usage"]["total_tokens"])


def is_dense(golden: list[float], seen: list[float]) -> bool:
    """Whether a dense vector is that of the golden one's text."""
    return sum(x * y for x, y in zip(golden, seen, strict=True)) > LEAST_COSINE


def is_sparse(golden: dict[str, float], seen: dict[str, float]) -> bool:
    """Whether lexical weights are those of the golden one's text."""
    ids = golden.keys() | seen.keys()
    worst = max((abs(golden.get(i, 0) - seen.get(i, 0)) for i in ids), default=0.0)
    return worst < LARGEST_WEIGHT_DIFFERENCE


def one_request(client: httpx.Client, golden: Golden, chance: random.Random) -> str | None:
    """Send one random request; what is wrong with its answer."""
    route = chance.choice(["/v1/embeddings", "/v1/sparse-embeddings", "/v1/embeddings%3Aboth"])
    count = chance.choice([1, 1, 1, 2, 5, 16, 40])
    chosen = [chance.randrange(len(golden.texts)) for _ in range(count)]
    body: dict[str, object] = {
        "input": [golden.texts[i] for i in chosen] if count > 1 else golden.texts[chosen[0]],
        "sparse_format": "dict",
    }
    answer = client.post(route, json=body)
    if answer.status_code != 200:
        return f"{route}: {answer.status_code} {answer.text[:200]}"
    payload = answer.json()
    if payload["usage"]["total_tokens"] != sum(golden.tokens[i] for i in chosen):
        return f"{route}: usage is of another request"
    for index, (i, item) in enumerate(zip(chosen, payload["data"], strict=True)):
        if item["index"] != index:
            return f"{route}: item {index} is out of order"
        if "embedding" in item and not is_dense(golden.dense[i], item["embedding"]):
            return f"{route}: item {index} has another text's dense vector"
        if "sparse_values" in item and not is_sparse(golden.sparse[i], item["sparse_values"]):
            return f"{route}: item {index} has another text's weights"
    return None


def test_24_clients_with_mixed_routes_and_sizes(server: Server) -> None:
    """No error, and every answer belongs to its request, checked by content."""
    golden = Golden(server.url)
    distinct = sum(is_dense(a, b) for n, a in enumerate(golden.dense) for b in golden.dense[:n])
    assert distinct == 0, "the check tells every two texts apart"
    problems: list[str] = []
    counts = [0] * CLIENTS
    end = time.monotonic() + SECONDS

    def run(number: int) -> None:
        chance = random.Random(number)
        # Right answers are asked for, not soon ones, of a machine that may have other work.
        patient = {"x-request-timeout-ms": "300000"}
        with httpx.Client(base_url=server.url, headers=patient, timeout=320) as client:
            while time.monotonic() < end and len(problems) < 10:
                problem = one_request(client, golden, chance)
                counts[number] += 1
                if problem:
                    problems.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert min(counts) > 0, "every client was served"
    health = httpx.get(server.url + "/health").json()
    assert health["status"] == "ok" and health["queue_depth"] == 0
    print(f"{sum(counts)} requests of {CLIENTS} clients in {SECONDS} s")
