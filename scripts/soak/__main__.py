"""What scripts/soak.sh runs."""

import argparse
import time

from default_package import command


def main() -> int:
    """Exit status: 0 all is well, 1 a check failed, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="scripts/soak.sh",
        description="Drives a real server with everything at once and checks that every request "
        "ended once, that nothing leaks, and that it ends well.",
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of load, default 60")
    rounds = "of load and rest, whose rests are compared: at least 2, default 20"
    parser.add_argument("--rounds", type=int, default=20, help=rounds)
    parser.add_argument("--rest-seconds", type=float, default=25.0, help="of each, default 25")
    parser.add_argument("--growth", type=float, default=0.05, help="allowed part, default 0.05")
    parser.add_argument("--clients", type=int, default=24, help="at once, default 24")
    parser.add_argument(
        "--peaks", type=int, default=3, help="of memory at the start, on purpose, default 3"
    )
    parser.add_argument("--fault-seconds", type=float, default=20.0, help="between two faults")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--real", action="store_true", help="the package's model, not the fake one")
    parser.add_argument("arguments", nargs="*", help="arguments of duovec serve, behind --")
    typed = parser.parse_args()
    if typed.minutes <= 0 or typed.rounds < 2:
        parser.error("--minutes must be above 0, and --rounds at least 2")
    return command.run("soak.drive", typed, load=True)


if __name__ == "__main__":
    raise SystemExit(main())
