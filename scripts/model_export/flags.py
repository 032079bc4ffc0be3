"""What was typed behind `duovec serve` and the like: which arguments say what a model's package is
made of, --model and what goes with it, and what other settings are.

    python3 scripts/model_export/flags.py ARGUMENTS OF scripts/serve.sh...

prints them for a shell to evaluate: `wishes`; `arguments`, which are the others; a variable for
each of SETTINGS, empty where the user gave none. It needs no packages of Python.
"""

import argparse
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

WITH_VALUE = ("--model", "--pooling", "--max-tokens", "--shorter-vectors")
WITH_VALUE += ("--query-prompt", "--passage-prompt")
SWITCHES = ("--no-sparse", "--token-vectors", "--update")
LIBRARY_DIRS = ("tensorrt_library_dir", "cuda_library_dir")
SETTINGS = ("package", "engine", "precision", "build_plan", *LIBRARY_DIRS)
"""Those that say what is to be made before a start from a clone."""
TABLE = Path(__file__).resolve().parents[2] / "docs/settings.md"


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The wishes, each as one word, and the other arguments."""
    wishes, others, words = [], [], iter(arguments)
    for word in words:
        name = word.partition("=")[0]
        if name in WITH_VALUE and name == word:
            if (value := next(words, None)) is None:
                raise ValueError(f"{name} needs a value")
            word = f"{name}={value}"
        (wishes if name in (*WITH_VALUE, *SWITCHES) else others).append(word)
    return wishes, others


def check(wishes: list[str], others: list[str]) -> None:
    """ValueError with one sentence where they do not name one model."""
    if wishes and not any(wish.startswith("--model=") for wish in wishes):
        raise ValueError(f"{wishes[0]} needs --model NAME")
    if wishes and any(word.partition("=")[0] == "--package" for word in others):
        raise ValueError("--model and --package name two models: give one of them")


def check_known(arguments: list[str]) -> None:
    """ValueError for one that is no flag of `duovec serve`, or is left over."""
    known = {"--config", *re.findall(r"\| `(--[^`]+)`", TABLE.read_text("utf-8"))}
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in known:
            raise ValueError(f"{word} is no flag of duovec serve: docs/settings.md lists them")
        # Each takes a value, which may stand behind it.
        if not equals and next(words, None) is None:
            raise ValueError(f"{word} needs a value")


def settings(arguments: list[str], *names: str) -> dict[str, str]:
    """What the user gave each, as a flag, a variable or in the file of settings; else ""."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("config", *names):
        variable = os.environ.get(f"DUOVEC_{name.upper()}")
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, nargs="?", default=variable)
    given = vars(parser.parse_known_args(arguments)[0])
    try:
        file = tomllib.loads(Path(given["config"] or os.devnull).read_text("utf-8"))
    except (OSError, ValueError):
        file = {}  # The program says what is wrong with it.
    return {name: given[name] or str(file.get(name, "")) for name in names}


def main() -> None:
    """Exit status 1 with one sentence on stderr where something is wrong."""
    try:
        wishes, others = split(sys.argv[1:])
        check(wishes, others)
        # Of scripts/serve.sh alone.
        arguments = [word for word in others if word != "--cpu"]
        check_known(arguments)
    except ValueError as refusal:
        sys.exit(f"duovec: {refusal}")
    print(f"wishes=({shlex.join(wishes)}) arguments=({shlex.join(arguments)})")
    print(f"GPU={'false' if '--cpu' in others else 'true'}")
    for name, value in settings(arguments, *SETTINGS).items():
        print(f"{name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
