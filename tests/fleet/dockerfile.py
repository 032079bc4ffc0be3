"""A container file, carried out without a registry: the steps of one stage in a root that is there
already, and the container's start in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import string
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import programs
from server import ROOT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOUNT = re.compile(r"--mount=type=bind,from=(\w+),source=(\S+),target=(\S+) ")


def stages(file: Path) -> list[list[tuple[str, str]]]:
    """Instructions with their words, stage by stage; those before the first FROM are left out."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.M).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, text.splitlines()):
        name, _, words = line.partition(" ")
        if name == "FROM":
            found.append([])
        elif found:
            found[-1].append((name, " ".join(words.split())))
    return found


def defaults(file: Path) -> dict[str, str]:
    """What the arguments of a build are where nobody says."""
    return {
        name: value.strip('"')
        for name, value in re.findall(r"^ARG (\w+)=(\S+|\".*\")$", file.read_text(), re.M)
    }


@dataclass
class Container:
    """A root that the steps of a stage are carried out in; `others` are folders of other stages."""

    root: Path
    others: dict[tuple[str, str], Path] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    settings: dict[str, str] = field(default_factory=dict)

    def carry_out(self, stage: list[tuple[str, str]]) -> None:
        """All steps, in their order."""
        for name, words in stage:
            if name == "RUN":
                self._run(words)
            elif name == "COPY":
                self._copy(words)
            elif name == "ENV":
                words = string.Template(words).safe_substitute(self.arguments)
                self.variables |= dict(one.split("=", 1) for one in shlex.split(words))
            else:
                self.settings[name] = words

    def _run(self, words: str) -> None:
        given = [f"{name}={value}" for name, value in self.arguments.items()]
        shell = ["chroot", self.root, "/usr/bin/env", *given, "/bin/sh", "-c"]
        mount = MOUNT.match(words)
        if mount is None:
            programs.run(*shell, words)
            return
        stage, source, target = mount.groups()
        inside = self.root / target.lstrip("/")
        shutil.copytree(self.others[stage, source], inside)
        programs.run(*shell, words[mount.end() :])
        shutil.rmtree(inside)

    def _copy(self, words: str) -> None:
        stage = re.match(r"--from=(\w+) ", words)
        source, target = words[stage.end() if stage else 0 :].split()
        inside = self.root / target.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        if stage is None:
            shutil.copy(ROOT / source, inside)
        else:
            folder = self.others[stage[1], source]
            shutil.copytree(folder, inside, symlinks=True, dirs_exist_ok=True)

    def command(self, inside: list[str], more: dict[str, str]) -> list[str]:
        """What runs a command in the container as its user."""
        variables = [f"{name}={value}" for name, value in (self.variables | more).items()]
        mounts = f"mount --bind /proc {self.root}/proc && mount --bind /dev {self.root}/dev"
        chroot = ["chroot", f"--userspec={self.settings['USER']}", str(self.root)]
        words = shlex.join([*chroot, "/usr/bin/env", "-i", *variables, *inside])
        return ["unshare", "--mount", "sh", "-c", f"{mounts} && exec {words}"]

    def is_healthy(self, more: dict[str, str]) -> bool:
        """What the health check says."""
        check = json.loads(self.settings["HEALTHCHECK"].partition(" CMD ")[2])
        return subprocess.run(self.command(check, more), capture_output=True).returncode == 0

    @contextlib.contextmanager
    def running(
        self, arguments: list[str], more: dict[str, str], log: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The container, healthy; `more` are variables. It must end with success."""
        start = [json.loads(self.settings[name]) for name in ("ENTRYPOINT", "CMD")]
        assert not self.is_healthy(more)
        command = self.command([*start[0], *start[1], *arguments], more)
        variables = os.environ | {"PATH": PATH}
        with programs.running(command, log, lambda: self.is_healthy(more), variables) as process:
            yield process
        assert process.returncode == 0
