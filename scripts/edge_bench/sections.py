"""The measurements: each is a load beside single texts, or against the best that is possible."""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from default_package.command import say
from http_bench.texts import write_lines
from load import aside, latency, report, servers
from load.connection import request
from load.open_loop import BROKEN, Asked, Load, answers_of, goodput
from load.report import at_least, at_most, share
from load.wrk import Wrk, looping

from . import SECTIONS, clients
from .clients import Storm, blow
from .measured import (
    DENSE,
    SEED,
    TAIL_S,
    Measured,
    documents,
    long_text,
    ratio,
)

OVERLOAD = 3.0
DEADLINE_MS = 2000
"""Of the flood's documents."""
FLOODS = 3
"""In turn with what the server does without them: a shared machine is not equally fast all day."""
BODY_BYTES = 33_000_000
"""A little less than the largest body that is taken."""
BODY_CLIENTS = 4
BODY_ITEMS = 2048
GROWTH_MB = 268.4
"""What the default of --max-inflight-bytes allows, 256 MiB."""
DEEP_CLIENTS = 64
STREAMS = 128
"""Requests of one connection of HTTP/2."""
ABSENT = (
    ("1 connection of 128 heads", Storm(1, STREAMS, 65_536), 0),
    ("4 connections of 128 heads", Storm(4, STREAMS, 65_536), 0),
    ("400 heads", Storm(400, 0, 65_536), 0),
    ("1,500 heads", Storm(1_500, 0, 65_536), 0),
    ("7 bodies of 32 MiB, for texts of 100 KB", Storm(7, 0, 32 << 20), 100_000),
    ("4,096 bodies of 64 KiB", Storm(4_096, 0, 65_536), 0),
)
"""Bodies that are announced and never come, and bytes of each text beside them; 0 is a query."""
UNREAD = json.dumps({"input": ["a"] * 2048}).encode()
"""Ten kilobytes for an answer of ten megabytes."""
SLACK_MB = 67.1
"""64 MiB beside what --max-inflight-bytes allows."""
KEPT = 0.05
"""Part of the idle resident memory that may stay behind a storm."""


def flood(measured: Measured) -> None:
    """Three times as many documents as the server can do."""
    say("flood: documents in an open loop, against what the server does without it")
    bodies = [{"input": text} for text in documents(measured.texts)]
    path = measured.folder / "documents.jsonl"
    write_lines(path, bodies)
    seconds = measured.typed.seconds
    answers: list[Asked] = []
    goodputs, cores = [], []
    with measured.server() as server:
        load = Load(server.url + DENSE, bodies, [], DEADLINE_MS, TAIL_S)
        capacities = [measured.capacity(load.url, path)]
        for turn in range(FLOODS):
            rate = OVERLOAD * capacities[-1]
            load.due = latency.poisson(rate, seconds, SEED + turn)
            driven = aside.run(answers_of, load)
            answers += driven.found
            goodputs.append(goodput(driven.found, DEADLINE_MS / 1e3, seconds))
            cores.append(driven.cores)
            capacities.append(measured.capacity(load.url, path))
    capacity, good = statistics.mean(capacities), statistics.mean(goodputs)
    offered = len(answers) / FLOODS / seconds
    refused = [one for one in answers if one.status == 429]
    silent = sum(one.status == BROKEN for one in answers)
    measured.seen["flood"] = {
        "capacity_per_s": capacities,
        "offered_per_s": offered,
        "goodput_per_s": goodputs,
        "statuses": Counter(one.status for one in answers),
        "refused_within_ms": latency.spread(one.ended - one.sent for one in refused),
        "sender_cores": statistics.mean(cores),
    }
    told = f"{offered:.0f}/s offered, {capacity:.1f}/s are its best"
    measured.figures += [
        at_least(f"flood: goodput of its best ({told})", good / capacity, 0.95, share),
        at_least(
            "flood: refusals that reached their client",
            ratio(len(refused), len(refused) + silent),
            1.0,
            share,
        ),
    ]


def bodies(measured: Measured) -> None:
    """Four of the largest bodies at once, as many texts and as one."""
    each = BODY_BYTES // BODY_ITEMS - 16
    kinds = {
        "2048 texts each": [
            long_text(measured.texts, each, number) for number in range(BODY_ITEMS)
        ],
        "one text each": long_text(measured.texts, BODY_BYTES - 1000, 0),
    }
    for kind, value in kinds.items():
        say(f"bodies: {BODY_CLIENTS} of 33 MB at once, {kind}")
        name, body = f"bodies, {kind}", json.dumps({"input": value}, ensure_ascii=False).encode()
        with measured.server() as server, measured.growth(name, server, GROWTH_MB):
            wire = request(server.url, "POST", DENSE, body)
            measured.beside(name, 2.0, server, clients.waves, server.url, wire, BODY_CLIENTS)


def deep(measured: Measured) -> None:
    """Deep checks without a pause."""
    say(f"deep: {DEEP_CLIENTS} connections loop GET /health/deep")
    with measured.server() as server:
        url = server.url + "/health/deep"
        measured.beside("deep", 2.0, server, looping, measured.wrk, url, DEEP_CLIENTS)


def slow(measured: Measured) -> None:
    """Everything slow together, over TLS."""
    typed = measured.typed
    say(f"slow: heads, bodies, readers, handshakes, and {typed.idle} idle connections")
    numbers = typed.slow, max(typed.slow // 5, 1), 2 * typed.slow, typed.idle
    with measured.server("--keep-alive-s", "3600", tls=True) as server:
        work, seconds = (clients.slow_ones, server.url, *numbers), typed.slow_seconds
        measured.beside("slow", 1.5, server, *work, seconds=seconds)


def absent(measured: Measured) -> None:
    """Requests whose bodies never come."""
    for http_2 in (True, False):
        kinds = [kind for kind in ABSENT if bool(kind[1].streams) == http_2]
        with measured.server(tls=http_2) as server:
            for name, storm, text_bytes in kinds:
                say(f"absent: {name}")
                work = blow, server.url, storm
                measured.beside(f"absent, {name}", 2.0, server, *work, text_bytes=text_bytes)


def unread(measured: Measured) -> None:
    """Large answers to small requests, of which nobody takes a byte."""
    most = GROWTH_MB + SLACK_MB
    for kind, streams in {"HTTP/1.1": 0, f"{STREAMS} streams each": STREAMS}.items():
        say(f"unread: {measured.typed.unread} connections, {kind}")
        storm = Storm(measured.typed.unread, streams, len(UNREAD), UNREAD, measured.typed.seconds)
        name, tls = f"unread, {kind}", bool(streams)
        with measured.server(tls=tls) as server, measured.growth(name, server, most) as memory:
            idle = server.resident_megabytes()
            measured.beside(name, 2.0, server, blow, server.url, storm)
            time.sleep(measured.typed.rest_seconds)
        kept = (memory[-1] - memory[0]) / idle
        measured.figures.append(at_most(f"{name}: memory kept a minute later", kept, KEPT, share))
        measured.seen[name]["after_mb"] = memory[-1]


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    texts = [entry["text"] for entry in servers.project_texts() if entry["text"].strip()]
    load_before = os.getloadavg()[0]
    chosen = typed.only or SECTIONS
    with tempfile.TemporaryDirectory(prefix="duovec-edge-") as folder:
        wrk = Wrk.found()
        measured = Measured(typed, texts, Path(folder), wrk)
        for section in (flood, bodies, deep, slow, absent, unread):
            if section.__name__ in chosen:
                section(measured)
    heading = (
        f"{os.cpu_count()} cores, busy with {load_before:.1f} others before; "
        f"{typed.seconds:g} s each, slow {typed.slow_seconds:g} s; "
        f"{typed.rate:g} single texts/s; load and server on the same machine"
    )
    cores = ", ".join(f"{name} {seen['sender_cores']:.2f}" for name, seen in measured.seen.items())
    report.write(
        typed.out,
        "table",
        [heading, f"cores of the senders: {cores}"],
        [report.figures(measured.figures)],
        arguments=typed.arguments,
        figures=[vars(figure) for figure in measured.figures],
        seen=measured.seen,
    )
