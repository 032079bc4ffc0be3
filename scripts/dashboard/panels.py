"""What the dashboard shows: a few numbers, then rows of curves."""

from __future__ import annotations

from dataclasses import dataclass

HERE = 'instance=~"$instance"'
VECTORS = 'route=~"/v1/.*embeddings.*"'


@dataclass(frozen=True)
class Graph:
    """One panel of curves: its unit as Grafana names it, and queries with their legends."""

    title: str
    description: str
    unit: str
    queries: dict[str, str]
    """Legend to PromQL."""
    stacked: bool = False


def rate(metric: str, labels: str = "", by: str = "") -> str:
    """Sum over the servers of a counter's rate."""
    chosen = f"{HERE},{labels}" if labels else HERE
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{{{chosen}}}[$__rate_interval]))"


def quantile(part: float, metric: str, labels: str = "", by: str = "") -> str:
    """A quantile of a histogram over all servers."""
    grouping = f"le, {by}" if by else "le"
    return f"histogram_quantile({part}, {rate(f'{metric}_bucket', labels, grouping)})"


def mean(metric: str) -> str:
    """Mean of a histogram's values over all servers."""
    return f"{rate(f'{metric}_sum')} / {rate(f'{metric}_count')}"


def share(labels: str) -> str:
    """The part of the requests for vectors that was answered so; 0 when none was."""
    some = rate("duovec_requests_total", f"{VECTORS},{labels}")
    return f"({some} or vector(0)) / {rate('duovec_requests_total', VECTORS)}"


STATS = {
    "servers ready": ("short", f"sum(duovec_ready{{{HERE}}})"),
    "requests/s": ("reqps", rate("duovec_requests_total", VECTORS)),
    "texts/s": ("short", rate("duovec_items_total", 'outcome="replied"')),
    "errors of the servers": (
        "percentunit",
        share('status=~"5.."'),
    ),
    "refused with 429": (
        "percentunit",
        share('status="429"'),
    ),
    "p99 of a request": ("s", quantile(0.99, "duovec_request_seconds", VECTORS)),
}
ROWS: dict[str, list[Graph]] = {
    "What clients see": [
        Graph(
            "Requests by status",
            "Answers with vectors, and refusals of them.",
            "reqps",
            {"{{status}}": rate("duovec_requests_total", VECTORS, "status")},
            stacked=True,
        ),
        Graph(
            "Time of a request",
            "From the head to the answer, whatever its status.",
            "s",
            {
                name: quantile(part, "duovec_request_seconds", VECTORS)
                for name, part in {"p50": 0.5, "p90": 0.9, "p99": 0.99}.items()
            },
        ),
        Graph(
            "Errors by code",
            "The codes of the answers' bodies.",
            "reqps",
            {"{{reason}}": rate("duovec_request_errors_total", "", "reason")},
            stacked=True,
        ),
    ],
    "Where the time goes": [
        Graph(
            "p99 of each stage",
            "Stages of requests that got vectors; each ends where the next begins.",
            "s",
            {"{{stage}}": quantile(0.99, "duovec_request_stage_seconds", "", "stage")},
        ),
        Graph(
            "Queue",
            "What a new text would wait, were it the last of the queue.",
            "s",
            {"{{instance}}": f"duovec_predicted_wait_seconds{{{HERE}}}"},
        ),
        Graph(
            "Waiting texts",
            "By priority; interactive ones go first.",
            "short",
            {"{{priority}}": f"sum by (priority) (duovec_queue_items{{{HERE}}})"},
            stacked=True,
        ),
    ],
    "The model": [
        Graph(
            "Tokens",
            "Real ones are those of texts, padded ones those of whole batches.",
            "short",
            {"{{kind}}": rate("duovec_tokens_total", "", "kind")},
        ),
        Graph(
            "Batches",
            "Means over the span: texts of a batch, and its time.",
            "short",
            {"texts": mean("duovec_batch_items"), "batches/s": rate("duovec_batches_total")},
        ),
        Graph(
            "Time of a batch",
            "From its choice to its rows.",
            "s",
            {
                "p50": quantile(0.5, "duovec_batch_seconds"),
                "p99": quantile(0.99, "duovec_batch_seconds"),
            },
        ),
        Graph(
            "Part of a batch that is real",
            "Real tokens over padded ones; low values are computed in vain.",
            "percentunit",
            {"mean": mean("duovec_batch_fill_ratio")},
        ),
        Graph(
            "Measured over predicted time",
            "1 is as at the start; 2 is a machine that takes twice as long.",
            "short",
            {"{{instance}}": f"duovec_cost_model_correction_ratio{{{HERE}}}"},
        ),
        Graph(
            "Workers busy",
            "Part of the workers that run a batch.",
            "percentunit",
            {
                "{{instance}}": f'duovec_workers{{{HERE},state="busy"}}'
                f' / ignoring(state) duovec_workers{{{HERE},state="total"}}'
            },
        ),
    ],
    "What should not happen": [
        Graph(
            "Incidents",
            "Batches split for want of memory or stuck, rows that are not finite, and workers "
            "that were replaced.",
            "short",
            {
                "{{kind}}": f"sum by (kind) (increase(duovec_incidents_total{{{HERE}}}"
                "[$__rate_interval]))",
                "worker replaced": f"sum (increase(duovec_worker_restarts_total{{{HERE}}}"
                "[$__rate_interval]))",
            },
        ),
        Graph(
            "Texts that got no answer",
            "Expired are those that waited until their deadline; cancelled ones had clients that "
            "left.",
            "short",
            {
                "{{outcome}}": rate(
                    "duovec_items_total",
                    'outcome=~"expired|cancelled|failed|abandoned"',
                    "outcome",
                )
            },
        ),
        Graph(
            "Time since the start",
            "A curve that falls is a restart.",
            "s",
            {"{{instance}}": f"duovec_uptime_seconds{{{HERE}}}"},
        ),
    ],
    "Memory": [
        Graph(
            "Resident memory",
            "Of the process, weights included.",
            "bytes",
            {"{{instance}}": f"process_resident_memory_bytes{{{HERE}}}"},
        ),
        Graph(
            "Bytes of requests",
            "Bodies, then texts, then token ids; bounded by --max-inflight-bytes.",
            "bytes",
            {"{{instance}}": f"duovec_inflight_bytes{{{HERE}}}"},
        ),
        Graph(
            "Free memory of GPUs",
            "Empty without TensorRT.",
            "percentunit",
            {
                "{{instance}} GPU {{gpu}}": f"duovec_gpu_memory_free_bytes{{{HERE}}}"
                f" / duovec_gpu_memory_total_bytes{{{HERE}}}"
            },
        ),
    ],
}
