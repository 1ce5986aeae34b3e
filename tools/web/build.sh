#!/usr/bin/env bash
# The modules of @trine/web, into its folder: one thread, and several. rustup fetches what the compiler needs.
# Says SKIPPED where rustup cannot; TRINE_WEB=required fails instead.
set -euo pipefail
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
targets=(wasm32-wasip1 wasm32-wasip1-threads)
if ! rustup target add "${targets[@]}"; then
    [ "${TRINE_WEB:-}" != required ] || { echo "error: no standard library for WebAssembly" >&2; exit 1; }
    echo "SKIPPED: the package for browsers was not built: no standard library for WebAssembly" >&2
    exit 0
fi
for wasm in "${targets[@]}"; do
    cargo build --release --locked --target "$wasm"
done
cp "$target/wasm32-wasip1/release/trine_web.wasm" package/trine.wasm
cp "$target/wasm32-wasip1-threads/release/trine_web.wasm" package/trine-threads.wasm
ls -l package/*.wasm
