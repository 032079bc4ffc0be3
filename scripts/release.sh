#!/usr/bin/env bash
# Makes what is given to users: an archive that runs wherever it is unpacked, a Debian package, and
# a Python wheel. All have the binary, licences, and the list of parts in CycloneDX. Archive and
# Debian package have OpenVINO's libraries for CPUs and the default model package too, which the
# wheel gets from the package index.
#
#   scripts/release.sh [--tensorrt] [--out FOLDER] [--tag vX.Y.Z]
#
# The default folder is target/release-files. With --tag the versions of Cargo.toml and CHANGELOG.md
# must be the tag's. With --tensorrt the binary can use NVIDIA's TensorRT, which is not among the
# files, and the package has a half-precision graph. DUOVEC_TEST_BINARY names a binary that is built
# already.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/tensorrt.sh"
answer_help "$@"

OUT="$ROOT/target/release-files"
TAG=""
TENSORRT=false
while [ $# -gt 0 ]; do
    case $1 in
        --out | --tag) [ $# -gt 1 ] || die "$1 needs a value" ;;&
        --tensorrt)
            TENSORRT=true
            shift
            continue
            ;;
        --out) OUT=$(realpath -m -- "$2") ;;
        --tag) TAG=$2 ;;
        *) die "unknown argument $1; try --tensorrt, --out FOLDER or --tag vX.Y.Z" ;;
    esac
    shift 2
done
cd "$ROOT"
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
if [ -n "$TAG" ]; then
    [ "$TAG" = "v$VERSION" ] || die "the tag is $TAG, but Cargo.toml has version $VERSION"
    grep -q "^## $VERSION\b" CHANGELOG.md ||
        die "CHANGELOG.md has no section '## $VERSION': give Unreleased its name"
fi

# Of OpenVINO's plugins and readers only those that duovec uses.
OPENVINO_FILES=(libopenvino.so.* libopenvino_c.so.* libopenvino_*_cpu_plugin.so
    libopenvino_onnx_frontend.so.* libopenvino_ir_frontend.so.* libtbb.so.* libtbbmalloc.so.*
    libtbbbind_2_5.so.* libhwloc.so.*)

# fill_tree PREFIX: the files below PREFIX, the same in the archive and in the Debian package.
fill_tree() {
    local tree=$1 file
    mkdir -p "$tree/bin" "$tree/lib/duovec/openvino" "$tree/share/duovec" "$tree/share/doc/duovec"
    install -m 755 "$DUOVEC_TEST_BINARY" "$tree/lib/duovec/duovec"
    strip --strip-debug "$tree/lib/duovec/duovec"
    install -m 755 scripts/lib/release_start.sh "$tree/bin/duovec"
    for file in "${OPENVINO_FILES[@]}"; do
        # shellcheck disable=SC2086  # The version of a library is a pattern.
        cp "$DUOVEC_OPENVINO_LIBRARY_DIR"/$file "$tree/lib/duovec/openvino/"
    done
    ln -s "$(basename "$tree"/lib/duovec/openvino/libopenvino_c.so.*)" \
        "$tree/lib/duovec/openvino/libopenvino_c.so"
    mkdir "$tree/share/duovec/$PACKAGE_NAME"
    cp "$DUOVEC_PACKAGE"/* \
        "$tree/share/duovec/$PACKAGE_NAME/"
    cp LICENSE CHANGELOG.md SECURITY.md "$tree/share/doc/duovec/"
    cp scripts/lib/release_guide.md "$tree/share/doc/duovec/README.md"
    cp -r "$PARTS"/. "$tree/share/doc/duovec/"
}

# fill_debian_files TREE: what a Debian package has beyond the tree in TREE/usr.
fill_debian_files() {
    local tree=$1 libc
    mkdir -p "$tree/DEBIAN" "$tree/etc/duovec" "$tree/usr/lib/systemd/system"
    cp "$tree/usr/share/doc/duovec/LICENSE" "$tree/usr/share/doc/duovec/copyright"
    sed 's#/usr/local/#/usr/#g' deploy/duovec.service >"$tree/usr/lib/systemd/system/duovec.service"
    cat >"$tree/etc/duovec/duovec.toml" <<END
# Settings of the service; \`duovec check --config /etc/duovec/duovec.toml\` prints them all. Where
# this file names no package and no openvino_library_dir, those that came with duovec are taken.
END
    echo /etc/duovec/duovec.toml >"$tree/DEBIAN/conffiles"
    libc=$(objdump -T "$tree/usr/lib/duovec/duovec" | grep -o 'GLIBC_[0-9.]*')
    libc=$(sort -uV <<<"$libc" | tail -n 1)
    cat >"$tree/DEBIAN/control" <<END
Package: duovec
Version: $VERSION
Architecture: $(dpkg --print-architecture)
Maintainer: duovec maintainers <maintainers@duovec.invalid>
Section: net
Priority: optional
Installed-Size: $(du -sk "$tree/usr" | cut -f1)
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, libstdc++6
Description: embedding server, dense and sparse vectors in one pass
 A server with one resident multilingual model, OpenVINO for CPUs, and the model
 multilingual-e5-small.
END
    cat >"$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
END
    cat >"$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now duovec; fi
END
    chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm"
}

# make_wheel TREE: in WORK/wheel/tagged, with the program of TREE.
make_wheel() {
    (cd deploy/wheel &&
        DUOVEC_RELEASE="$1" "$PYTHON" -m hatchling build -t wheel -d "$WORK/wheel") || return
    # The file is named for the oldest glibc that has all that the program asks for.
    PATH="$VENV/bin:$PATH" "$PYTHON" -m auditwheel repair --plat auto --only-plat \
        -w "$WORK/wheel/tagged" "$WORK"/wheel/*.whl
}

if [ "$TENSORRT" = true ] && [ -z "${DUOVEC_TEST_BINARY:-}" ]; then
    need_tools
    ensure_tensorrt
    ensure_binary default,tensorrt
    DUOVEC_TEST_BINARY="$BINARY"
fi
prepare_load
[ "$TENSORRT" = false ] || ensure_fp16 "$DUOVEC_PACKAGE"
mkdir -p "$OUT"
WORK="$OUT/.making-$$"
mkdir "$WORK"
trap 'rm -rf "$WORK"' EXIT
PARTS="$WORK/parts"
PYTHONPATH=scripts "$PYTHON" -m release_parts --out "$PARTS" \
    --openvino "$DUOVEC_OPENVINO_LIBRARY_DIR" ||
    die "the list of parts could not be made; the reason stands above"

NAME="duovec-$VERSION-linux-$(uname -m)"
say "making $NAME.tar.gz"
fill_tree "$WORK/$NAME"
tar -C "$WORK" --owner 0 --group 0 --sort name -c "$NAME" | gzip -1 >"$WORK/$NAME.tar.gz"

say "making the wheel"
make_wheel "$WORK/$NAME" >"$WORK/wheel.log" 2>&1 ||
    die "the wheel could not be made: $(tail -n 1 "$WORK/wheel.log")"
mv "$WORK"/wheel/tagged/*.whl "$WORK/"
WHEEL=$(basename "$WORK"/*.whl)

DEB="duovec_${VERSION}_$(dpkg --print-architecture).deb"
say "making $DEB"
mkdir "$WORK/deb"
mv "$WORK/$NAME" "$WORK/deb/usr"
fill_debian_files "$WORK/deb"
dpkg-deb --root-owner-group -Zzstd -z3 --build "$WORK/deb" "$WORK/$DEB" >/dev/null
MADE=("$NAME.tar.gz" "$DEB" "$WHEEL" SHA256SUMS)
(cd "$WORK" && sha256sum "${MADE[@]::3}" >SHA256SUMS && mv "${MADE[@]}" "$OUT/")
say "$OUT has ${MADE[*]}"
