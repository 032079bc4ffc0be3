"""Chroma on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import chromadb
import pytest

from duovec import Client
from duovec.chroma import DuovecEmbeddingFunction, DuovecSparseEmbeddingFunction

TEXTS = [f"the cat number {number} sleeps" for number in range(20)]


def test_a_collection_embeds_with_it_and_knows_it_when_opened_again(
    url: str, tmp_path: Path, texts_run: Callable[[], int]
) -> None:
    database = chromadb.PersistentClient(str(tmp_path))
    # Chroma's types ask for a function of texts and images, and its own take texts only, too.
    collection = database.create_collection(
        "texts",
        embedding_function=DuovecEmbeddingFunction(url),  # type: ignore[arg-type]
    )
    collection.add(ids=[str(number) for number in range(20)], documents=TEXTS)
    again = chromadb.PersistentClient(str(tmp_path)).get_collection("texts")
    found = again.query(query_texts=[TEXTS[3]], n_results=1)
    assert found["ids"] == [["3"]]
    assert texts_run() == len(TEXTS) + 1


def test_the_sparse_function_gives_chromas_vectors(url: str, client: Client) -> None:
    function = DuovecSparseEmbeddingFunction(url)
    again = DuovecSparseEmbeddingFunction.build_from_config(function.get_config())
    (expected,) = client.sparse(TEXTS[:1])
    for vectors in (function(TEXTS[:1]), again.embed_query(TEXTS[:1])):
        assert vectors[0].indices == expected.indices.tolist()
        assert vectors[0].values == pytest.approx(expected.values.tolist())


def test_a_key_is_kept_as_the_name_of_its_variable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOVEC_KEY", "very-secret")
    config = DuovecEmbeddingFunction(url, api_key_env_var="DUOVEC_KEY").get_config()
    assert config == {"servers": url, "api_key_env_var": "DUOVEC_KEY"}
