#!/usr/bin/env bash
# The wheel and its tests. Needs python3 with venv, and maturin in PATH or one that pip can have; says SKIPPED without.
set -euo pipefail
cd "$(dirname "$0")"
env=target/venv
skip() {
    echo "SKIPPED: $1"
    exit 0
}
command -v python3 >/dev/null || skip "python3 is not there"
[ -x $env/bin/python ] || python3 -m venv $env || skip "python3 has no venv"
$env/bin/python -m pip install --quiet numpy pytest || skip "numpy and pytest cannot be had"
maturin=$(command -v maturin || true)
if [ -z "$maturin" ]; then
    $env/bin/python -m pip install --quiet maturin || skip "maturin cannot be had"
    maturin=$env/bin/maturin
fi
rm -rf target/wheels
"$maturin" build --release --locked --interpreter $env/bin/python --out target/wheels
$env/bin/python -m pip install --quiet --force-reinstall --no-deps target/wheels/*.whl
$env/bin/python -m pytest --quiet tests "$@"
ls -l target/wheels
