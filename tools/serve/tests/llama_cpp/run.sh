#!/bin/sh
# Runs llama.cpp's server tests against rserve: run.sh TESTS [options of pytest]
# TESTS is tools/server/tests of llama.cpp's sources; RSERVE names the program, RSERVE_MODEL the model. Without options the
# tests of as_is.txt are run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tests=$(cd "$1" && pwd)
shift
RSERVE=$(realpath "$RSERVE")
RSERVE_MODEL=$(realpath "$RSERVE_MODEL")
export RSERVE RSERVE_MODEL LLAMA_SERVER_BIN_PATH="$here/llama-server"
# The tests are as they are; only the file that would download their models is another one.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$tests/." "$copy"
cp "$here/conftest.py" "$copy/conftest.py"
export LLAMA_SERVER_TESTS="$copy" PYTHONPATH="$copy"
cd "$copy"
if [ $# -eq 0 ]; then
    # One test a line; what stands behind a # is a remark.
    set -- $(sed 's/ *#.*//' "$here/as_is.txt")
fi
python3 -m pytest -q "$@"
