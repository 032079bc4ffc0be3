"""LangChain's class for OpenAI, which sends token ids of OpenAI's tokenizer instead of texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import tiktoken.load
import tiktoken_ext.openai_public
from langchain_openai import OpenAIEmbeddings

from server import PATIENT, ROOT, Server, default_package, ran, running, texts

MODEL = "multilingual-e5-small"
# Half precision rounds differently in batches of another shape.
LEAST_COSINE = 0.998
# Of each language some; crates/model/src/tokenize/openai.rs reads back texts of every script.
TEXTS = [entry["text"] for entry in texts()[::4]]


def assets() -> Path:
    """The folder of the crate with OpenAI's vocabularies, which are in the server, too."""
    command = ["cargo", "metadata", "--offline", "--locked", "--format-version", "1"]
    # Crates of other platforms may never have been fetched.
    command += ["--filter-platform", "host-tuple"]
    packages = json.loads(ran(*command, cwd=ROOT).stdout)["packages"]
    [manifest] = [one["manifest_path"] for one in packages if one["name"] == "tiktoken-rs"]
    return Path(manifest).parent / "assets"


@pytest.fixture(scope="module", autouse=True)
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let tiktoken read a file where it would download one; it still checks OpenAI's digest."""
    folder = assets()

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        return tiktoken.load.load_tiktoken_bpe(str(folder / Path(url).name), expected_hash)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path_factory.mktemp("tiktoken")))
        patch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", load)
        yield


@pytest.fixture(scope="module")
def told() -> Iterator[Server]:
    """A server whose operator says that token ids are of cl100k_base."""
    arguments = ["--package", default_package(), "--token-input", "cl100k_base", *PATIENT]
    # Named, so that nothing is measured at the start.
    with running(*arguments, "--workers", "1", "--max-batch-tokens", "512") as server:
        yield server


def langchain(server: Server, **more: Any) -> OpenAIEmbeddings:
    """Nothing is set but what every server of one's own needs."""
    return OpenAIEmbeddings(
        model=MODEL, base_url=server.url + "/v1", api_key="unused", max_retries=0, **more
    )


def with_fields(**fields: str) -> dict[str, Any]:
    """The option with which LangChain sends further fields."""
    return {"model_kwargs": {"extra_body": fields}}


def vectors_of_texts(server: Server, **fields: str) -> list[list[float]]:
    """What the server gives for the texts themselves."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)
    answer = client.embeddings.create(model=MODEL, input=TEXTS, extra_body=fields)
    return [item.embedding for item in answer.data]


def cosines(some: list[list[float]], others: list[list[float]]) -> list[float]:
    """Of each pair of vectors of length one."""
    pairs = zip(some, others, strict=True)
    return [sum(x * y for x, y in zip(one, other, strict=True)) for one, other in pairs]


def test_the_default_is_refused_with_a_message_that_names_the_cures(server: Server) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        langchain(server).embed_documents(TEXTS)
    assert refused.value.code == "token_encoding_missing"
    for cure in ["check_embedding_ctx_length=False", "token_encoding", "--token-input"]:
        assert cure in refused.value.message


@pytest.mark.parametrize(
    "cure",
    [{"check_embedding_ctx_length": False}, with_fields(token_encoding="cl100k_base")],
    ids=["texts instead of ids", "the encoding in each request"],
)
def test_each_cure_of_the_message_gives_the_vectors_of_the_texts(
    server: Server, cure: dict[str, Any]
) -> None:
    found = langchain(server, **cure).embed_documents(TEXTS)
    assert min(cosines(found, vectors_of_texts(server))) > LEAST_COSINE


def test_the_default_gives_the_vectors_of_the_texts_where_the_operator_says_so(
    told: Server,
) -> None:
    embeddings, expected = langchain(told), vectors_of_texts(told)
    assert min(cosines(embeddings.embed_documents(TEXTS), expected)) > LEAST_COSINE
    assert min(cosines([embeddings.embed_query(TEXTS[0])], expected[:1])) > LEAST_COSINE
    later = asyncio.run(langchain(told).aembed_documents(TEXTS))
    assert min(cosines(later, expected)) > LEAST_COSINE


def test_fields_of_the_request_choose_the_prompt(told: Server) -> None:
    passages = vectors_of_texts(told, input_type="passage")
    found = langchain(told, **with_fields(input_type="passage")).embed_documents(TEXTS)
    assert min(cosines(found, passages)) > LEAST_COSINE
    assert max(cosines(langchain(told).embed_documents(TEXTS), passages)) < LEAST_COSINE


def test_an_empty_text_has_a_vector(told: Server) -> None:
    """LangChain sends it as a text, since it has no ids."""
    empty, cat = langchain(told).embed_documents(["", "The cat sleeps."])
    assert max(cosines([empty], [cat])) < LEAST_COSINE
    assert cosines([empty], [empty]) == [pytest.approx(1, abs=1e-3)]
