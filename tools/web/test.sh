#!/usr/bin/env bash
# The package for browsers against rgen: hashes of logits, texts, errors, the cache.
#
#   bash tools/web/test.sh                          in Node.js
#   bash tools/web/test.sh node chromium firefox    there, and in browsers without a screen
#   bash tools/web/test.sh kernels                  kernels against their definitions, on random bytes, in Node.js
#
# Debian has chromium and firefox-esr. Says SKIPPED where something is not at hand. TRINE_BIN is a folder with rgen and rquantize; without
# it they are built. TRINE_WEB_BUILT=1 takes the modules that tools/web/build.sh has left.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/tools/web/target}
models=$target/web-models
# Packed products and sums of half floats: what has kernels of its own. The definitions need no test in another language.
kernels() {
    local runner="node --no-warnings $PWD/tools/web/run.mjs"
    RUSTFLAGS="-C target-feature=+simd128" CARGO_TARGET_DIR=$target CARGO_TARGET_WASM32_WASIP1_RUNNER=$runner \
        cargo test --quiet --release --target wasm32-wasip1 -p trine-kernels --lib -- --test-threads=1 packed:: halves:: isa::
}

command -v node >/dev/null || { echo "SKIPPED: the package for browsers was not tested: no node"; exit 0; }
if [ "${1:-}" = kernels ]; then
    kernels
    shift
    [ $# -gt 0 ] || exit 0
fi
[ -n "${TRINE_WEB_BUILT:-}" ] || bash tools/web/build.sh
[ -f tools/web/package/trine-threads.wasm ] || exit 0
if [ -z "${TRINE_BIN:-}" ]; then
    CARGO_TARGET_DIR=$target cargo build --quiet --release -p trine-tools --no-default-features --bin rgen --bin rquantize
    TRINE_BIN=$target/release
fi
if (cd tools/web && npm install --no-audit --no-fund --no-package-lock --silent) >/dev/null 2>&1; then
    tools/web/node_modules/.bin/tsc -p tools/web/tests
    echo "types: as a program uses them"
else
    echo "types: not read, npm cannot fetch TypeScript"
fi
mkdir -p "$models"
model=testdata/models/trilm-wt-5.8m-F16.gguf
cp $model "$models/"
for type in TQ2_0 TQ1_0 Q8_0 Q4_0 Q4_K_M Q5_K_M Q6_K Q3_K_M AP3-8; do
    [ -f "$models/$type.gguf" ] || "$TRINE_BIN/rquantize" $model "$models/$type.gguf" "$type" >/dev/null 2>&1
done
node tools/web/tests/expect.mjs "$TRINE_BIN/rgen" "$models"
cp tools/web/tests/page.html "$models/"
failed=0
for where in "${@:-node}"; do
    program=$where
    [ "$where" != firefox ] || program=firefox-esr
    command -v "$program" >/dev/null || { echo "$where SKIPPED: no $program"; continue; }
    timeout 1200 node tools/web/tests/main.mjs "$models" "$where" | sed "s/^/$where: /" || failed=1
done
exit $failed
