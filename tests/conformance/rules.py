"""The rules of lexical weights, written down once more and apart from the server's code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """Which of the weights stay; `None` keeps all. `min_weight` is an f32."""

    top_k: int | None = None
    min_weight: float | None = None


def best_weights(
    ids: Iterable[int], weights: Iterable[float], dropped: set[int]
) -> dict[int, float]:
    """Each id that stays with the maximum over its positions, not only those above zero."""
    best: dict[int, float] = {}
    for token_id, weight in zip(ids, weights, strict=True):
        if token_id not in dropped:
            best[token_id] = max(weight, best.get(token_id, weight))
    return best


def select(best: dict[int, float], selection: Selection) -> list[tuple[int, float]]:
    """Only above zero; at or above the least weight; of equal ones the smaller ids; ascending."""
    kept = [(token_id, weight) for token_id, weight in best.items() if weight > 0]
    if selection.min_weight is not None:
        kept = [pair for pair in kept if pair[1] >= selection.min_weight]
    if selection.top_k is not None:
        kept = sorted(kept, key=lambda pair: (-pair[1], pair[0]))[: selection.top_k]
    return sorted(kept)


def edges(best: dict[int, float], selection: Selection) -> list[float]:
    """Weights at which an id stays or leaves."""
    edges = [0.0]
    if selection.min_weight is not None:
        edges.append(selection.min_weight)
    heaviest = sorted(best.values(), reverse=True)
    if selection.top_k is not None and len(heaviest) > selection.top_k:
        edges += heaviest[selection.top_k - 1 : selection.top_k + 1]
    return edges
