"""nDCG@10 on the three collections: one table for each trial."""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from default_package.manifest import RANGES
from quantization.score import Part, query_ndcg, sparse_scores

from .texts import Texts

DEPTH = 100  # hits of an index that are ranked again
Ranker = Callable[[Part], np.ndarray]  # scores `[asked, pool]`
Rows = Iterator[tuple[str, list[Ranker]]]  # a name, and the rankers of its figures


def run(options: argparse.Namespace) -> None:
    """Prints the tables."""
    texts = Texts(options)
    for table in (types, scores):
        print(f"\n| {table.__doc__} |", " | ".join(texts.parts), "|\n|---|---|---|---|")
        for name, rankers in table(texts):
            cells = [" / ".join(_ndcg(r, parts) for r in rankers) for parts in texts.parts.values()]
            print(f"| {name} |", " | ".join(cells), "|", flush=True)


def types(texts: Texts) -> Rows:
    """dense vectors: alone / their first hits again by floats"""
    seen = np.stack([text.dense for text in texts.others], dtype=float)
    least, step, middle = seen.min(0), np.ptp(seen, 0) / 255, seen.mean(0)
    unit = np.abs(seen).max() * 1.1 / 127  # other texts may reach further
    kept = {"reach": round(float(unit * 127), 4), "mean": middle.round(5).tolist()}
    RANGES.write_text(json.dumps(kept) + "\n")
    codes: dict[str, Callable] = {
        "float": np.asarray,
        "float16": lambda x: x.astype(np.float16).astype(np.float32),
        "int8, one range": lambda x: np.clip(np.rint(x / unit), -127, 127),
        "int8, a range each": lambda x: np.clip(np.rint((x - least) / step) - 128, -128, 127),
        "binary, sign": lambda x: np.where(x > 0, 1.0, -1.0),
        "binary, centred": lambda x: np.where(x > middle, 1.0, -1.0),
    }
    asks = dict.fromkeys(("float16", "int8, one range", "binary, sign"), np.asarray)
    asks |= {"int8, a range each": lambda x: x * step, "binary, centred": lambda x: x - middle}
    pairs = {name: (code, code) for name, code in codes.items()}
    pairs |= {f"{name}; questions in float": (ask, codes[name]) for name, ask in asks.items()}
    for name, (ask, keep) in pairs.items():
        ranker = partial(_dense, ask=ask, keep=keep)
        yield name, [ranker, partial(_again, ranker, _dense)]


def scores(_: Texts) -> Rows:
    """index: alone / first hits again by dense / by lexical / by dense + 0.1 · lexical"""
    indexes: dict[str, Ranker] = {"BM25": _bm25, "lexical": _sparse, "dense": _dense}
    fused = {"both by rank, k = 60": (60, 1.0), "both by rank, as recommended": (10, 0.3)}
    indexes |= {name: partial(_fused, *numbers) for name, numbers in fused.items()}
    by: tuple[Ranker, ...] = (_dense, _sparse, lambda part: _dense(part) + 0.1 * _sparse(part))
    for name, index in indexes.items():
        yield name, [index, *(partial(_again, index, one) for one in by)]


def _ndcg(ranker: Ranker, parts: list[Part]) -> str:
    rows = [row for part in parts for row in zip(ranker(part), part.relevant, strict=True)]
    return f"{np.mean([query_ndcg(*row) for row in rows]):.3f}"[1:]


def _dense(part: Part, ask: Callable = np.asarray, keep: Callable = np.asarray) -> np.ndarray:
    asked, pool = (np.stack([text.dense for text in texts]) for texts in (part.asked, part.pool))
    return ask(asked) @ keep(pool).T


@cache
def _sparse(part: Part) -> np.ndarray:
    return np.stack([sparse_scores(text, part.pool) for text in part.asked])


def _bm25(part: Part) -> np.ndarray:
    """On token ids, as bm25s does by default: Lucene's form, k1 1.5, b 0.75."""
    import bm25s

    index = bm25s.BM25()
    index.index([list(map(str, text.tokens)) for text in part.pool], show_progress=False)
    return np.stack([index.get_scores(list(map(str, text.tokens))) for text in part.asked])


def _again(index: Ranker, by: Ranker, part: Part) -> np.ndarray:
    found, order = by(part).copy(), np.argsort(-index(part), axis=1, kind="stable")
    np.put_along_axis(found, order[:, DEPTH:], -np.inf, axis=1)
    return found


def _fused(offset: int, share: float, part: Part) -> np.ndarray:
    """A lexical score of zero is no hit."""
    both = _dense(part), _sparse(part)
    ranks = [1 + np.argsort(np.argsort(-found, kind="stable")) for found in both]
    hits = [(found > 0) & (rank <= DEPTH) for found, rank in zip(both, ranks, strict=True)]
    dense, sparse = (hit / (offset + rank) for hit, rank in zip(hits, ranks, strict=True))
    return dense + share * sparse
