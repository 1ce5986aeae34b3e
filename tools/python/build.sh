#!/usr/bin/env bash
# The wheel and its tests, in an environment of its own below tools/python/target, or below CARGO_TARGET_DIR. Says SKIPPED where
# maturin is not at hand: `pip install maturin` puts it there. TRINE_PYTHON=required fails instead. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-target}
env=$target/venv
skip() {
    if [ "${TRINE_PYTHON:-}" = required ]; then
        echo "error: the Python package was not tested: $1" >&2
        exit 1
    fi
    echo "SKIPPED: the Python package was not tested: $1"
    exit 0
}
command -v maturin >/dev/null || skip "maturin is not at hand (pip install maturin)"
command -v python3 >/dev/null || skip "python3 is not at hand"
[ -x "$env/bin/python" ] || python3 -m venv "$env" || skip "python3 has no venv"
"$env/bin/python" -m pip install --quiet mypy numpy pytest || skip "mypy, numpy and pytest cannot be had"
cargo fmt --check
rm -rf "$target/wheels"
maturin build --release --interpreter "$env/bin/python" --out "$target/wheels"
"$env/bin/python" -m pip install --quiet --force-reinstall --no-deps "$target"/wheels/*.whl
# The stubs say what the module has, no more and no less, and the example keeps to them. One class needs lm-eval to be there.
echo trine.lm_eval.TrineLM >"$target/absent"
"$env/bin/python" -m mypy.stubtest --allowlist "$target/absent" --ignore-unused-allowlist trine
"$env/bin/python" -m mypy --strict example.py
"$env/bin/python" -m pytest --quiet tests "$@"
ls -l "$target/wheels"
