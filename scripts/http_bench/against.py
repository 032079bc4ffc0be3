"""Another server and ours in turn, with the same texts and loads; one table with ratios."""

import argparse
import dataclasses
import os

from default_package.errors import PackageError
from load import report, servers

from . import tables, vectors
from .rows import unexpected
from .scenarios import prepared
from .vectors import BASE64, FLOATS, TEI, Dialect, Target

LOADS = ((1, 1), (16, 1), (64, 1), (4, 32))
"""Clients and texts of each request. Other servers take 32 texts of a request by default."""
OTHER = "the other"


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes. Fails when our server failed under any load; what the other one
    refuses is in the table."""
    asked, own_dialect = dialects(typed.dialect, typed.model)
    other = Target(typed.against, asked, OTHER)
    some = [entry["text"] for entry in servers.project_texts()[: vectors.LOOKED_AT]]
    # Before all else, which takes a while: a wrong address is soon told.
    theirs = vectors.ask(other, some)
    with prepared(typed) as driver, servers.duovec(typed.arguments) as server:
        own = Target(server.url, own_dialect)
        heading = [
            f"{os.cpu_count()} cores; {len(driver.texts)} texts; in turn, rounds of "
            f"{typed.seconds:g} s: {typed.rounds}; load and both servers on the same machine",
            tables.chosen(server.ask("/health")[1]),
            f"{OTHER}: POST {other.address}; {vectors.likeness(vectors.ask(own, some), theirs)}",
        ]
        for target in (own, other):
            driver.warm(target)
        pairs = [driver.in_turn([own, other], *load, typed.rounds) for load in LOADS]
    if typed.small:
        heading.append(tables.SMALL)
    rows = report.table(tables.PAIR_HEAD, tables.lines(pairs), tables.WORDS)
    loads = [
        {"load": tables.words(own), "duovec": own.stored(), "other": other.stored()}
        for own, other in pairs
    ]
    report.write(typed.out, "against", heading, [rows], loads=loads)
    found = unexpected([own for own, _ in pairs], typed.small)
    silent = [other for _, other in pairs if other.requests == other.errors]
    found += [f"{OTHER} server gave no good answer to {tables.words(row)}" for row in silent]
    if found:
        raise PackageError("; ".join(found))


def dialects(name: str, model: str | None) -> tuple[Dialect, Dialect]:
    """How the other server is asked, and how ours is: for vectors of the same form."""
    asked, own = (TEI, FLOATS) if name == "tei" else (BASE64, BASE64)
    if model is not None:
        fields = {**asked.fields, "model": model}
        asked = dataclasses.replace(asked, name=f"{asked.name}, with a model", fields=fields)
    return asked, own
