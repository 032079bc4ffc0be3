#!/usr/bin/env bash
# Sets up all that is needed, builds the release binary and serves the default package on
# 127.0.0.1:8080:
#
#   scripts/serve.sh [--cpu] [ARGUMENTS OF duovec serve]
#
# Where NVIDIA's driver shows a GPU it serves on that, with the installed TensorRT or with NVIDIA's
# wheels for the driver's CUDA, which go to the cache folder, and with a plan that the server builds
# for this GPU. Where a step of that fails it says why and serves on the CPU; --cpu asks for that at
# once.
#
# Once it is built, `target/release/duovec serve --help` lists the arguments.
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
# shellcheck source=scripts/lib/tensorrt.sh
. "$ROOT/scripts/lib/tensorrt.sh"
# shellcheck source=scripts/lib/gpu.sh
. "$ROOT/scripts/lib/gpu.sh"

answer_help "$@"
GPU=true
if [ "${1:-}" = --cpu ]; then
    GPU=false
    shift
fi
need_tools
need_cache
ensure_venv "$ROOT/scripts/requirements.txt"
if [ -z "${DUOVEC_PACKAGE:-}" ]; then
    ensure_package
    export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
fi
if [ "$GPU" = true ] && has_gpu; then
    ready=$(mktemp)
    if (prepare_gpu "$ready"); then
        mapfile -t command <"$ready"
        rm -f "$ready"
        say "starting ${command[0]} for the GPU"
        exec "${command[0]}" serve "${command[@]:1}" "$@"
    fi
    rm -f "$ready"
    say "the GPU is not used, the reason stands above: serving on the CPU"
fi
ensure_binary default
say "starting $BINARY"
exec "$BINARY" serve "$@"
