"""Writes what an evaluation found: tables for people, and JSON."""

from __future__ import annotations

from typing import Any

from .evaluation import METHODS

NAMES = {
    "overlap": "overlap",
    "bm25": "BM25",
    "sparse": "sparse",
    "dense": "dense",
    "hybrid_weighted": "hybrid, weighted",
    "hybrid_rank": "hybrid, by rank",
}
MAIN_SCOPES = ("all", "own language", "across languages")


def markdown(results: dict[str, Any]) -> str:
    """All tables of all domains."""
    lines = ["# Retrieval with the default package", ""]
    lines += [
        f"`{results['model']}`, {results['engine']} in {results['precision']}, {results['way']}. "
        "Mean and 95 % interval of a bootstrap over groups (all queries about one page or "
        "section, in all languages); differences are paired. The hybrid is dense + "
        f"{results['hybrid_share']:g} · sparse, the weight chosen on validation texts; "
        f"by rank is {_described(results['rank_fusion'])}.",
        "",
    ]
    for domain, scopes in results["domains"].items():
        lines += [f"## {domain}", "", *_main_table(scopes), ""]
        lines += [*_difference_table(scopes), "", "nDCG@10 by kind, language and pair:", ""]
        lines += [*_scope_table(scopes), ""]
    return "\n".join(lines)


def _described(fusion: dict[str, float]) -> str:
    return (
        f"reciprocal rank fusion with k {fusion['offset']:g} over the first {fusion['depth']} hits "
        f"of each ranking, in which a lexical rank counts {fusion['share']:g}"
    )


def _main_table(scopes: dict[str, Any]) -> list[str]:
    lines = ["| queries | method | nDCG@10 | recall@10 | MRR |", "|---|---|---|---|---|"]
    for name in MAIN_SCOPES:
        if name in scopes:
            found = scopes[name]
            for method in METHODS:
                cells = [_interval(found["methods"][method][m]) for m in ("ndcg", "recall", "mrr")]
                label = f"{name} ({found['queries']})"
                lines.append(f"| {label} | {NAMES[method]} | {' | '.join(cells)} |")
    return lines


def _difference_table(scopes: dict[str, Any]) -> list[str]:
    lines = ["| nDCG@10 | " + " | ".join(n for n in MAIN_SCOPES if n in scopes) + " |"]
    lines.append("|---" * (1 + sum(name in scopes for name in MAIN_SCOPES)) + "|")
    for pair in scopes["all"]["differences"]:
        better, worse = pair.split(" - ")
        cells = [
            _interval(scopes[name]["differences"][pair]["ndcg"], sign="+")
            for name in MAIN_SCOPES
            if name in scopes
        ]
        lines.append(f"| {NAMES[better]} − {NAMES[worse]} | {' | '.join(cells)} |")
    return lines


def _scope_table(scopes: dict[str, Any]) -> list[str]:
    lines = ["| | queries | " + " | ".join(NAMES[method] for method in METHODS) + " |"]
    lines.append("|---" * (2 + len(METHODS)) + "|")
    for name, found in scopes.items():
        if name not in MAIN_SCOPES:
            cells = [f"{found['methods'][method]['ndcg'][0]:.3f}" for method in METHODS]
            lines.append(f"| {name} | {found['queries']} | {' | '.join(cells)} |")
    return lines


def _interval(values: list[float], sign: str = "") -> str:
    mean, low, high = values
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"
