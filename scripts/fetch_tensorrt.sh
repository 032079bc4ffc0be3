#!/usr/bin/env bash
# Fetches what building and testing with TensorRT needs into the git-ignored folder third_party/:
# headers of both flavours, the TensorRT-RTX libraries, the CUDA runtime, libclang.
# About 120 MB of downloads, 400 MB on disk, once; the second run does nothing.
#
#   scripts/fetch_tensorrt.sh
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/tensorrt.sh"

answer_help "$@"
[ $# = 0 ] || die "usage: scripts/fetch_tensorrt.sh"
need_tools
ensure_tensorrt
say "third_party/ is complete: $(du -sh "$THIRD_PARTY" | cut -f1)"
