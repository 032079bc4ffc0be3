#!/usr/bin/env bash
# Builds the stand-in for TensorRT that runs kernels of its own on a real GPU, for the last part of
# scripts/gpu_check.sh: with it the real driver and CUDA runtime are checked without TensorRT. It
# needs a C++ compiler and what scripts/fetch_tensorrt.sh fetches, and no GPU.
#
#   scripts/gpu_standins.sh
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/standin.sh"
answer_help "$@"

cd "$ROOT"
[ -e third_party/headers/tensorrt ] ||
    die "the headers of TensorRT are not here: run scripts/fetch_tensorrt.sh"
make_gpu_standins third_party/standins ||
    die "the stand-ins cannot be built; the reason stands above"
say "the stand-ins for a GPU are in $ROOT/third_party/standins"
