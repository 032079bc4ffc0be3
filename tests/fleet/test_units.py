"""deploy/duovec-gpu-devices.service and the drop-in that starts it. tests/process has the tests of
duovec.service and of what else the drop-in does. Not run: systemd itself, and NVIDIA's programs."""

from __future__ import annotations

from pathlib import Path

import programs
from server import ROOT, ran

DEPLOY = ROOT / "deploy"
DEVICES = "duovec-gpu-devices.service"


def settings(file: str) -> list[tuple[str, str]]:
    """The unit's settings in their order, without comments; continued lines are one."""
    text = (DEPLOY / file).read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return [(name, " ".join(value.split())) for name, _, value in (x.partition("=") for x in lines)]


def of(file: str, wanted: str) -> list[str]:
    return [value for name, value in settings(file) if name == wanted]


def test_device_files_are_made_before_systemd_looks_which_devices_there_are() -> None:
    """DeviceAllow=char-nvidia* allows what /proc/devices has before a unit's first command, so no
    command of duovec.service may be the one that loads a module."""
    assert "char-nvidia* rw" in of("duovec-gpu.conf", "DeviceAllow")
    assert of("duovec-gpu.conf", "Wants") == [DEVICES]
    assert DEVICES in of("duovec-gpu.conf", "After")[0].split()
    assert of(DEVICES, "Before") == ["duovec.service"]
    # Without `oneshot` its start would be over before its commands are.
    assert of(DEVICES, "Type") == ["oneshot"]
    commands = of(DEVICES, "ExecStart")
    assert commands[:2] == ["/usr/bin/nvidia-modprobe -u -c 0", "/usr/bin/nvidia-smi -L"]
    for unit in ("duovec.service", "duovec-gpu.conf"):
        assert not [one for one in of(unit, "ExecStartPre") if "modprobe" in one]


def test_device_files_are_made_at_each_start_and_never_hold_it_back() -> None:
    """A driver may have been loaded anew, and nvidia-smi may hang on a sick GPU."""
    assert of(DEVICES, "RemainAfterExit") == []
    # Without one systemd waits for ever for a unit of this type.
    [limit] = of(DEVICES, "TimeoutStartSec")
    assert int(limit) <= 300
    assert not of("duovec-gpu.conf", "Requires") + of("duovec-gpu.conf", "BindsTo")


def test_the_unit_of_device_files_is_well_formed(tmp_path: Path) -> None:
    text = (DEPLOY / DEVICES).read_text()
    for name in ("nvidia-modprobe", "nvidia-smi"):
        text = text.replace(f"/usr/bin/{name}", "/bin/true")
    unit = tmp_path / DEVICES
    unit.write_text(text)
    assert ran(programs.find("systemd-analyze"), "verify", "--man=no", unit).stderr == ""


def test_every_slice_of_a_gpu_gets_its_files(tmp_path: Path) -> None:
    proc, modprobe, log = tmp_path / "capabilities", tmp_path / "modprobe", tmp_path / "log"
    modprobe.write_text(f'#!/bin/sh\n[ "$1" = -f ] && echo "$2" >>{log}\n')
    modprobe.chmod(0o755)
    command = of(DEVICES, "ExecStart")[2].removeprefix("/bin/sh -c ").strip("'")
    command = command.replace("/proc/driver/nvidia/capabilities", str(proc))
    command = command.replace("/usr/bin/nvidia-modprobe", str(modprobe))
    ran("sh", "-c", command)
    assert not log.exists(), "there is no GPU with slices"
    expected = []
    for place in ("gpu0/mig/gi7", "gpu0/mig/gi7/ci0", "gpu1/mig/gi9", "gpu1/mig/gi9/ci0"):
        (proc / place).mkdir(parents=True, exist_ok=True)
        (proc / place / "access").touch()
        expected.append(str(proc / place / "access"))
    ran("sh", "-c", command)
    assert sorted(log.read_text().split()) == sorted(expected)
    modprobe.write_text("#!/bin/sh\nexit 1\n")
    ran("sh", "-c", command, code=1)
