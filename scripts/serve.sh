#!/usr/bin/env bash
# Sets up all that is needed, builds the release binary and serves the default package on
# 127.0.0.1:8080:
#
#   scripts/serve.sh [--cpu] [ARGUMENTS OF duovec serve]
#
# Where NVIDIA's driver shows a GPU it serves on that, with a plan that the server builds for this
# GPU. TensorRT is that of --tensorrt-library-dir, else the installed one, else NVIDIA's wheels for
# the driver's CUDA, which go to the cache folder. Where a step of that fails it says why and serves
# on the CPU; --cpu asks for that at once.
#
# With --precision int8 it serves on the CPU, and adds the graph in 8 bits to the default package.
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
arguments=()
for one in "$@"; do
    if [ "$one" = --cpu ]; then GPU=false; else arguments+=("$one"); fi
done
set -- "${arguments[@]}"
check_flags "$@"
need_tools
need_cache
ensure_venv "$ROOT/scripts/requirements.txt"
if ! package=$(setting package "$@"); then
    ensure_package
    package="$ROOT/engines/$PACKAGE_NAME"
    export DUOVEC_PACKAGE=$package
fi
if [ "$(setting precision "$@")" = int8 ]; then
    GPU=false
    ensure_int8 "$package"
fi
if [ "$GPU" = true ] && has_gpu; then
    ready=$(mktemp)
    if (prepare_gpu "$ready" "$package" "$@"); then
        mapfile -t command <"$ready"
        rm -f "$ready"
        say "starting ${command[0]} for the GPU"
        exec env "${command[@]:1}" "${command[0]}" serve "$@"
    fi
    rm -f "$ready"
    say "the GPU is not used, the reason stands above: serving on the CPU"
fi
ensure_binary default
say "starting $BINARY"
exec "$BINARY" serve "$@"
