#!/usr/bin/env bash
# Builds a TensorRT plan from a package's ONNX graph and adds it to the package:
#
#     scripts/build_engine.sh PACKAGE [--flavour tensorrt|tensorrt-rtx] [--profiles …] …
#
# Everything behind PACKAGE goes to `duovec build-engine`; see its --help. Fetches headers and the
# TensorRT-RTX libraries once. Without --flavour the plan is for the installed TensorRT where there
# is one and a GPU, else for TensorRT-RTX.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/tensorrt.sh"

answer_help "${1:-}"
case "${1:-}" in
    "" | -*) die "usage: scripts/build_engine.sh PACKAGE [--flavour …] [--profiles …] …" ;;
esac
[ -e "$1/manifest.json" ] || die "$1 is not a package: there is no manifest.json in it"

need_tools
# TensorRT computes in the types of the graph, and the default package's are f32.
if [ "$(basename "$1")" = "$PACKAGE_NAME" ] && [ ! -e "$1/model.fp16.onnx" ]; then
    need_cache
    ensure_venv "$ROOT/scripts/requirements.txt"
    ensure_fp16 "$1"
fi
ensure_tensorrt
ensure_tensorrt_binary
# What the user names comes first, then an installed library, then the fetched one.
installed='libtensorrt_rtx\.so\.1'
case " $* " in
    *" --tensorrt-library-dir"* | *" --flavour tensorrt "* | *" --flavour=tensorrt "*) installed= ;;
    *" --flavour"*) ;;
    # TensorRT for data centres builds on a GPU only.
    *) ! has_gpu || installed+='|libnvinfer\.so\.1[01]' ;;
esac
if [ -n "$installed" ] && ! installed_library "$installed" >/dev/null; then
    cuda=cuda
    [ "$(cuda_of_driver)" != 12 ] || cuda="cuda-12"
    export DUOVEC_DEFAULT_TENSORRT_LIBRARY_DIR="$THIRD_PARTY/tensorrt-rtx/lib"
    export DUOVEC_DEFAULT_CUDA_LIBRARY_DIR="$THIRD_PARTY/$cuda/lib"
fi
exec "$BINARY" build-engine "$@"
