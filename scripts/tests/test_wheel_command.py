"""The command of the wheel, deploy/wheel: what it makes when, and what it says where it cannot.
tests/fleet/test_release.py runs the wheel itself."""

import ast
import importlib.util
import os
import shutil
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy/wheel/duovec_server/__init__.py"
specification = importlib.util.spec_from_file_location("duovec_server", FILE)
server = importlib.util.module_from_spec(specification)
specification.loader.exec_module(server)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A cache folder, no settings, and the scripts that would be run."""
    for name in [name for name in os.environ if name.startswith("DUOVEC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DUOVEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(server, "SCRIPTS", FILE.parents[3] / "scripts")
    monkeypatch.setattr(server, "libraries", lambda cache: cache / "openvino")
    scripts: list[list[str]] = []
    monkeypatch.setattr(server, "run", lambda *words: scripts.append(list(map(str, words))))
    return scripts


def test_the_first_start_makes_the_package_and_later_ones_only_read(
    machine: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    defaults = server.prepare(["serve", "--port", "1", "--precision=int8"])
    package = defaults["DUOVEC_DEFAULT_PACKAGE"]
    assert Path(package).parent == tmp_path / "cache"
    assert defaults["DUOVEC_DEFAULT_OPENVINO_LIBRARY_DIR"] == str(tmp_path / "cache/openvino")
    assert [words[0] for words in machine] == ["make_default_package.py", "quantize_package.py"]
    assert all(package in words for words in machine)
    Path(package).mkdir()
    machine.clear()
    monkeypatch.setattr(server, "need_to_write", lambda _: pytest.fail("nothing is to be written"))
    assert server.prepare(["serve"]) == defaults and machine == []


def test_nothing_is_made_where_the_user_names_a_package(
    machine: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("manifest.json").touch()
    Path("my.toml").write_text('package = "mine"\n')
    embed, only = (
        ["embed", "texts.jsonl", "--out", "vectors"],
        "DUOVEC_DEFAULT_OPENVINO_LIBRARY_DIR",
    )
    for named in (["--package", "mine"], ["--config=my.toml"]):
        assert list(server.prepare([*embed, *named])) == [only]
    assert list(server.prepare(["bench", "--json", "."])) == [only]
    monkeypatch.setenv("DUOVEC_PACKAGE", "mine")
    assert list(server.prepare(embed)) == [only]
    assert machine == []


@pytest.mark.parametrize("words", [[], ["--version"], ["help", "serve"], ["serve", "--help"]])
def test_help_needs_nothing(words: list[str], tmp_path: Path) -> None:
    assert server.prepare(words) == {}
    assert not (tmp_path / "cache").exists()


def test_check_makes_no_package(machine: list[list[str]]) -> None:
    assert "DUOVEC_DEFAULT_PACKAGE" in server.prepare(["check"])
    assert machine == []


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What `duovec serve` says to the user; one sentence."""
    monkeypatch.setattr(sys, "argv", ["duovec", "serve"])
    wheel = SimpleNamespace(read_text=lambda _: "Tag: py3-none-manylinux_2_34_x86_64\n")
    monkeypatch.setattr(server.importlib.metadata, "distribution", lambda _: wheel)
    with pytest.raises(SystemExit) as ended:
        server.main()
    assert str(ended.value).startswith("duovec: ") and capsys.readouterr().out == ""
    return str(ended.value)


def test_what_is_missing_is_said_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with monkeypatch.context() as old:
        old.setattr(os, "confstr", lambda _: "glibc 2.31")
        told = refused(monkeypatch, capsys)
        assert "needs glibc 2.34 or later, and this machine has glibc 2.31: use" in told
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=400 * 10**6))
        told = refused(monkeypatch, capsys)
        assert f"needs 700 MB in {tmp_path}/cache, 400 MB are free: make room" in told
    (tmp_path / "file").touch()
    monkeypatch.setenv("DUOVEC_CACHE_DIR", str(tmp_path / "file"))
    told = refused(monkeypatch, capsys)
    assert f"cannot write to the cache folder {tmp_path}/file" in told
    assert "name another folder with DUOVEC_CACHE_DIR" in told


def test_a_slow_processor_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(server, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(server.platform, "machine", lambda: "x86_64")
    for flags, said in [("sse4_2 avx", True), ("avx avx2 fma", False)]:
        server.CPUINFO.write_text(f"flags\t: {flags}\n")
        server.check_machine()
        assert ("no AVX2: the model runs" in capsys.readouterr().err) is said


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What packages were asked for."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(server, "made", lambda *wishes: asked.append(wishes) or "/kept")
    return asked


@pytest.mark.parametrize(
    ("arguments", "others", "wishes"),
    [
        (["serve", "--port", "1"], ["serve", "--port", "1"], []),
        # The flags of a package are none of the program's own.
        (["embed", "a", "--dimensions", "9"], ["embed", "a", "--dimensions", "9"], []),
        (
            ["adopt", "--from", "http://a", "--prompt", "q: ", "--model=a/b"],
            ["adopt", "--from", "http://a", "--prompt", "q: ", "--package", "/kept"],
            [("--model=a/b",)],
        ),
        (
            ["serve", "--model", "a/b@v1", "--no-sparse", "--port", "1"],
            ["serve", "--port", "1", "--package", "/kept"],
            [("--model=a/b@v1", "--no-sparse")],
        ),
        (["bench", "--model=a"], ["bench", "--package", "/kept"], [("--model=a",)]),
        (["serve", "--model=a", "--help"], ["serve", "--help"], []),
    ],
)
def test_the_package_of_a_model_is_made_by_its_name(
    arguments: list[str], others: list[str], wishes: list, kept: list[tuple[str, ...]]
) -> None:
    assert server.with_package(arguments) == others
    assert kept == wishes


def test_pull_makes_a_package_and_prints_its_path(
    kept: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        server.with_package(["pull", "a/b", "--update"])
    assert not done.value.code
    assert (capsys.readouterr().out, kept) == ("/kept\n", [("--model=a/b", "--update")])


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--help"], ["--model", "a"], ["--port=1"]])
def test_pull_takes_one_name(words: list[str], kept: list[tuple[str, ...]]) -> None:
    with pytest.raises(server.CannotStart, match=r"one model: duovec pull NAME\[@REVISION\]"):
        server.with_package(["pull", *words])
    assert kept == []


def test_flags_of_a_model_need_one_model(kept: list[tuple[str, ...]], tmp_path: Path) -> None:
    """test_serve_script.py has all that is refused."""
    with pytest.raises(server.CannotStart, match="--model and --package name two models"):
        server.with_package(["serve", "--model", "a", "--package=b"])
    (tmp_path / "manifest.json").touch()
    with pytest.raises(server.CannotStart, match="name two models"):
        server.with_package(["bench", "--model", "a", str(tmp_path)])
    assert kept == []


def test_a_model_that_cannot_be_had_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUOVEC_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(SystemExit) as done:
        server.with_package(["serve", "--model", "./absent"])
    assert done.value.code == 1
    assert "absent is no folder" in capfd.readouterr().err


def test_the_wheel_has_all_scripts_that_its_scripts_import() -> None:
    project = tomllib.loads((ROOT / "deploy/wheel/pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    paths = [(ROOT / "deploy/wheel" / path).resolve() for path in included]
    sources = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    imported = set()
    for source in (file for file in sources if file.suffix == ".py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).split(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
    ours = {name for name in imported if (ROOT / "scripts" / name / "__init__.py").exists()}
    assert "default_package" in ours
    assert ours <= {path.name for path in paths}
