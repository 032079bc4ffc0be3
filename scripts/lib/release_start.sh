#!/bin/sh
# Starts duovec with the libraries and the model package that came with it, wherever they lie,
# unless a flag, a variable or the configuration file names others.
here=$(dirname "$(readlink -f "$0")")/..
DUOVEC_DEFAULT_OPENVINO_LIBRARY_DIR=$here/lib/duovec/openvino
DUOVEC_DEFAULT_PACKAGE=$here/share/duovec/multilingual-e5-small
export DUOVEC_DEFAULT_OPENVINO_LIBRARY_DIR DUOVEC_DEFAULT_PACKAGE
exec "$here/lib/duovec/duovec" "$@"
