"""What scripts/bench_http.sh runs."""

import argparse
import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from default_package import command

SMALL_SECONDS = 1.0
ROUNDS = 2


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench_http.sh", description="Measures the server over HTTP with real texts."
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of most kinds of load")
    parser.add_argument("--small", action="store_true", help="a second each, few texts")
    parser.add_argument(
        "--against", type=address, metavar="URL", help="measure this server in turn with ours"
    )
    parser.add_argument("--dialect", choices=("openai", "tei"), help="what it speaks; openai")
    parser.add_argument("--model", metavar="NAME", help="what it is sent as `model`")
    parser.add_argument("--rounds", type=int, help=f"of --against, in turn; {ROUNDS}")
    parser.add_argument("--out", type=Path, default=command.ROOT / "target/bench-http")
    parser.add_argument("arguments", nargs="*", help="arguments of duovec serve, behind --")
    typed = parser.parse_args()
    if typed.small:
        typed.seconds = SMALL_SECONDS
    if not 1 <= typed.seconds <= 3600:
        parser.error("--seconds is 1 to 3600")
    work = "http_bench.benchmark"
    if typed.against:
        work = "http_bench.against"
        typed.dialect = typed.dialect or "openai"
        typed.rounds = typed.rounds or (1 if typed.small else ROUNDS)
        if not 1 <= typed.rounds <= 100:
            parser.error("--rounds is 1 to 100")
    elif typed.dialect or typed.model or typed.rounds:
        parser.error("--dialect, --model and --rounds need --against URL")
    return command.run(work, typed, load=True)


def address(url: str) -> str:
    """The address of a server on this machine, without what every route begins with.

    Ratios of servers on two machines would be those of the machines.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or not _is_here(parts.hostname):
        raise argparse.ArgumentTypeError(
            f"{url} is not http:// and a loopback address such as http://127.0.0.1:8081: both "
            "servers must be on this machine"
        )
    return url.rstrip("/").removesuffix("/v1")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    raise SystemExit(main())
