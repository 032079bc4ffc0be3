"""What was typed behind `duovec serve` and the like: which arguments say what a model's package is
made of, --model and what goes with it, and what other settings are.

    python3 scripts/model_export/flags.py ARGUMENTS OF scripts/serve.sh...

prints them for a shell to evaluate: `wishes`; `arguments`, which are the others; a variable for
each of SETTINGS, empty where the user gave none. It needs no packages of Python.
"""

import argparse
import difflib
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

WITH_VALUE = ("--model", "--pooling", "--max-tokens", "--shorter-vectors")
WITH_VALUE += ("--query-prompt", "--passage-prompt")
SWITCHES = ("--no-sparse", "--token-vectors", "--update")
LIBRARY_DIRS = ("openvino_library_dir", "tensorrt_library_dir", "cuda_library_dir")
SETTINGS = ("package", "engine", "precision", "build_plan", *LIBRARY_DIRS)
"""Those that say what is to be made before a start from a clone."""
CPU = "--cpu"
"""A flag of scripts/serve.sh alone."""
WORDS = {
    "engine": ("auto", "openvino", "tensorrt", "tensorrt-rtx", "fake"),
    "precision": ("auto", "f32", "bf16", "f16", "int8", "fp8"),
}
PACKAGE_CURE = (
    "give the folder of a package, for example with --package or DUOVEC_PACKAGE; in a clone, "
    "scripts/serve.sh makes the default one, and with --model NAME or --model FOLDER that of "
    "another model"
)
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
            near = difflib.get_close_matches(name, [*known, CPU, *WITH_VALUE, *SWITCHES], 1, 0.75)
            meant = f" did you mean {near[0]}?" if near else ""
            lists = "scripts/serve.sh --help and docs/settings.md list them"
            raise ValueError(f"{word} is no flag of duovec serve:{meant} {lists}")
        # Each takes a value, which may stand behind it.
        if not equals and next(words, None) is None:
            raise ValueError(f"{word} needs a value")


def check_values(given: dict[str, str], places: dict[str, str]) -> None:
    """ValueError for an engine, a precision, a port or a package that the program would refuse
    after all is made, in the program's words. It checks every other value itself, and an empty
    one."""
    for name, words in WORDS.items():
        if given[name] and given[name] not in words:
            raise ValueError(f"{places[name]}: '{given[name]}' is not one of {', '.join(words)}")
    digits = (port := given["port"]).removeprefix("+")
    if port and not (digits.isdecimal() and int(digits) <= 65535):
        raise ValueError(f"{places['port']}: '{port}' is not a port, 0 to 65535")
    folder = Path(given["package"]).absolute()
    if given["package"] and not (folder / "manifest.json").exists():
        lacks = "manifest.json in it" if folder.is_dir() else "such folder"
        raise ValueError(f"{folder} is not a package: there is no {lacks}; {PACKAGE_CURE}")


def settings(arguments: list[str], *names: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the user gave each, as a flag, a variable or in the file of settings, without blanks
    around it, else ""; and the place where it was given, as the program names it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags = {name: f"--{name.replace('_', '-')}" for name in ("config", *names)}
    for name, flag in flags.items():
        parser.add_argument(flag, dest=name, nargs="?")
    typed = vars(parser.parse_known_args(arguments)[0])
    variables = {name: os.environ.get(f"DUOVEC_{name.upper()}") for name in flags}
    # Kubernetes sets DUOVEC_PORT=tcp://10.0.0.1:80 beside a service: the program passes it over.
    if re.match("(tcp|udp|sctp)://", variables.get("port") or ""):
        del variables["port"]
    config = typed["config"] or variables["config"] or os.devnull
    try:
        file = tomllib.loads(Path(config).read_text("utf-8"))
    except (OSError, ValueError):
        file = {}  # The program says what is wrong with it.
    given, places = {}, {}
    for name in names:
        values = {
            flags[name]: typed[name],
            f"DUOVEC_{name.upper()}": variables.get(name),
            f"{config}, {name}": file.get(name),
        }
        places[name] = next((place for place, one in values.items() if one is not None), "")
        given[name] = str(values.get(places[name], "")).strip()
    return given, places


def main() -> None:
    """Exit status 1 with one sentence on stderr where something is wrong."""
    try:
        wishes, others = split(sys.argv[1:])
        check(wishes, others)
        arguments = [word for word in others if word != CPU]
        check_known(arguments)
        given, places = settings(arguments, "port", *SETTINGS)
        # A package that is made wins over one that a variable or the file names.
        check_values(given | ({"package": ""} if wishes else {}), places)
    except ValueError as refusal:
        sys.exit(f"duovec: {refusal}")
    print(f"wishes=({shlex.join(wishes)}) arguments=({shlex.join(arguments)})")
    print(f"GPU={'false' if CPU in others else 'true'}")
    for name in SETTINGS:
        print(f"{name}={shlex.quote(given[name])}")


if __name__ == "__main__":
    main()
