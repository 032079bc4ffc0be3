# shellcheck shell=bash
# What building and testing with TensorRT needs and may not be committed: headers of both flavours,
# the TensorRT-RTX libraries, the CUDA runtime, libclang. Sourced after setup.sh.
# Everything goes to the git-ignored folder third_party/, each part whole or not at all.

THIRD_PARTY="$ROOT/third_party"

# Crates that bring NVIDIA's headers, each with the digest it must have: the newest of TensorRT 11
# and of TensorRT-RTX, the newest of TensorRT 10, the oldest of TensorRT 11.
CRATE_NEWEST="trtx-sys-0.9.1+rtx1.7 \
5480ee056292951daa1bc74532162d6cb75190f091e45d7d97c0c356916ae171"
CRATE_10="trtx-sys-0.5.0 1efd9036abbd2775da5df4e49793ec8e656f026fb9c60dff7e95bda2d654e634"
CRATE_OLDEST_11="trtx-sys-0.7.1+rtx1.5 \
45b6611ef5e42f89d03a7cfaf8aa8a720e274f12dbc8ae7b0ac9f409d969f93e"

# Each wheel: what pip is asked for, with the digests for x86-64 and for arm64. For CUDA 12 NVIDIA
# has TensorRT-RTX for x86-64 only.
WHEEL_RTX="tensorrt-rtx-cu13-libs==1.7.1.116 \
--hash=sha256:e3fd45fed001240d63304e77a2d4006319b839994237cb294b6e7ad72acaabcd \
--hash=sha256:ec8b6cb95a8ea61e31d544dbc5039d35219b311999f92c518a3889aaae74359c"
WHEEL_RTX_12="tensorrt-rtx-cu12-libs==1.7.1.116 \
--hash=sha256:68c2615fef1556e7721235682f460f3d78ab89df320a3f34a416367b144817a8"
WHEEL_CUDART="nvidia-cuda-runtime==13.5.37 \
--hash=sha256:df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d \
--hash=sha256:de2dc5a7367974228b0a69588a9acc9340d3768bef1bf38bf0801eb08497cd2d"
# The first of CUDA 12: what it has, later ones have too. The first for arm64 is another.
case $(uname -m) in
    aarch64)
        WHEEL_CUDART_12="nvidia-cuda-runtime-cu12==12.3.101 \
--hash=sha256:fbbfb8f2b933cfbd33461cc5401cbeafb8b0a05cc18ec8070c10352c9b1b0d57"
        ;;
    *)
        WHEEL_CUDART_12="nvidia-cuda-runtime-cu12==12.0.107 \
--hash=sha256:9ab985dd92728e1c577bb75ae83dcc42357ce7c00016c782e8b196f6fea05b91"
        ;;
esac
WHEEL_CUDA_CRT="nvidia-cuda-crt==13.5.37 \
--hash=sha256:e898b7f73d3035fa89915a3f7bf3b54a73e90249746111aed295822c4729bb29 \
--hash=sha256:9ed2c565fdf3244fa6719769a80a466b85bfd4b1467ea339353bc91c971d09e0"
WHEEL_LIBCLANG="libclang==18.1.1 \
--hash=sha256:c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b \
--hash=sha256:54dda940a4a0491a9d1532bf071ea3ef26e6dbaf03b5000ed94dd7174e8f9592"

# part NAME STAMP COMMAND...: third_party/NAME, filled anew when its stamp differs. COMMAND fills
# the folder that it finds in NEW.
part() {
    local target="$THIRD_PARTY/$1" stamp=$2
    shift 2
    [ "$(cat "$target/.stamp" 2>/dev/null)" = "$stamp" ] && return
    say "fetching ${target#"$ROOT"/} (${stamp%% --hash*})"
    (made_whole "$target" fill_part "$stamp" "$@") || exit 1
}

fill_part() {
    local stamp=$1
    shift
    mkdir -p "$NEW/download" || die "cannot write to $THIRD_PARTY"
    "$@"
    rm -rf "$NEW/download"
    printf '%s\n' "$stamp" >"$NEW/.stamp"
}

# wheels SPEC...: downloads each, checks its digest and unpacks it into NEW/download.
wheels() {
    local python=${PYTHON:-} log="$NEW/download/log"
    if [ -z "$python" ]; then
        python3 -m venv "$NEW/download/venv" ||
            die "python3 -m venv failed: install python3-venv and try again"
        python="$NEW/download/venv/bin/python"
    fi
    printf '%s\n' "$@" >"$NEW/download/requirements.txt"
    if ! "$python" -m pip download --quiet --disable-pip-version-check --no-input --no-deps \
        --only-binary :all: --require-hashes --dest "$NEW/download" \
        -r "$NEW/download/requirements.txt" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        die "Python wheels cannot be downloaded: is there a network, and does pip reach its index?"
    fi
    local wheel
    for wheel in "$NEW"/download/*.whl; do
        "$python" -m zipfile -e "$wheel" "$NEW/download" || die "cannot unpack $wheel"
    done
}

# keep PATTERN FOLDER: moves what was unpacked to its place in the part.
keep() {
    local -a found
    mapfile -t found < <(compgen -G "$NEW/download/$1")
    [ "${#found[@]}" -gt 0 ] || die "the download has no $1: it is not the expected release"
    mkdir -p "$NEW/$2" || die "cannot write to $NEW"
    mv "${found[@]}" "$NEW/$2/" || die "cannot write to $NEW"
}

# crate NAME-VERSION SHA256: checks it and unpacks its headers into NEW/download.
crate() {
    local name=$1 digest=$2 spec crate log="$NEW/download/log"
    spec=${name#trtx-sys-}
    spec="trtx-sys@${spec%%+*}"
    # `cargo info` downloads the one package and nothing it depends on; it is never built.
    if ! (cd "$ROOT" && cargo info --quiet "$spec") >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        die "cargo cannot download $spec: is there a network, and does cargo reach it?"
    fi
    crate=$(compgen -G "${CARGO_HOME:-$HOME/.cargo}/registry/cache/*/$name.crate" | head -n 1)
    [ -n "$crate" ] || die "cargo did not keep $name.crate: set CARGO_HOME to its folder"
    printf '%s  %s\n' "$digest" "$crate" | sha256sum --check --status ||
        die "$crate has another SHA-256 than expected: remove it and try again"
    tar -xzf "$crate" -C "$NEW/download" "$name/TensorRT-Headers" || die "cannot unpack $crate"
}

# shellcheck disable=SC2086
fill_headers() {
    crate $CRATE_NEWEST
    crate $CRATE_10
    crate $CRATE_OLDEST_11
    keep "${CRATE_NEWEST%% *}/TensorRT-Headers/TRT-Enterprise-11.4/*" tensorrt
    keep "${CRATE_NEWEST%% *}/TensorRT-Headers/TRT-RTX-1.7/*" tensorrt-rtx
    keep "${CRATE_10%% *}/TensorRT-Headers/TRT-Enterprise-10.16/*" tensorrt-10
    keep "${CRATE_OLDEST_11%% *}/TensorRT-Headers/TRT-Enterprise-11.0/*" tensorrt-11.0
}

# cuda_of_driver: the newest CUDA that it knows, by its major version; empty without a driver.
cuda_of_driver() {
    local shown
    shown=$(nvidia-smi 2>/dev/null) || true
    sed -n '/CUDA Version/{s/.*CUDA Version: *\([0-9]*\).*/\1/p;q}' <<<"$shown"
}

# rtx_wheel: the one for the driver. What is built without a GPU is for the newest.
rtx_wheel() {
    if [ "$(cuda_of_driver)" = 12 ]; then echo "$WHEEL_RTX_12"; else echo "$WHEEL_RTX"; fi
}

fill_rtx_libraries() {
    wheels "$(rtx_wheel)"
    keep "tensorrt_rtx_libs/*.so.1" lib
    keep "*.dist-info/licenses/*" licenses
}

fill_cuda() {
    wheels "$WHEEL_CUDART" "$WHEEL_CUDA_CRT"
    keep "nvidia/cu13/include/*" include
    keep "nvidia/cu13/lib/libcudart.so.13" lib
    keep "nvidia_cuda_runtime-*.dist-info/licenses/*" licenses
}

fill_cuda_12() {
    wheels "$WHEEL_CUDART_12"
    keep "nvidia/cuda_runtime/lib/libcudart.so.12" lib
}

fill_libclang() {
    wheels "$WHEEL_LIBCLANG"
    keep "libclang-*.data/platlib/clang/native/libclang.so" .
}

# has_libclang: whether bindgen will find one without help.
has_libclang() {
    local folder
    [ -n "${LIBCLANG_PATH:-}" ] && return 0
    for folder in /usr/lib/llvm-*/lib /usr/lib/*-linux-gnu /usr/lib64 /usr/local/lib; do
        compgen -G "$folder/libclang.so*" >/dev/null && return 0
        compgen -G "$folder/libclang-[0-9]*.so*" >/dev/null && return 0
    done
    return 1
}

# ensure_tensorrt: all parts; the second run takes no network and no time.
ensure_tensorrt() {
    case $(uname -sm) in
        "Linux x86_64" | "Linux aarch64") ;;
        *)
            die "TensorRT parts are fetched for Linux on x86-64 and arm64 only: set" \
                "TENSORRT_INCLUDE_DIR, TENSORRT_RTX_INCLUDE_DIR and CUDA_INCLUDE_DIR to the SDKs'" \
                "include folders"
            ;;
    esac
    mkdir -p "$THIRD_PARTY" || die "cannot write to $ROOT"
    exec 8>"$THIRD_PARTY/.lock"
    flock 8
    if [ ! -e "$THIRD_PARTY/tensorrt-rtx/.stamp" ]; then
        need_disk "$THIRD_PARTY" 900 "TensorRT"
    fi
    part headers "$CRATE_NEWEST $CRATE_10 $CRATE_OLDEST_11" fill_headers
    part cuda "$WHEEL_CUDART $WHEEL_CUDA_CRT" fill_cuda
    part cuda-12 "$WHEEL_CUDART_12" fill_cuda_12
    part tensorrt-rtx "$(rtx_wheel)" fill_rtx_libraries
    has_libclang || part libclang "$WHEEL_LIBCLANG" fill_libclang
    exec 8>&-
}

# has_gpu: whether NVIDIA's driver shows one.
has_gpu() {
    local shown
    shown=$(nvidia-smi -L 2>/dev/null) && grep -q '^GPU ' <<<"$shown"
}

# installed_library PATTERN: the first library of such a name where the loader looks.
installed_library() {
    local folders names
    IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
    # The whole list first: a reader that stops at its match ends the writer, and with that the
    # pipe fails. Debian's users do not have ldconfig's folder in their path.
    names=$(PATH="$PATH:/usr/sbin:/sbin" ldconfig -p 2>/dev/null || true)
    [ ${#folders[@]} = 0 ] || names+=$'\n'$(ls "${folders[@]}" 2>/dev/null || true)
    grep -Eom 1 "\b($1)\b" <<<"$names"
}

# ensure_fp16 PACKAGE: the half-precision graph beside the package's own; PYTHON must be set up.
ensure_fp16() {
    [ -e "$1/model.fp16.onnx" ] && return
    say "adding the fp16 graph to $1"
    "$PYTHON" "$ROOT/scripts/export_onnx.py" --fp16-of-package "$1" ||
        die "the fp16 graph could not be added; the reason stands above"
}

# ensure_tensorrt_binary: the binary with both flavours in BINARY.
ensure_tensorrt_binary() { ensure_binary tensorrt,tensorrt-rtx; }
