"""Hugging Face's client, which speaks to text-embeddings-inference, against the real binary."""

from __future__ import annotations

import huggingface_hub
import numpy as np
import pytest

from server import Server

TEXTS = ["Die Katze schläft auf dem Sofa.", "Interest rates rose."]


@pytest.fixture(scope="module")
def client(server: Server) -> huggingface_hub.InferenceClient:
    """A client that asks this server and no hub."""
    return huggingface_hub.InferenceClient(server.url)


def vectors(server: Server, **fields: object) -> np.ndarray:
    """What the OpenAI route gives."""
    return np.array([item["embedding"] for item in server.items(**fields)], dtype=np.float32)


def test_features_are_the_vectors_of_the_other_routes(
    server: Server, client: huggingface_hub.InferenceClient
) -> None:
    """One text, a list of texts, and a prompt by its name."""
    for text in TEXTS:
        one = client.feature_extraction(text)
        assert np.allclose(one, vectors(server, input=text), atol=1e-6)
    more = client.feature_extraction(
        TEXTS,
        prompt_name="passage",
        normalize=True,
        truncate=True,
        truncation_direction="right",
    )
    assert np.allclose(more, vectors(server, input=TEXTS, input_type="passage"), atol=1e-4)


def test_a_refusal_is_the_clients_own_exception_with_the_cure(
    client: huggingface_hub.InferenceClient,
) -> None:
    """The message of the body is part of the exception."""
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError, match="keeps its start"):
        client.feature_extraction("a", truncation_direction="left")
