"""What the measurements are made with: long texts, and a certificate."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from default_package.errors import PackageError

SEED = 11
DOCUMENTS = 400
"""More than a server holds at once: equal texts that wait share a run."""
ORDERS = 24
DOCUMENT_BYTES = 200_000


def documents(texts: list[str]) -> list[str]:
    """Long texts that differ from their first word on, since the server reads only so far."""
    long = [long_text(texts, DOCUMENT_BYTES - 8, number) for number in range(ORDERS)]
    return [f"{number} {long[number % ORDERS]}" for number in range(DOCUMENTS)]


def long_text(texts: list[str], size: int, number: int) -> str:
    """Sentences in an order of their own, of at most so many bytes."""
    chance, parts, left = random.Random(SEED + number), [], size
    while left > 0:
        part = chance.choice(texts) + " "
        parts.append(part)
        left -= len(part.encode())
    return "".join(parts).encode()[:size].decode(errors="ignore")


def make_certificate(folder: Path) -> tuple[str, str]:
    """A certificate for this run and its key."""
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run(
            [*command, "-keyout", key, "-out", certificate], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise PackageError(f"openssl cannot make a certificate: {error}") from error
    return certificate, key
