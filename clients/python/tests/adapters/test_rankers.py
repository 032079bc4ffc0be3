"""Frameworks' re-rankers for other servers, unchanged: they read the order and the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker
from langchain_cohere import CohereRerank as LangChainCohere
from langchain_core.documents import Document as LangChainDocument
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank as LlamaIndexCohere
from llama_index.postprocessor.jinaai_rerank import JinaRerank as LlamaIndexJina
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
from pydantic import SecretStr

MODEL = "tiny"
QUERY = "who sleeps"
TEXTS = ["the dog barks", "the cat sleeps", "rates rose", "who barks"]
TOP = 3

Ranks = list[tuple[str, float]]
"""Texts with their scores, the best first."""


def llama_index(ranker: Any) -> Ranks:
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
    found = ranker.postprocess_nodes(nodes, QueryBundle(QUERY))
    return [(one.node.text, one.score) for one in found]


def haystack(ranker: Any) -> Ranks:
    documents = [Document(content=text) for text in TEXTS]
    found = ranker.run(query=QUERY, documents=documents)["documents"]
    return [(one.content, one.score) for one in found]


def langchain(ranker: Any) -> Ranks:
    documents = [LangChainDocument(page_content=text) for text in TEXTS]
    found = ranker.compress_documents(documents, QUERY)
    return [(one.page_content, one.metadata["relevance_score"]) for one in found]


KEY = Secret.from_token("x")
RANKERS: dict[str, tuple[str, Callable[[str], Ranks]]] = {
    "LlamaIndex TextEmbeddingInference": (
        "/rerank",
        lambda url: llama_index(TextEmbeddingInference(base_url=url, top_n=TOP)),
    ),
    "LlamaIndex CohereRerank": (
        "/v1/rerank",
        lambda url: llama_index(
            LlamaIndexCohere(base_url=url, api_key="x", model=MODEL, top_n=TOP)
        ),
    ),
    "LlamaIndex JinaRerank": (
        "/v1/rerank",
        lambda url: llama_index(
            LlamaIndexJina(base_url=url + "/v1", api_key="x", model=MODEL, top_n=TOP)
        ),
    ),
    "Haystack HuggingFaceTEIRanker": (
        "/rerank",
        lambda url: haystack(HuggingFaceTEIRanker(url=url, top_k=TOP)),
    ),
    "Haystack CohereRanker": (
        "/v1/rerank",
        lambda url: haystack(CohereRanker(MODEL, top_k=TOP, api_key=KEY, api_base_url=url)),
    ),
    "Haystack JinaRanker": (
        "/v1/rerank",
        lambda url: haystack(JinaRanker(MODEL, KEY, top_k=TOP, base_url=url + "/v1/rerank")),
    ),
    "LangChain CohereRerank": (
        "/v1/rerank",
        lambda url: langchain(
            LangChainCohere(model=MODEL, cohere_api_key=SecretStr("x"), base_url=url, top_n=TOP)
        ),
    ),
}


def expected(url: str, path: str) -> Ranks:
    """What the route answers to a request that no framework made."""
    body = {"query": QUERY, "documents": TEXTS, "texts": TEXTS}
    said = httpx.post(url + path, json=body).raise_for_status().json()
    # Text-embeddings-inference has names of its own, and a bare list.
    listed = said if isinstance(said, list) else said["results"]
    score = "score" if isinstance(said, list) else "relevance_score"
    return [(TEXTS[one["index"]], one[score]) for one in listed[:TOP]]


@pytest.mark.parametrize("ranker", RANKERS)
def test_a_ranker_gives_the_order_and_the_scores_of_the_server(ranker: str, url: str) -> None:
    path, ranked = RANKERS[ranker]
    found, known = ranked(url), expected(url, path)
    assert [text for text, _ in found] == [text for text, _ in known]
    assert [score for _, score in found] == pytest.approx([score for _, score in known])
    assert [text for text, _ in found] != TEXTS[:TOP]
