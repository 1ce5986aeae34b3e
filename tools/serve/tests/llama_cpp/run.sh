#!/bin/sh
# Runs llama.cpp's server tests against rserve: run.sh TESTS [options of pytest]
# TESTS is tools/server/tests of llama.cpp's sources; RSERVE names the program, RSERVE_MODEL the model, RSERVE_ANY_PRECISION one of
# several widths for the tests with drafts. Without options the
# tests of as_is.txt are run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tests=$(cd "$1" && pwd)
shift
RSERVE=$(realpath "$RSERVE")
RSERVE_MODEL=$(realpath "$RSERVE_MODEL")
if [ -n "${RSERVE_ANY_PRECISION:-}" ]; then
    RSERVE_ANY_PRECISION=$(realpath "$RSERVE_ANY_PRECISION")
    export RSERVE_ANY_PRECISION
fi
export RSERVE RSERVE_MODEL LLAMA_SERVER_BIN_PATH="$here/llama-server"
# The tests are as they are; only the file that would download their models is another one. Some of them read templates from
# where they are in llama.cpp's sources, and download a draft model unless a file of its name is there.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
copy="$root/tools/server/tests"
mkdir -p "$copy/tmp"
cp -r "$tests/." "$copy"
ln -s "$tests/../../../models" "$root/models"
: > "$copy/tmp/stories15M-q4_0.gguf"
cp "$here/conftest.py" "$copy/conftest.py"
export LLAMA_SERVER_TESTS="$copy" PYTHONPATH="$copy"
cd "$copy"
if [ $# -eq 0 ]; then
    # One test a line; what stands behind a # is a remark.
    set -- $(sed 's/ *#.*//' "$here/as_is.txt")
fi
python3 -m pytest -q "$@"
