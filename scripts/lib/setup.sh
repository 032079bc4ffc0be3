# shellcheck shell=bash
# shellcheck disable=SC2034  # BINARY and PYTHON are for the scripts that source this one
# What serve.sh and test.sh share: a Python environment in a cache folder (never system-wide), the
# default package, the binary. Each step is skipped when its result is whole, and a step that fails
# or is interrupted leaves nothing of its result behind.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${DUOVEC_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/duovec}
PACKAGE_NAME=multilingual-e5-small

say() { printf '==> %s\n' "$*" >&2; }

die() {
    printf 'duovec: %s\n' "$*" >&2
    exit 1
}

# answer_help ARGUMENTS...: prints the comment at the head of the running script and ends when its
# own arguments, those before `--`, ask for help.
answer_help() {
    local argument
    for argument in "$@"; do
        case $argument in
            -h | --help)
                sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
                exit
                ;;
            --) return ;;
        esac
    done
}

# need_tools: what must be there before anything is made.
need_tools() {
    command -v cargo >/dev/null ||
        die "cargo is missing: install Rust (rustup, https://rustup.rs) and try again"
    command -v cc >/dev/null ||
        die "a C compiler is missing: install build-essential and try again"
    need_python
}

# need_python: what the Python environment needs.
need_python() {
    command -v python3 >/dev/null ||
        die "python3 is missing: install python3 and python3-venv and try again"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "python3 is $(python3 -V 2>&1 | cut -d' ' -f2): 3.11 or later is needed"
    python3 -c 'import venv, ensurepip' 2>/dev/null ||
        die "python3 has no venv module: install python3-venv and try again"
    command -v flock >/dev/null || die "flock is missing: install util-linux and try again"
}

# need_cache: a writable cache folder.
need_cache() {
    mkdir -p "$CACHE" 2>/dev/null && [ -w "$CACHE" ] ||
        die "cannot write to the cache folder $CACHE: name another with DUOVEC_CACHE_DIR"
}

# need_disk FOLDER MEGABYTES WHAT
need_disk() {
    local free
    free=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$2" ] ||
        die "$3 needs $2 MB in $1, $free MB are free"
}

# made_whole FOLDER COMMAND...: runs COMMAND with a folder beside FOLDER in NEW, and renames it to
# FOLDER when it succeeds; removes it, and a log beside it, when it fails or is interrupted. What a
# killed run left goes first: the caller has a lock.
made_whole() {
    local target=$1
    shift
    NEW="$target.new-$$"
    trap 'rm -rf "$NEW" "$NEW.log"' EXIT
    trap 'exit 130' INT TERM
    rm -rf "$target".new-*
    "$@" || exit 1
    # Once it has its name it is trusted, also after a loss of power.
    sync -f "$NEW" || exit 1
    rm -rf "$target"
    mv "$NEW" "$target" || exit 1
    trap - EXIT INT TERM
}

# made_once FOLDER MEGABYTES WHAT COMMAND...: FOLDER with WHAT in it is there, made whole by COMMAND
# where it was not. Others that want it wait meanwhile.
made_once() {
    flock 9
    [ ! -e "$1" ] || return 0
    need_disk "$(dirname "$1")" "$2" "$3"
    say "installing $3 into $1 (a minute or some, once)"
    (made_whole "$1" "${@:4}") || exit 1
} 9>"$1.lock"

# It installs packages in a tenth of the processor time that pip takes.
UV=uv==0.13.9

# fill_venv REQUIREMENTS...
fill_venv() {
    local log="$NEW.log" file lists=() python="$NEW/bin/python"
    for file in "$@"; do lists+=(-r "$file"); done
    python3 -m venv "$NEW" || die "python3 -m venv failed: install python3-venv and try again"
    # pip knows ways to an index that uv does not, such as a proxy in its settings.
    if ! { install_by_uv "$python" "${lists[@]}" ||
        by_pip "$python" "${lists[@]}"; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        die "Python packages cannot be installed: is there a network, and does pip reach its index?"
    fi
    rm -rf "$log" "$NEW/uv-cache"
}

# by_pip PYTHON PACKAGES...
by_pip() { "$1" -m pip install --quiet --disable-pip-version-check --no-input "${@:2}"; }

# install_by_uv PYTHON PACKAGES...
install_by_uv() (
    by_pip "$1" "$UV" && export_pip_settings "$1" || exit
    # Beside the environment, where uv can link files in place of copying them.
    UV_CACHE_DIR="$NEW/uv-cache" "$NEW/bin/uv" pip install --quiet --python "$@"
)

# export_pip_settings PYTHON: where packages come from, for uv, which reads no settings of pip. Of
# several indexes pip takes the newest release, and uv the first index's.
export_pip_settings() {
    local name value settings
    settings=$("$1" -m pip config list) || return
    # Variables are the first of the list, and count more than files.
    while IFS='=' read -r name value; do
        value=${value//\\n/ }
        value=${value//\'/}
        case ${name##*.} in
            index-url) export UV_DEFAULT_INDEX=$value ;;
            extra-index-url) export UV_INDEX=$value UV_INDEX_STRATEGY=unsafe-best-match ;;
            find-links) export UV_FIND_LINKS=${value// /,} ;;
            no-index) export UV_NO_INDEX=$value ;;
        esac
    done < <(LC_ALL=C sort -r <<<"$settings")
}

# ensure_environment NAME MEGABYTES REQUIREMENTS...: VENV is afterwards the folder of a Python
# environment that has them.
ensure_environment() {
    VENV="$CACHE/$1-$( (python3 -V && cat "${@:3}") | sha256sum | cut -c1-16)"
    made_once "$VENV" "$2" "a Python environment" fill_venv "${@:3}"
}

# ensure_venv REQUIREMENTS...: PYTHON is afterwards the interpreter that has them.
ensure_venv() {
    ensure_environment venv 2000 "$@"
    PYTHON="$VENV/bin/python"
    link_openvino
}

# The wheel names the C library with its version only; the loader looks for the plain name.
link_openvino() {
    local libs
    libs=$(echo "$VENV"/lib/python3*/site-packages/openvino/libs)
    [ -d "$libs" ] || die "$VENV has no OpenVINO libraries: remove it and try again"
    if [ ! -e "$libs/libopenvino_c.so" ]; then
        local versioned
        versioned=$(basename "$libs"/libopenvino_c.so.*)
        ln -sfn "$versioned" "$libs/libopenvino_c.so" || die "cannot write to $libs"
    fi
    export DUOVEC_OPENVINO_LIBRARY_DIR=${DUOVEC_OPENVINO_LIBRARY_DIR:-$libs}
}

# ensure_package: engines/multilingual-e5-small, made anew when its recipe changed.
ensure_package() {
    local stamp="$ROOT/engines/.$PACKAGE_NAME.stamp" recipe target
    target="$ROOT/engines/$PACKAGE_NAME"
    recipe=$(cd "$ROOT/scripts" &&
        find default_package families make_default_package.py requirements.txt -type f \
            -not -path '*__pycache__*' -print0 | LC_ALL=C sort -z |
        xargs -0 sha256sum | sha256sum | cut -c1-64)
    is_made() { [ -e "$target/manifest.json" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$recipe" ]; }
    ! is_made || return 0
    mkdir -p "$ROOT/engines"
    exec 9>"$ROOT/engines/.lock"
    flock 9
    if ! is_made; then
        need_disk "$ROOT/engines" 1500 "the default package"
        say "making the package $target (a few minutes, once)"
        "$PYTHON" "$ROOT/scripts/make_default_package.py" --out "$target" \
            --cache "$CACHE/wheels" ||
            die "the default package could not be made; the reason stands above"
        printf '%s\n' "$recipe" >"$stamp"
    fi
    exec 9>&-
}

# ensure_int8 PACKAGE: the graph in 8 bits beside the package's own; PYTHON must be set up.
ensure_int8() {
    compgen -G "$1/model.int8.*" >/dev/null && return
    say "adding the graph in 8 bits to $1 (seconds, once)"
    "$PYTHON" "$ROOT/scripts/quantize_package.py" --quick --package "$1" ||
        die "the graph in 8 bits could not be added; the reason stands above"
}

# ensure_binary FEATURES: the binary in BINARY.
ensure_binary() {
    local quiet=(--quiet)
    BINARY="${CARGO_TARGET_DIR:-$ROOT/target}/release/duovec"
    if [ ! -e "$BINARY" ] || [ -n "$(newer_sources)" ]; then
        say "building the release binary (minutes the first time, seconds later)"
        # cargo's progress is one line of a terminal, but hundreds of lines of a file.
        [ ! -t 2 ] || quiet=()
    fi
    (cd "$ROOT" && cargo build --release --locked "${quiet[@]}" --features "$1") ||
        die "the release binary could not be built; the reason stands above"
}

# newer_sources: one that changed since the binary was built, if there is any.
newer_sources() {
    (cd "$ROOT" &&
        find src crates cpp build.rs Cargo.* -newer "$BINARY" -print -quit) 2>/dev/null || true
}

# prepare_load: the Python environment, the default package and the binary of scripts that put load
# on a server; DUOVEC_PACKAGE and DUOVEC_TEST_BINARY name others.
prepare_load() {
    need_tools
    need_cache
    ensure_venv "$ROOT/scripts/requirements.txt" "$ROOT/scripts/requirements-test.txt"
    if [ -z "${DUOVEC_PACKAGE:-}" ]; then
        ensure_package
        export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
    fi
    if [ -z "${DUOVEC_TEST_BINARY:-}" ]; then
        ensure_binary default
        export DUOVEC_TEST_BINARY="$BINARY"
    fi
    export DUOVEC_CACHE_DIR="$CACHE"
}
