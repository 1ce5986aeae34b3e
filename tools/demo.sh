#!/usr/bin/env bash
# The main job on the bundled ternary model: quantize it without loss, generate, measure.
# Builds the tools first. Needs nothing but a Rust toolchain; writes to target/demo.
set -euo pipefail
cd "$(dirname "$0")/.."

# `--workspace`: what is built here is what `cargo test --release --workspace` needs, and not built again there.
cargo build --release --workspace --bin rquantize --bin rgen --bin rperplexity
bin=target/release
model=testdata/models/trilm-wt-5.8m-F16.gguf
out=target/demo/trilm-TQ2_0.gguf
mkdir -p target/demo

run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

run $bin/rquantize "$model" "$out" TQ2_0
run $bin/rgen -m "$out" -p "The game" -n 40 --temp 0
run $bin/rperplexity -m "$out" -f testdata/wikitext-2/wiki.test.raw --chunks 20
