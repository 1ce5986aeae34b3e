#!/usr/bin/env bash
# Checks that the programs compile for Windows and macOS and the engine for WebAssembly. Nothing is run or linked.
#
# Says SKIPPED where rustup cannot fetch the standard libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
windows=x86_64-pc-windows-gnu macos=aarch64-apple-darwin wasm=wasm32-wasip1
if ! rustup target add $windows $macos $wasm; then
    printf '\nWindows, macOS, WebAssembly: SKIPPED, nothing was checked: no standard libraries\n\n' >&2
    exit 0
fi
export RUSTFLAGS="-D warnings"
cargo check -p trine-cli -p trine-serve --target $windows --target $macos
cargo check -p trine --target $wasm
