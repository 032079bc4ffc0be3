"""Alert rules and dashboard: every query is run by a real Prometheus that scrapes real servers."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import programs
from chart import NAMESPACE, RELEASE, of_kind, render
from server import FAKE, ROOT, TINY, Server, running, wait_for

PROMETHEUS = ROOT / "deploy/prometheus"
DASHBOARD = ROOT / "deploy/grafana/duovec.json"
METRICS = ROOT / "docs/metrics.md"
RUNBOOK = ROOT / "deploy/watching/RUNBOOK.md"
SCRAPE_MS = 250

LABELS = f"        labels: {{namespace: {NAMESPACE}, service: {RELEASE}}}"
"""What the Prometheus operator adds to each series."""

WITHOUT_VALUE = {"Free memory of GPUs"}
"""Panels that are empty without a GPU."""
FIRES_UNDER_OVERLOAD = {"DuovecRefusing"}
"""Alerts whose condition holds while a third of the requests are refused."""
MEANS_NOTHING_HERE = {"DuovecSlowerThanMeasured"}
"""Runs of the tiny model take microseconds: how they compare with those at the start is chance."""


@dataclass(frozen=True)
class Alert:
    """One alert of alerts.yml."""

    name: str
    expression: str
    runbook: str


def alerts() -> list[Alert]:
    text = (PROMETHEUS / "alerts.yml").read_text(encoding="utf-8")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    return [
        Alert(rule["alert"], rule["expr"], rule["annotations"]["runbook_url"])
        for rule in rules
        if "alert" in rule
    ]


def panel_queries() -> list[tuple[str, str]]:
    """Title and PromQL of every query of the dashboard, with Grafana's variables filled in."""
    stored = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [
        (panel["title"], fill_in(target["expr"]))
        for panel in stored["panels"]
        for target in panel.get("targets", [])
    ]


def fill_in(expression: str) -> str:
    filled = expression.replace("$__rate_interval", "30s").replace("$instance", ".*")
    assert "$" not in filled, f"a variable is left in {filled}"
    return filled


class Prometheus:
    """A running one."""

    def __init__(self, port: int) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def ask(self, expression: str) -> list[dict[str, Any]]:
        answer = self.http.get("/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        return answer.json()["data"]["result"]

    def wait_until(self, expression: str) -> None:
        """Until the query has a result."""
        wait_for(expression, lambda: self.ask(expression))


@contextlib.contextmanager
def scraping(servers: list[Server], folder: Path) -> Iterator[Prometheus]:
    """Prometheus with the configuration of deploy/, only quicker, and these targets."""
    [port] = programs.free_ports(1)
    targets = ", ".join(f'"{server.url.removeprefix("http://")}"' for server in servers)
    config = folder / "prometheus.yml"
    config.write_text(
        programs.recipe(
            PROMETHEUS / "prometheus.yml",
            {
                '["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"]': f"[{targets}]\n{LABELS}",
                "15s": f"{SCRAPE_MS}ms",
                "- alerts.yml": f"- {PROMETHEUS / 'alerts.yml'}",
            },
        )
    )
    command: list[str | Path] = [
        programs.find("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    ready = f"http://127.0.0.1:{port}/-/ready"
    with programs.running(command, folder / "prometheus.log", lambda: programs.answers(ready)):
        yield Prometheus(port)


def post(url: str, count: int) -> list[int]:
    """Statuses of so many requests, some at once, behind one that is wrong."""

    def one(number: int) -> int:
        body = {"input": [f"text {number}", "and another"]}
        return http.post("/v1/embeddings:both", json=body).status_code

    with httpx.Client(base_url=url, timeout=120) as http, ThreadPoolExecutor(8) as pool:
        http.post("/v1/embeddings", json={"input": 1})
        return list(pool.map(one, range(count)))


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Two servers under a little load."""
    with (
        running("--package", TINY, "--engine", "openvino", "--workers", "1") as model,
        running(*FAKE, "--fake-run-ms", "1") as fake,
        scraping([model, fake], tmp_path_factory.mktemp("calm")) as prometheus,
    ):
        prometheus.wait_until("count(duovec_ready == 1) == 2")
        for _ in range(3):
            assert set(post(model.url, 10) + post(fake.url, 10)) == {200}
            time.sleep(SCRAPE_MS / 1000)
        prometheus.wait_until("sum(duovec_items_total{outcome='replied'}) == 120")
        prometheus.wait_until("sum(rate(duovec_request_errors_total[30s])) > 0")
        yield prometheus


@pytest.mark.parametrize(("title", "expression"), panel_queries())
def test_each_query_of_the_dashboard_has_a_value(
    calm: Prometheus, title: str, expression: str
) -> None:
    found = calm.ask(expression)
    if title in WITHOUT_VALUE:
        assert not found
        return
    assert found, f"{title}: nothing for {expression}"
    for series in found:
        assert series["value"][1] != "NaN", f"{title}: {series}"


def test_the_queries_that_scale_have_a_value(calm: Prometheus) -> None:
    wake = 'autoscaling.keda.wakeQuery="count(duovec_ready)"'
    scaled = of_kind(render('autoscaling.kind="keda"', wake), "ScaledObject")
    queries = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    assert len(queries) == 3
    for query in queries:
        assert calm.ask(query), f"nothing for {query}"


def test_no_alert_is_raised_by_healthy_servers(calm: Prometheus) -> None:
    for alert in alerts():
        if alert.name in MEANS_NOTHING_HERE:
            continue
        assert not calm.ask(alert.expression), f"{alert.name} would be raised"


def test_prometheus_loads_and_evaluates_every_rule(calm: Prometheus) -> None:
    groups = calm.http.get("/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {alert.name for alert in alerts()} <= {rule["name"] for rule in rules}
    assert {rule["health"] for rule in rules} == {"ok"}, rules


def test_overload_and_a_dead_server_fulfil_their_alerts(tmp_path: Path) -> None:
    full = [*FAKE, "--fake-run-ms", "30", "--max-items", "2"]
    with (
        running(*full, "--queue-capacity", "6", "--max-batch-tokens", "8") as server,
        running(*FAKE) as dying,
        scraping([server, dying], tmp_path) as prometheus,
    ):
        prometheus.wait_until("count(duovec_ready == 1) == 2")
        dying.process.kill()
        refused = 0
        for _ in range(3):
            refused += post(server.url, 24).count(429)
            time.sleep(SCRAPE_MS / 1000)
        assert refused > 0
        expressions = {alert.name: alert.expression for alert in alerts()}
        for name in FIRES_UNDER_OVERLOAD | {"DuovecDown"}:
            prometheus.wait_until(expressions[name])


def test_unit_tests_of_the_alerts_pass() -> None:
    promtool = programs.find("promtool")
    programs.run(promtool, "check", "rules", "alerts.yml", cwd=PROMETHEUS)
    programs.run(promtool, "check", "config", "prometheus.yml", cwd=PROMETHEUS)
    programs.run(promtool, "test", "rules", "alerts_test.yml", cwd=PROMETHEUS)


def test_each_alert_is_tested_quiet_and_firing() -> None:
    text = (PROMETHEUS / "alerts_test.yml").read_text(encoding="utf-8")
    checks = [one for case in yaml.safe_load(text)["tests"] for one in case["alert_rule_test"]]
    names = {alert.name for alert in alerts()}
    assert {one["alertname"] for one in checks if one["exp_alerts"]} == names
    assert {one["alertname"] for one in checks if not one["exp_alerts"]} == names


def test_each_alert_has_its_paragraph_in_the_runbook() -> None:
    runbook = RUNBOOK.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (Duovec\w+)$", runbook, re.M)
    assert headings == [alert.name for alert in alerts()]
    for alert in alerts():
        assert alert.runbook.endswith(f"#{alert.name.lower()}")
        paragraph = re.search(rf"^#+ {alert.name}\n\n(.+)", runbook, re.M)
        assert paragraph, f"{alert.name} has a heading without a paragraph"


def test_rules_and_dashboard_name_documented_metrics_only() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", METRICS.read_text(encoding="utf-8"), re.M))
    expressions = [query for _, query in panel_queries()]
    expressions += [alert.expression for alert in alerts()]
    used = set(re.findall(r"\b((?:duovec|process)_\w+)\b", " ".join(expressions)))
    histograms = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert histograms <= documented


def test_rules_and_dashboard_count_every_route_that_runs_the_model() -> None:
    described = json.loads((ROOT / "src/http/openapi.json").read_text(encoding="utf-8"))["paths"]
    posted = {path for path, methods in described.items() if "post" in methods}
    # Some have a second name, which the description leaves out.
    running = posted - {"/v1/tokenize", "/tokenize", "/decode"}
    running |= {"/", "/v2/rerank", "/v1/embeddings/both"}
    files = [PROMETHEUS / "alerts.yml", DASHBOARD]
    text = "".join(path.read_text(encoding="utf-8").replace("\\", "") for path in files)
    [pattern] = set(re.findall(r'route=~\s*"(.+?)"', text))
    for route in running:
        assert re.fullmatch(pattern, route), f"{route} is not counted"
    # The GET of / has another name than its POST, and /embed_all refuses every request.
    for route in described.keys() - running | {"/ (index)", "/embed_all"}:
        assert not re.fullmatch(pattern, route), f"{route} is counted"
