"""The Helm chart: objects against schemas, and the rendered pod's environment, probes and drain
against the real binary, as a kubelet would use them."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field

import httpx
import kubernetes_validate
import pytest

import programs
from chart import CHART, CUSTOM, VERSIONS, Object, of_kind, render, template, validate_custom
from server import BINARY, ROOT, TINY, ran, wait_for

MATRIX = {
    "default": [],
    "gpu": ["values-gpu.yaml"],
    "gpu, shared plan": ["values-gpu.yaml", 'gpu.planClaim="plans"', 'gpu.flavour="tensorrt-rtx"'],
    "gpu, a claim of its own": [
        "values-gpu.yaml",
        'gpu.planAccess="ReadWriteMany"',
        'gpu.planStorageClass="files"',
        "gpu.freeForRelease=true",
    ],
    "bulk": ["values-bulk.yaml"],
    "hpa": ['autoscaling.kind="hpa"', "autoscaling.minReplicas=0"],
    "keda": ['autoscaling.kind="keda"', "autoscaling.predictedWaitSeconds=0.05"],
    "secrets": ['keys.secret="keys"', 'tls.secret="site"', 'package.claim="models"'],
    "watched": [
        "serviceMonitor.enabled=true",
        "prometheusRule.enabled=true",
        'tls.secret="site"',
        'serviceMonitor.labels={"release":"prometheus"}',
        'serviceMonitor.keySecret={"name":"keys","key":"metrics"}',
    ],
    "closed": [
        'networkPolicy.clients=[{"podSelector":{"matchLabels":{"app":"search"}}}]',
        'networkPolicy.monitoring=[{"namespaceSelector":{"matchLabels":{"name":"monitoring"}}}]',
        'networkPolicy.egress=[{"ports":[{"port":4318}]}]',
    ],
    "nothing more": [
        "podDisruptionBudget.enabled=false",
        "networkPolicy.enabled=false",
        "topologySpread.enabled=false",
    ],
    "settings": [
        'settings={"max-items":2048,"max-inflight-bytes":268435456,"otlp-sample-ratio":0.5,'
        '"model-aliases":["a","b"],"docs":false,"interactive-p99-ms":50}'
    ],
    "placed": [
        'nodeSelector={"disk":"ssd"}',
        'podAnnotations={"a":"b"}',
        'image.pullSecrets=[{"name":"registry"}]',
        'service={"type":"LoadBalancer","annotations":{"x":"y"}}',
    ],
}


def is_custom(one: Object) -> bool:
    return one["apiVersion"].split("/")[0] in CUSTOM


def test_the_chart_has_nothing_to_complain_about() -> None:
    programs.run(programs.find("helm"), "lint", "--strict", CHART)


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_every_object_fits_its_schema(values: list[str]) -> None:
    objects = render(*values)
    for one in objects:
        for version in VERSIONS if not is_custom(one) else ():
            kubernetes_validate.validate(one, version, strict=True)


def test_custom_objects_fit_the_schemas_of_keda_and_the_prometheus_operator() -> None:
    rendered = [render(*values) for values in MATRIX.values()]
    objects = [one for objects in rendered for one in objects if is_custom(one)]
    assert {one["kind"] for one in objects} == {"ScaledObject", "ServiceMonitor", "PrometheusRule"}
    assert set(validate_custom(objects)) == {""}


def test_schemas_refuse_what_is_wrong() -> None:
    objects = render(*MATRIX["keda"])
    deployment = copy.deepcopy(of_kind(objects, "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    for version in VERSIONS:
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, version, strict=True)
    scaled = copy.deepcopy(of_kind(objects, "ScaledObject"))
    scaled["spec"]["triggers"] = "prometheus"
    assert "" not in validate_custom([scaled])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('imagee.tag="1"', "imagee"),
        ('settings={"api-key":"secret"}', "api-key"),
        ('settings={"api-keys":"secret"}', "api-keys"),
        ('settings={"prot":9}', "prot"),
        ('autoscaling={"kind":"keda","minReplicas":0}', "wakeQuery"),
        ("service.port=80", "port"),
        ('gpu={"enabled":true,"planClaim":"a","planAccess":"ReadWriteOnce"}', "planClaim"),
        ('gpu.planAccess="ReadOnlyMany"', "planAccess"),
    ],
)
def test_values_that_cannot_work_are_refused(value: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        template(value)


def test_the_schema_has_the_servers_settings_but_those_that_the_chart_sets_itself() -> None:
    table = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    own = "host port package tls-cert tls-key api-key api-key-file drain-delay-ms drain-timeout-ms"
    expected = {"config", *re.findall(r"^\| `--([^`]+)`", table, re.M)} - set(own.split())
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    listed = schema["properties"]["settings"]["propertyNames"]["enum"]
    assert listed == sorted(expected)


def test_releases_that_write_to_one_index_are_compared() -> None:
    watched = "serviceMonitor.enabled=true"

    def index(*values: str, release: str) -> str:
        found = of_kind(render(watched, *values, release=release), "ServiceMonitor")
        [endpoint] = found["spec"]["endpoints"]
        [rule] = endpoint["relabelings"]
        assert rule["targetLabel"] == "index"
        return rule["replacement"]

    assert index(release="rank") == "rank-duovec"
    assert index(release="duovec") == index("values-bulk.yaml", release="bulk") == "duovec"
    assert index('serviceMonitor.index="texts"', release="duovec") == "texts"


def environment(objects: list[Object]) -> dict[str, str]:
    container = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {one["name"]: one["value"] for one in container["env"]}


def test_settings_reach_the_server_as_it_writes_them() -> None:
    found = environment(render(*MATRIX["settings"]))
    assert found["DUOVEC_MAX_INFLIGHT_BYTES"] == "268435456"
    assert found["DUOVEC_MODEL_ALIASES"] == "a,b"
    own = {name: value for name, value in found.items() if "PACKAGE" not in name}
    printed = ran(BINARY, "check", "--config", env={**os.environ, **own}).stdout
    assert 'model_aliases = ["a", "b"]' in printed
    assert 'docs = "false"' in printed


def test_pods_with_a_gpu_build_their_plan_in_a_volume_that_they_may_write() -> None:
    objects = render(*MATRIX["gpu, shared plan"])
    pod = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["duovec-start", "serve"]
    found = environment(objects)
    assert found["DUOVEC_BUILD_PLAN"] == "true"
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert not mounts[found["PLANS"]].get("readOnly", False)
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 3600


def test_plans_outlive_the_pod_in_the_claim_that_the_chart_makes() -> None:
    objects = render(*MATRIX["gpu, a claim of its own"])
    claim = of_kind(objects, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "files"
    # The plans of a GPU are worth more than a release of the chart.
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    volumes = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    [plan] = [one for one in volumes if one["name"] == "plan"]
    assert plan["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    for values in ([], MATRIX["gpu"], MATRIX["gpu, shared plan"]):
        assert "PersistentVolumeClaim" not in {one["kind"] for one in render(*values)}


@pytest.mark.parametrize(
    ("values", "surge"),
    [
        ([], 1),
        # Without a free GPU the new pod could not start before an old one has ended.
        (["values-gpu.yaml"], 0),
        (["values-gpu.yaml", "gpu.freeForRelease=true"], 1),
    ],
)
def test_a_release_of_one_replica_has_no_outage_where_a_new_pod_finds_room(
    values: list[str], surge: int
) -> None:
    spec = of_kind(render("replicaCount=1", *values), "Deployment")["spec"]
    rolling = {"maxSurge": surge, "maxUnavailable": 1 - surge}
    assert spec["strategy"]["rollingUpdate"] == rolling


@pytest.mark.parametrize("values", [[], ["values-gpu.yaml"], ["startSeconds=7200"]])
def test_a_release_is_not_called_failed_while_a_pod_may_still_start(values: list[str]) -> None:
    """Kubernetes' own deadline is 600 s, less than the first start on a GPU may take."""
    spec = of_kind(render(*values), "Deployment")["spec"]
    probe = spec["template"]["spec"]["containers"][0]["startupProbe"]
    image_s = 300
    start_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert spec["progressDeadlineSeconds"] >= start_s + image_s


def test_pods_run_as_nobody_with_nothing_to_write_but_their_volumes() -> None:
    for values in MATRIX.values():
        pod = of_kind(render(*values), "Deployment")["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@dataclass
class Pod:
    """A server as a kubelet starts, asks and ends it; the readiness probe runs in a thread."""

    spec: Object
    port: int
    is_ready: bool = False
    would_be_killed: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.container = self.spec["containers"][0]
        given = {one["name"]: one["value"] for one in self.container["env"]}
        given |= {"DUOVEC_PORT": str(self.port), "DUOVEC_HOST": "127.0.0.1"}
        given |= {"DUOVEC_PACKAGE": TINY, "DUOVEC_ENGINE": "fake"}
        assert self.container["command"] == ["duovec", "serve"]
        command = [BINARY, "serve", "--fake-run-ms", "20"]
        self.process = subprocess.Popen(
            command, env={**os.environ, **given}, stderr=subprocess.DEVNULL
        )
        self.kubelet = threading.Thread(target=self._probe, daemon=True)
        self.kubelet.start()

    def _passes(self, probe: Object) -> bool:
        get = probe["httpGet"]
        assert get["port"] == "http"
        url = f"{get['scheme'].lower()}://127.0.0.1:{self.port}{get['path']}"
        return programs.answers(url, probe["timeoutSeconds"])

    def _probe(self) -> None:
        probe = self.container["livenessProbe"]
        # A kubelet asks seldom: a server that fails for less time is not killed.
        patience_s = probe["periodSeconds"] * (probe["failureThreshold"] - 1)
        started, lived = False, 0.0
        # A container that has ended is not asked: on a busy machine `end` may wake late.
        while not self.ended.wait(0.1) and self.process.poll() is None:
            if not started:
                started, lived = self._passes(self.container["startupProbe"]), time.monotonic()
                continue
            self.is_ready = self._passes(self.container["readinessProbe"])
            asked = time.monotonic()
            lived = asked if self._passes(probe) else lived
            self.would_be_killed |= asked - lived > patience_s

    def end(self) -> float:
        """SIGTERM, no later SIGKILL: seconds until the process has ended with success."""
        start = time.monotonic()
        self.process.terminate()
        code = self.process.wait(timeout=self.spec["terminationGracePeriodSeconds"])
        self.ended.set()
        self.kubelet.join()
        assert code == 0
        assert not self.would_be_killed
        return time.monotonic() - start


class Endpoints:
    """Ready pods as clients see them: some time late."""

    LATE_S = 0.4

    def __init__(self) -> None:
        self.pods: list[Pod] = []
        self.seen: list[Pod] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._follow)

    def _follow(self) -> None:
        while not self.ended.is_set():
            ready = [pod for pod in self.pods if pod.is_ready]
            self.ended.wait(self.LATE_S)
            self.seen = ready


def ask_until(ended: threading.Event, endpoints: Endpoints, statuses: list[object]) -> None:
    """Request after request, each to another of the pods in sight."""
    number = 0
    with httpx.Client(timeout=60) as http:
        while not ended.is_set():
            pods = endpoints.seen
            pod = pods[number % len(pods)]
            number += 1
            try:
                url = f"http://127.0.0.1:{pod.port}/v1/embeddings"
                statuses.append(http.post(url, json={"input": "text"}).status_code)
            except httpx.HTTPError as error:
                statuses.append(repr(error))


def test_a_rolling_update_with_late_endpoints_loses_no_request() -> None:
    spec = of_kind(render("drain.delayMs=2000"), "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod_spec = spec["template"]["spec"]
    endpoints, statuses = Endpoints(), []
    ended = threading.Event()
    clients = [
        threading.Thread(target=ask_until, args=(ended, endpoints, statuses)) for _ in range(4)
    ]
    endpoints.pods = [Pod(pod_spec, port) for port in programs.free_ports(2)]
    endpoints.thread.start()
    try:
        wait_for("the pods are seen", lambda: endpoints.seen == endpoints.pods)
        for client in clients:
            client.start()
        new = Pod(pod_spec, programs.free_ports(1)[0])
        old = endpoints.pods[0]
        endpoints.pods = [*endpoints.pods, new]
        wait_for("the pods are seen", lambda: endpoints.seen == endpoints.pods)
        took = old.end()
        endpoints.pods = endpoints.pods[1:]
        time.sleep(0.3)
    finally:
        ended.set()
        endpoints.ended.set()
        for thread in [endpoints.thread, *clients]:
            if thread.ident:
                thread.join()
        for pod in endpoints.pods:
            pod.end()
    assert len(statuses) > 50
    assert set(statuses) == {200}
    assert 2.0 <= took < pod_spec["terminationGracePeriodSeconds"] - 18
