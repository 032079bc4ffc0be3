"""What evaluate_chunks.py does: cuts guides, asks the server, ranks sections."""

from __future__ import annotations

import argparse
import base64
import json
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from debian_texts import packages
from default_package.command import say
from sparse_training import guide_collection

from . import metrics

TIMEOUT_S = 600
TEXTS = 16
"""Of one request."""
SECTION_CHARACTERS_MIN = 200
"""A shorter section is hardly more than its heading."""


@dataclass
class Section:
    """A section of a page, and where it stands there."""

    text: str
    start: int
    asked: list[str]
    """Heading and first sentence."""


@dataclass(frozen=True)
class Chunk:
    """A part of a text with its vector."""

    start: int
    end: int
    dense: np.ndarray


Pages = dict[str, list[Section]]
"""By name, each with its sections in their order."""


def run(options: argparse.Namespace) -> None:
    """Asks for all vectors, and prints nDCG@10 by guide, language and method."""
    print("| guide | language | sections | questions | " + " | ".join(METHODS) + " |")
    print("|---|---|---|---|" + "---|" * len(METHODS))
    for name in options.guides:
        domain = guide_collection.TESTS[name]
        found = packages.fetch_all(domain.packages, options.cache)
        for lang in options.langs:
            pages = read(found, lang)
            sections = [section for page in pages.values() for section in page]
            questions = [(text, at) for at, one in enumerate(sections) for text in one.asked]
            if not questions:
                continue
            say(f"embedding {name} in {lang}: {len(sections)} sections of {len(pages)} pages")
            asked = np.stack(
                [one.dense for (one,) in embed(options.url, [q for q, _ in questions], "query")]
            )
            scores = {
                method: np.stack([best(asked, chunks) for chunks in by_section], axis=1)
                for method, by_section in vectors(options, pages).items()
            }
            cells = []
            for method in METHODS:
                ranked = [metrics.ranking(row) for row in scores[method]]
                values = [
                    metrics.query_scores(order, {at})[0]
                    for order, (_, at) in zip(ranked, questions, strict=True)
                ]
                cells.append(f"{np.mean(values):.3f}")
            row = [name, lang, str(len(sections)), str(len(questions)), *cells]
            print("| " + " | ".join(row) + " |", flush=True)


METHODS = ("one vector", "chunks alone", "late, of the section", "late, of the page")


def read(found: list[packages.Unpacked], lang: str) -> Pages:
    """Sections that are long enough, without the sentences that ask for them."""
    sections = guide_collection.read_sections(found)
    sentences = guide_collection.take_sentences(sections)
    pages: Pages = defaultdict(list)
    ends: dict[str, int] = defaultdict(int)
    for key, by_lang in sections.items():
        section = by_lang.get(lang)
        text = "\n".join(section.blocks) if section else ""
        if section is None or len(text) < SECTION_CHARACTERS_MIN:
            continue
        page = key.split("#")[0]
        asked = [section.heading, sentences.get((key, lang), "")]
        pages[page].append(Section(text, ends[page], [one for one in asked if one]))
        # A line end is between two sections.
        ends[page] += len(text) + 1
    return pages


def vectors(options: argparse.Namespace, pages: Pages) -> dict[str, list[list[Chunk]]]:
    """By method, the chunks of each section."""
    url, cut = options.url, {"by": "tokens", "size": options.size}
    texts = [section.text for page in pages.values() for section in page]
    late = list(embed(url, texts, "passage", {**cut, "late": True}))
    of_pages = []
    numbers = iter(range(len(texts)))
    for page in pages.values():
        own = [late[next(numbers)] for _ in page]
        spans = [
            [section.start + chunk.start, section.start + chunk.end]
            for section, chunks in zip(page, own, strict=True)
            for chunk in chunks
        ]
        whole = "\n".join(section.text for section in page)
        asked = {"by": "spans", "spans": spans, "late": True}
        (chunks,) = embed(url, [whole], "passage", asked)
        left = iter(chunks)
        of_pages += [[next(left) for _ in chunks] for chunks in own]
    return {
        "one vector": list(embed(url, texts, "passage")),
        "chunks alone": list(embed(url, texts, "passage", {**cut, "late": False})),
        "late, of the section": late,
        "late, of the page": of_pages,
    }


def best(asked: np.ndarray, chunks: list[Chunk]) -> np.ndarray:
    """The largest product of each question with a chunk."""
    return (asked @ np.stack([chunk.dense for chunk in chunks]).T).max(axis=1)


def embed(
    url: str, texts: list[str], kind: str, chunking: dict[str, Any] | None = None
) -> Iterator[list[Chunk]]:
    """The chunks of each text; one that is not cut is one chunk."""
    for first in range(0, len(texts), TEXTS):
        some = texts[first : first + TEXTS]
        body = {"input": some, "input_type": kind, "encoding_format": "base64"}
        if chunking:
            body["chunking"] = chunking
        request = urllib.request.Request(
            f"{url}/v1/embeddings",
            json.dumps(body).encode(),
            {
                "content-type": "application/json",
                "x-priority": "bulk",
                "x-request-timeout-ms": str(TIMEOUT_S * 1000),
            },
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            data = json.load(answer)["data"]
        found: list[list[Chunk]] = [[] for _ in some]
        for at, item in enumerate(data):
            dense = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
            place = item.get("chunk", {"input": at, "start": 0, "end": 0})
            found[place["input"]].append(Chunk(place["start"], place["end"], dense))
        yield from found
