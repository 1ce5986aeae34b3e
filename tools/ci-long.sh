#!/usr/bin/env bash
# Proofs that take long: models of the pool, Miri, sanitizers, fuzzing. A part whose tools are missing prints SKIPPED and why.
#
#     bash tools/ci-long.sh               # all parts
#     bash tools/ci-long.sh loom tsan     # some of them
#
# loom      every model of compat-tests/pool-models, and faults that they have to find
# miri      undefined behaviour in the pool, in the formats, in programs, in steps of a toy model, and in products of gradients
# tsan      data races in the pool's tests
# asan      memory errors in the kernels' tests, with every instruction set that the processor has
# fuzz      every fuzz target, TRINE_FUZZ_HOURS in all (1)
# deny      licences, sources and versions by cargo-deny
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
long=$root/target/long
# Programs are compiled for the machine by name, so that flags reach them and no build script.
machine=$(rustc -vV | sed -n 's/^host: //p')

skipped() {
  echo "SKIPPED: $1: $2"
}

nightly() {
  rustc +nightly --version >/dev/null 2>&1
}

# True if nightly has the sources of the standard library, which sanitizers compile with their flags.
sources() {
  nightly && [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]
}

# The pool as a crate of its own: it needs nothing but the standard library, and so do its tests.
pool() {
  mkdir -p "$long/pool/src"
  printf '[package]\nname = "pool"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >"$long/pool/Cargo.toml"
  printf '#![allow(missing_docs)]\n#[path = "%s/src/pool/mod.rs"]\npub mod pool;\n' "$root" >"$long/pool/src/lib.rs"
}

part_loom() {
  (cd compat-tests/pool-models && CARGO_TARGET_DIR=$root/target/models cargo test --release -- --nocapture --test-threads 1)
  bash compat-tests/pool-models/faults.sh
}

part_miri() {
  if ! cargo +nightly miri --version >/dev/null 2>&1; then
    skipped miri "rustup toolchain install nightly --component miri,rust-src"
    return
  fi
  pool
  # The clock is read, which Miri's own would not let pass.
  (cd "$long/pool" && MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib --target-dir "$root/target/miri")
  MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib -p trine-formats --target-dir "$root/target/miri" -- \
    anyprec::canonical anyprec::parts
  # The smallest choice of features: Miri compiles all that they need.
  # crossbeam, on which rayon stands, holds to the rules of Tree Borrows alone, and rayon's threads outlive the tests.
  MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks" RAYON_NUM_THREADS=2 \
    cargo +nightly miri test --lib -p trine --no-default-features --target-dir "$root/target/miri" -- \
    program:: exec:: step::tests
}

part_tsan() {
  if ! sources; then
    skipped tsan "rustup toolchain install nightly --component rust-src"
    return
  fi
  pool
  (cd "$long/pool" && RUSTFLAGS=-Zsanitizer=thread cargo +nightly test --release --lib -Zbuild-std --target "$machine" \
    --target-dir "$root/target/tsan")
}

part_asan() {
  if ! nightly; then
    skipped asan "rustup toolchain install nightly"
    return
  fi
  # Memory that lives to the end is no fault.
  ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address cargo +nightly test --release --lib -p trine-kernels \
    --target "$machine" --target-dir "$root/target/asan"
}

part_fuzz() {
  if ! nightly; then
    skipped fuzz "rustup toolchain install nightly"
    return
  fi
  cargo xtask fuzz "${TRINE_FUZZ_HOURS:-1}"
}

part_deny() {
  if ! cargo deny --version >/dev/null 2>&1; then
    skipped deny "cargo install cargo-deny; the tests of tools/xtask hold the lists of deny.toml without it"
    return
  fi
  cargo deny --all-features check licenses sources bans
}

parts=("$@")
[ $# -gt 0 ] || parts=(loom miri tsan asan fuzz deny)
for part in "${parts[@]}"; do
  if ! declare -F "part_$part" >/dev/null; then
    echo "$0: there is no part '$part': loom, miri, tsan, asan, fuzz, deny" >&2
    exit 2
  fi
done
for part in "${parts[@]}"; do
  echo "== $part"
  "part_$part"
done
