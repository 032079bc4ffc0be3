#!/bin/sh
# Starts duovec where it may add plans to its package: in a copy of the package in the folder PLANS,
# which is made once for each package. The arguments are those of duovec.
set -eu
case ${1:-} in
    "" | -* | help) exec duovec "$@" ;;
esac
digest() { sha256sum <"$DUOVEC_PACKAGE/manifest.json" | cut -c 1-12; }
name=$(digest)
if [ ! -e "$PLANS/$name/manifest.json" ]; then
    # Not named after the host, of which there may be two.
    if ! mine=$(mktemp -d "$PLANS/$name.XXXXXX"); then
        echo "duovec-start: the folder of plans, $PLANS, must belong to user $(id -u):" \
            "chown it on the host, or mount a volume there" >&2
        exit 1
    fi
    trap 'rm -rf "$mine"' EXIT
    chmod 755 "$mine"
    if ! cp -rL "$DUOVEC_PACKAGE/." "$mine"; then
        echo "duovec-start: $DUOVEC_PACKAGE cannot be copied to $PLANS. Where that is full," \
            "remove copies of packages that no start needs; with the time of their last start:" >&2
        (cd "$PLANS" && ls -dltr -- ????????????) >&2 || true
        exit 1
    fi
    # A copy that has its name is trusted ever after.
    if [ "$(digest)" != "$name" ]; then
        echo "duovec-start: $DUOVEC_PACKAGE was replaced while it was copied: start again" >&2
        exit 1
    fi
    # Also after a loss of power.
    sync -f "$mine"
    # Of containers that start at the same time the first one's copy counts.
    mv -T "$mine" "$PLANS/$name" 2>/dev/null || rm -rf "$mine"
fi
# What containers left that were killed while they copied, whatever their package was. The start
# goes on where it cannot be removed.
find "$PLANS" -maxdepth 1 -type d -regextype posix-extended -regex '.*/[0-9a-f]{12}\.[^/]*' \
    -mmin +60 -exec rm -rf {} + || true
DUOVEC_PACKAGE="$PLANS/$name"
# The time of its last start, for who must make room.
touch "$DUOVEC_PACKAGE" 2>/dev/null || true
export DUOVEC_PACKAGE
exec duovec "$@"
