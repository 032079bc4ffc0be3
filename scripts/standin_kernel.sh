#!/usr/bin/env bash
# Compiles the kernel of the stand-in for TensorRT on a GPU to the text that drivers take (PTX),
# with clang: that of the system, or the one that CLANG names. Only who changes the kernel needs it;
# the text is in the repository, since neither users nor tests have a compiler for GPUs.
#
#   scripts/standin_kernel.sh
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
answer_help "$@"
cd "$ROOT"

CLANG=${CLANG:-clang++}
SOURCES=(cpp/testing/standin_kernel.cu cpp/testing/standin_kernel.h)
TEXT=scripts/gpu_check/standin_kernel.ptx
# The oldest GPU that CUDA 13 knows, in the words of its time: later drivers take both.
GPU=(--cuda-gpu-arch=sm_75 -Xclang -target-feature -Xclang +ptx63)

command -v "$CLANG" >/dev/null || die "$CLANG is missing: install clang, or name it with CLANG"
# Sums must be rounded in the same way as on the host: no product is fused with them.
text=$("$CLANG" -x cuda --cuda-device-only -nocudainc -nocudalib "${GPU[@]}" -std=c++20 -Os \
    -ffp-contract=off -Wall -Wextra -Werror -Icpp -S "${SOURCES[0]}" -o -) ||
    die "the kernel cannot be compiled; the reason stands above"
{
    echo "// Made by scripts/standin_kernel.sh."
    echo "// SHA-256 of the sources: $(cat "${SOURCES[@]}" | sha256sum | cut -d ' ' -f 1)"
    sed '/^[[:space:]]*\(\/\/.*\)*$/d' <<<"$text"
} >"$TEXT.new"
mv "$TEXT.new" "$TEXT"
say "$TEXT is made"
