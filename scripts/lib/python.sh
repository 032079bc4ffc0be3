#!/usr/bin/env bash
# Runs Python in an environment that has the packages of the lists, and makes it where it is not
# there yet: lib/python.sh LIST... -- ARGUMENTS OF PYTHON. The Python commands start it themselves.
# Those that put load on a server name --load in place of the lists, and get package and binary too.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

lists=()
while [ "$1" != -- ]; do
    lists+=("$1")
    shift
done
shift
if [ "${lists[*]}" = --load ]; then
    prepare_load
else
    need_python
    need_cache
    ensure_venv "${lists[@]}"
fi
exec "$PYTHON" "$@"
