"""Which arguments say what a model's package is made of: --model and what goes with it.

    python3 scripts/model_export/flags.py ARGUMENTS OF duovec serve...

prints them for a shell to evaluate: `wishes`, and `arguments`, which are the others. It needs no
packages of Python.
"""

import shlex
import sys

WITH_VALUE = (
    "--model",
    "--pooling",
    "--max-tokens",
    "--shorter-vectors",
    "--query-prompt",
    "--passage-prompt",
)
SWITCHES = ("--no-sparse", "--token-vectors", "--update")


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The wishes, each as one word, and the other arguments."""
    wishes, others, words = [], [], iter(arguments)
    for word in words:
        name = word.partition("=")[0]
        if name in WITH_VALUE and name == word:
            value = next(words, None)
            if value is None:
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


def main() -> None:
    """Exit status 1 with one sentence on stderr where something is wrong."""
    try:
        wishes, others = split(sys.argv[1:])
        check(wishes, others)
    except ValueError as refusal:
        sys.exit(f"duovec: {refusal}")
    print(f"wishes=({shlex.join(wishes)}) arguments=({shlex.join(others)})")


if __name__ == "__main__":
    main()
