#!/bin/sh
# Cargo starts it for each crate of the workspace, with rustc and its arguments: the compiler with
# the lints of clippy. So a build lints too, and nothing is compiled a second time for the lints.
exec clippy-driver "$@" -D warnings
