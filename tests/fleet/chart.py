"""deploy/helm/duovec, rendered."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

import programs
from server import ROOT, ran

CHART = ROOT / "deploy/helm/duovec"
RELEASE, NAMESPACE = "duovec", "search"
VERSIONS = ("1.27", "1.37")
"""The oldest and the newest Kubernetes that objects are checked for."""
CUSTOM = ("keda.sh", "monitoring.coreos.com")

Object = dict[str, Any]


def render(*values: str, release: str = RELEASE) -> list[Object]:
    """The objects for some sets of `NAME=JSON`, and for files of the chart where `=` is missing."""
    return [one for one in yaml.safe_load_all(template(*values, release=release)) if one]


def template(*values: str, release: str = RELEASE) -> str:
    command = [programs.find("helm"), "template", release, CHART, "--namespace", NAMESPACE]
    for value in values:
        command += ["--set-json", value] if "=" in value else ["-f", CHART / value]
    return programs.run(*command)


def of_kind(objects: list[Object], kind: str) -> Object:
    """The only one of its kind."""
    [found] = [one for one in objects if one["kind"] == kind]
    return found


def validate_custom(objects: list[Object]) -> list[str]:
    """What KEDA's and the operator's schemas say of each object; empty texts are valid."""
    modules = programs.TOOLS / "schemas/node_modules"
    if not modules.is_dir():
        pytest.skip("npm could not get the schemas of KEDA and the Prometheus operator")
    words = [programs.find("node"), ROOT / "tests/fleet/validate_custom.mjs", modules]
    return json.loads(ran(*words, input=json.dumps(objects)).stdout)
