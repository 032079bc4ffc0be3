# shellcheck shell=bash
# Programs of others that tests run, unpacked in the cache folder where they are not installed.
# Sourced after setup.sh.

# fill_debian PACKAGES...: they and what they need beyond this machine's, unpacked.
fill_debian() {
    local deb
    mkdir -p "$NEW/debs/partial"
    [ "$(id -u)" != 0 ] || apt-get -q update || return
    apt-get -q install --download-only -y --no-install-recommends -o Debug::NoLocking=1 \
        -o Dir::Cache::archives="$NEW/debs" "$@" || return
    for deb in "$NEW"/debs/*.deb; do dpkg -x "$deb" "$NEW" || return; done
    rm -rf "$NEW/debs"
}

# fill_browser: Chromium, and in bin a program that starts it where it was unpacked.
fill_browser() {
    fill_debian chromium || return
    mkdir "$NEW/bin" || return
    cat >"$NEW/bin/chromium" <<'END'
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
for folder in "$root"/usr/lib/*-linux-gnu* "$root"/usr/lib/*/pulseaudio "$root"/lib/*-linux-gnu*
do
    LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
exec "$root/usr/lib/chromium/chromium" "$@"
END
    chmod +x "$NEW/bin/chromium"
    "$NEW/bin/chromium" --version
}

# ensure_cached FOLDER WHAT COMMAND...: that folder of the cache is there, filled by COMMAND, which
# finds it in NEW. Fails, and says why, where WHAT cannot be had.
ensure_cached() {
    local target="$CACHE/$1" what=$2 log="$CACHE/$1.log"
    shift 2
    [ ! -e "$target" ] || return 0
    say "unpacking $what in $target (a minute, once)"
    if ! (made_whole "$target" "$@") >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        say "cannot be had, so their tests will be skipped: $what"
        return 1
    fi
}

# ensure_browser: a Chromium in PATH for the tests of /docs and of the playground: the machine's, or
# Debian's.
ensure_browser() {
    command -v chromium chromium-browser google-chrome >/dev/null && return
    ensure_cached chromium Chromium fill_browser || return 0
    export PATH="$CACHE/chromium/bin:$PATH"
}

# fill_npm PACKAGES...
fill_npm() {
    mkdir -p "$NEW"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$NEW" "$@"
}

# Those of docs/clients.md that run on Node.
NODE_CLIENTS=(openai@7.55.0 ai@7.0.173 @ai-sdk/openai-compatible@3.0.92 @langchain/openai@1.6.0
    @langchain/core@1.2.13)

# ensure_node_clients: their folder in DUOVEC_NODE_CLIENTS.
ensure_node_clients() {
    local folder
    folder="node-clients-$(sha256sum <<<"${NODE_CLIENTS[*]}" | cut -c1-16)"
    ensure_cached "$folder" "clients of Node (with Debian's npm)" fill_npm "${NODE_CLIENTS[@]}" ||
        return 0
    export DUOVEC_NODE_CLIENTS="$CACHE/$folder"
}
