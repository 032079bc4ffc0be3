#!/usr/bin/env bash
# Checks TensorRT on this machine's GPU and writes a report in Markdown, one PASS or FAIL line for
# each check. It needs a built binary (target/release/duovec with the TensorRT features), NVIDIA's
# libraries and driver, a package, and Python 3.10 or later; no network.
#
#   scripts/gpu_check.sh [--flavour tensorrt|tensorrt-rtx] [--package DIR]... [--seconds N]
#       [--limit SECONDS] [--library-dir DIR] [--cuda-library-dir DIR] [--standins DIR]
#       [--binary FILE] [--report FILE]
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PYTHON=${PYTHON:-$(command -v python3 || true)}
if [ -z "$PYTHON" ]; then
    echo "duovec: python3 is missing: install it and try again" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "duovec: $PYTHON is $("$PYTHON" --version): name Python 3.10 or later with PYTHON=FILE" >&2
    exit 1
fi
# Where wrk is not installed, it may be in tools.
PATH="$ROOT/tools:$PATH" PYTHONPATH="$ROOT/scripts" exec "$PYTHON" -m gpu_check "$@"
