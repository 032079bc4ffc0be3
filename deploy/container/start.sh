#!/bin/sh
# Starts duovec where it may add plans to its package: in a copy of the package in the folder PLANS,
# which is made once for each package. The arguments are those of duovec.
set -eu
name=$(sha256sum <"$DUOVEC_PACKAGE/manifest.json" | cut -c 1-12)
if [ ! -e "$PLANS/$name/manifest.json" ]; then
    mine="$PLANS/$name.$(hostname)"
    rm -rf "$mine"
    cp -rL "$DUOVEC_PACKAGE" "$mine"
    # Of containers that start at the same time the first one's copy counts.
    mv -T "$mine" "$PLANS/$name" 2>/dev/null || rm -rf "$mine"
fi
DUOVEC_PACKAGE="$PLANS/$name"
export DUOVEC_PACKAGE
exec duovec "$@"
