#!/bin/sh
# Starts duovec with the libraries and the model package that came with it, wherever they lie. A
# configuration file names its own; so do the variables, if they are set.
here=$(dirname "$(readlink -f "$0")")/..
case " $* " in
    *" --config"*) ;;
    *)
        if [ -z "${DUOVEC_CONFIG:-}" ]; then
            : "${DUOVEC_OPENVINO_LIBRARY_DIR:=$here/lib/duovec/openvino}"
            : "${DUOVEC_PACKAGE:=$here/share/duovec/multilingual-e5-small}"
            export DUOVEC_OPENVINO_LIBRARY_DIR DUOVEC_PACKAGE
        fi
        ;;
esac
exec "$here/lib/duovec/duovec" "$@"
