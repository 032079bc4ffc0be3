"""scripts/serve.sh --model: the package that is made is served, with stand-ins for all else."""

from pathlib import Path

import pytest
from gpu_machine import make_repository, start

MAKER = "import sys; print('making:', *sys.argv[1:], file=sys.stderr); print('/kept/package')"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = make_repository(tmp_path)
    (root / "scripts/export_onnx.py").write_text(MAKER)
    return root


@pytest.mark.parametrize(
    ("words", "wishes"),
    [
        (["--model", "BAAI/bge-m3"], "--model=BAAI/bge-m3"),
        (["--no-sparse", "--model=a/b@v1", "--update"], "--no-sparse --model=a/b@v1 --update"),
        (["--token-vectors", "--model=a"], "--token-vectors --model=a"),
        (["--model", "a", "--query-prompt", "--find: "], "--model=a --query-prompt=--find: "),
    ],
)
def test_the_package_of_a_name_is_served(repository: Path, words: list[str], wishes: str) -> None:
    done = start(repository, "serve.sh", "--cpu", *words, "--port", "0", DUOVEC_PACKAGE="/other")
    assert done.stdout.startswith("serves: --port 0 --package /kept/package\n"), done.stderr
    assert f"making: --precision fp32 {wishes}\n" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--no-sparse"], "--no-sparse needs --model NAME"),
        (["--model"], "--model needs a value"),
        (["--host", "::1", "--port"], "--port needs a value"),
        (["--model", "a", "--package", "b"], "--model and --package name two models"),
        (["--model", "a", "--modle=b"], "--modle=b is no flag of duovec serve"),
    ],
)
def test_wrong_words_are_said_before_anything_is_made(
    repository: Path, words: list[str], sentence: str
) -> None:
    done = start(repository, "serve.sh", *words)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert sentence in line


def test_a_model_that_cannot_be_had_ends_the_start(repository: Path) -> None:
    (repository / "scripts/export_onnx.py").write_text("raise SystemExit('error: a is gated')")
    done = start(repository, "serve.sh", "--cpu", "--model", "a")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: a is gated\n" in done.stderr
    assert "the model cannot be served" in done.stderr
