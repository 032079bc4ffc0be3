# shellcheck shell=bash
# shellcheck disable=SC2034  # EMULATOR is for the scripts that source this one
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

# start_unpacked PROGRAM NAME: in bin a program of that name that starts PROGRAM, which was
# unpacked, with the libraries that were.
start_unpacked() {
    mkdir -p "$NEW/bin" || return
    cat >"$NEW/bin/$2" <<END || return
#!/bin/sh
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
for folder in "\$root"/usr/lib/*-linux-gnu* "\$root"/usr/lib/*/pulseaudio "\$root"/lib/*-linux-gnu*
do
    LD_LIBRARY_PATH="\$folder\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
exec "\$root/$1" "\$@"
END
    chmod +x "$NEW/bin/$2"
    "$NEW/bin/$2" --version
}

# fill_browser: Chromium, and in bin a program that starts it where it was unpacked.
fill_browser() {
    fill_debian chromium || return
    start_unpacked usr/lib/chromium/chromium chromium
}

# ensure_cached FOLDER WHAT COMMAND...: that folder of the cache is there, filled by COMMAND, which
# finds it in NEW. Fails, and says why, where WHAT cannot be had.
ensure_cached() {
    local log="$CACHE/$1.log"
    (made_once "$CACHE/$1" 0 "$2" "${@:3}") >"$log" 2>&1 && return
    tail -n 5 "$log" >&2
    say "cannot be had, so their tests will be skipped: $2"
    return 1
}

# ensure_browser: a Chromium in PATH for the tests of /docs and of the playground: the machine's, or
# Debian's.
ensure_browser() {
    command -v chromium chromium-browser google-chrome >/dev/null && return
    ensure_cached chromium Chromium fill_browser || return 0
    export PATH="$CACHE/chromium/bin:$PATH"
}

# fill_arm64_compiler: a cross compiler, and in bin programs that start it.
fill_arm64_compiler() {
    local tool
    fill_debian g++-aarch64-linux-gnu || return
    # Its script for the linker names the places of an installed library.
    sed -i 's# /usr/aarch64-linux-gnu/lib/# #g' "$NEW/usr/aarch64-linux-gnu/lib/libc.so" || return
    for tool in gcc g++ ar; do
        start_unpacked "usr/bin/aarch64-linux-gnu-$tool" "aarch64-linux-gnu-$tool" || return
    done
}

# fill_arm64_emulator: the one that needs no libraries, which a variable would have to name: the
# programs in the emulator would look there too.
fill_arm64_emulator() {
    fill_debian qemu-user-static || return
    mkdir "$NEW/bin" || return
    mv "$NEW/usr/bin/qemu-aarch64-static" "$NEW/bin/" || return
    rm -rf "${NEW:?}/usr" || return
    "$NEW/bin/qemu-aarch64-static" --version
}

# ensure_arm64: a compiler for arm64 and an emulator in PATH, the machine's or Debian's; the
# emulator's name in EMULATOR.
ensure_arm64() {
    if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
        ensure_cached arm64-compiler "a compiler for arm64" fill_arm64_compiler || return
        export PATH="$CACHE/arm64-compiler/bin:$PATH"
    fi
    EMULATOR=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) && return
    ensure_cached arm64-emulator "an emulator of arm64" fill_arm64_emulator || return
    EMULATOR="$CACHE/arm64-emulator/bin/qemu-aarch64-static"
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
