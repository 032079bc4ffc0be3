"""LangChain with Milvus Lite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from langchain_milvus import Milvus

from duovec import Client, Memo
from duovec.langchain import DuovecEmbeddings
from duovec.langchain_milvus import SPARSE_INDEX, SPARSE_SEARCH, DuovecSparse

TEXTS = [f"the cat number {number} sleeps" for number in range(20)]
DENSE_INDEX = {"index_type": "FLAT", "metric_type": "IP"}
DENSE_SEARCH = {"metric_type": "IP"}


def test_a_hybrid_store_runs_each_text_once(
    client: Client, tmp_path: Path, texts_run: Callable[[], int]
) -> None:
    memo = Memo(client)
    store = Milvus.from_texts(
        TEXTS,
        embedding=[DuovecEmbeddings(memo), DuovecSparse(memo)],
        vector_field=["dense", "sparse"],
        index_params=[DENSE_INDEX, SPARSE_INDEX],
        search_params=[DENSE_SEARCH, SPARSE_SEARCH],
        connection_args={"uri": str(tmp_path / "texts.db")},
    )
    found = store.similarity_search(TEXTS[3], k=1, ranker_type="rrf", ranker_params={"k": 60})
    assert [document.page_content for document in found] == [TEXTS[3]]
    assert texts_run() == len(TEXTS) + 1
