"""The official client of OpenAI against the real binary."""

from __future__ import annotations

import json
import math

import openai
import pytest

from server import Server, texts


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    """A client that sends a key, as the library insists, and does not try again."""
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)


def embed(
    client: openai.OpenAI, inputs: list[str] | list[list[int]], **more: object
) -> list[list[float]]:
    """Dense vectors in input order."""
    answer = client.embeddings.create(model="multilingual-e5-small", input=inputs, **more)
    assert [item.index for item in answer.data] == list(range(len(inputs)))
    return [item.embedding for item in answer.data]


def test_default_base64_and_float_give_the_same_vector(client: openai.OpenAI) -> None:
    """The client asks for base64 when the caller says nothing, and decodes it itself."""
    inputs = [entry["text"] for entry in texts()[:20]]
    # One by one, so that both forms come from the same batch shape.
    for text in inputs:
        (by_default,) = embed(client, [text])
        (as_floats,) = embed(client, [text], encoding_format="float")
        assert len(by_default) == 384
        assert by_default == pytest.approx(as_floats, abs=1e-6)
        assert math.isclose(sum(x * x for x in as_floats), 1.0, abs_tol=1e-3)


def test_errors_arrive_as_the_clients_own_exceptions(client: openai.OpenAI) -> None:
    """The error body has the fields that the client reads."""
    with pytest.raises(openai.NotFoundError) as unknown:
        client.embeddings.create(model="no-such-model", input="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.embeddings.create(model="multilingual-e5-small", input="x", dimensions=5)
    assert wrong.value.code == "invalid_dimensions"
    assert wrong.value.param == "dimensions"


def test_both_vectors_can_be_asked_for_with_the_clients_own_post(client: openai.OpenAI) -> None:
    """Routes that OpenAI does not have keep the client's keys, retries and errors."""
    body = {"input": ["The cat sleeps."], "input_type": "passage", "sparse_format": "dict"}
    answer = client.post("/embeddings:both", body=body, cast_to=object)
    (item,) = json.loads(json.dumps(answer))["data"]
    fields = {"extra_body": {"input_type": "passage"}}
    (dense,) = embed(client, ["The cat sleeps."], encoding_format="float", **fields)
    assert item["embedding"] == pytest.approx(dense, abs=1e-6)
    assert item["sparse_values"] and all(value > 0 for value in item["sparse_values"].values())
    with pytest.raises(openai.BadRequestError, match="sparse_format"):
        client.post("/embeddings:both", body=body | {"sparse_format": "no"}, cast_to=object)


def test_models_are_listed(client: openai.OpenAI) -> None:
    """The list has the resident model, first by its own name."""
    name = "multilingual-e5-small"
    models = [model.id for model in client.models.list()]
    assert models == [name, name + "-query", name + "-passage"]
    assert client.models.retrieve(name).object == "model"
