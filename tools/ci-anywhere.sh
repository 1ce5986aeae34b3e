#!/usr/bin/env bash
# The same bits on other systems: hashes of a bundled model's logits, computed there and here, and tests of formats where
# bytes stand the other way round. What cannot be had is said and skipped.
#
#   bash tools/ci-anywhere.sh            all
#   bash tools/ci-anywhere.sh riscv64    one: aarch64, riscv64, s390x, armv7, windows, node, chromium or firefox
#
# Debian has what it takes: qemu-user-static, gcc-arm-linux-gnueabihf, libc6-dev-armhf-cross, gcc-riscv64-linux-gnu, libc6-dev-riscv64-cross, gcc-s390x-linux-gnu,
# libc6-dev-s390x-cross, wine, gcc-mingw-w64-x86-64, nodejs, chromium, firefox-esr; `rustup toolchain install nightly --component rust-src` and
# `rustup target add x86_64-pc-windows-gnu armv7-unknown-linux-gnueabihf` have the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$PWD/target/anywhere
model=$PWD/testdata/models/trilm-wt-5.8m-F16.gguf
prompt="The game of chess is played by two"
failed=0

skip() { printf '%-8s SKIPPED: %s\n' "$1" "$2"; }
have() { command -v "$1" >/dev/null; }

# The hash of all logits that a program computes.
logits() { "$@" -m "$model" -p "$prompt" -n 0 -t 1 --logits-sha256 2>/dev/null | tr -d '\r' | sha256sum | cut -d' ' -f1; }

# Compares the hash of a program there with that of the program here, which is built once.
compare() {
    local name=$1 here there
    shift
    [ -x "$target/release/rgen" ] || CARGO_TARGET_DIR=$target cargo build --quiet --release -p trine-tools --no-default-features --bin rgen
    here=$(logits "$target/release/rgen")
    there=$(logits "$@") || there=failed
    if [ "$here" = "$there" ]; then
        printf '%-8s equal: %s\n' "$name" "$here"
    else
        printf '%-8s DIFFERS: %s, here %s\n' "$name" "$there" "$here"
        failed=1
    fi
}

# Standard libraries that rustup does not have are built by a nightly compiler from their source.
nightly() {
    [ -d "$(rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ]
}

aarch64() {
    local out
    out=$(bash tools/ci-aarch64.sh 2>&1) || { printf '%s\n' "$out" | tail -20; failed=1; }
    case $out in
        *SKIPPED*) skip aarch64 "$(printf '%s\n' "$out" | grep -m 1 SKIPPED)" ;;
        *) printf '%-8s tools/ci-aarch64.sh: %s\n' aarch64 "$([ $failed = 0 ] && echo passed || echo failed)" ;;
    esac
}

riscv64() {
    nightly || { skip riscv64 "no nightly compiler with rust-src"; return; }
    have riscv64-linux-gnu-gcc || { skip riscv64 "no riscv64-linux-gnu-gcc"; return; }
    have qemu-riscv64-static || { skip riscv64 "no qemu-riscv64-static"; return; }
    CARGO_TARGET_RISCV64GC_UNKNOWN_LINUX_GNU_LINKER=riscv64-linux-gnu-gcc CARGO_TARGET_DIR=$target \
        cargo +nightly build --quiet -Zbuild-std --release --target riscv64gc-unknown-linux-gnu \
        -p trine-tools --no-default-features --bin rgen
    compare riscv64 qemu-riscv64-static -L /usr/riscv64-linux-gnu "$target/riscv64gc-unknown-linux-gnu/release/rgen"
}

# The highest byte first. QEMU before 8.1 multiplies single-precision numbers wrongly where the product is wanted in double
# precision (MDEB): one test adds up squares so, and is left out there.
s390x() {
    nightly || { skip s390x "no nightly compiler with rust-src"; return; }
    have s390x-linux-gnu-gcc || { skip s390x "no s390x-linux-gnu-gcc"; return; }
    have qemu-s390x-static || { skip s390x "no qemu-s390x-static"; return; }
    local out left=()
    case $(qemu-s390x-static --version | head -1) in
        *"version "[1-7].* | *"version 8.0"*) left=(--skip every_stage_and_every_finer_scope_lessens_the_error) ;;
    esac
    if out=$(CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER=s390x-linux-gnu-gcc CARGO_TARGET_DIR=$target \
        CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER="qemu-s390x-static -L /usr/s390x-linux-gnu" \
        cargo +nightly test -Zbuild-std --release --target s390x-unknown-linux-gnu -p trine-formats --lib --tests -- "${left[@]}" 2>&1); then
        printf '%-8s formats: %s tests passed\n' s390x "$(printf '%s\n' "$out" | sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' | paste -sd+ | bc)"
    else
        printf '%s\n' "$out" | tail -20
        failed=1
    fi
}

# Addresses of 32 bits: the formats and, by their definitions, the products of all types.
armv7() {
    rustup target list --installed 2>/dev/null | grep -qx armv7-unknown-linux-gnueabihf || { skip armv7 "no standard library"; return; }
    have arm-linux-gnueabihf-gcc || { skip armv7 "no arm-linux-gnueabihf-gcc"; return; }
    have qemu-arm-static || { skip armv7 "no qemu-arm-static"; return; }
    local out
    if out=$(CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_LINKER=arm-linux-gnueabihf-gcc CARGO_TARGET_DIR=$target \
        CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUNNER="qemu-arm-static -L /usr/arm-linux-gnueabihf" \
        cargo test --release --target armv7-unknown-linux-gnueabihf -p trine-formats -p trine-kernels --lib --tests 2>&1); then
        printf '%-8s formats and kernels: %s tests passed\n' armv7 "$(printf '%s\n' "$out" | sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' | paste -sd+ | bc)"
    else
        printf '%s\n' "$out" | tail -20
        failed=1
    fi
}

windows() {
    rustup target list --installed 2>/dev/null | grep -qx x86_64-pc-windows-gnu || { skip windows "no standard library"; return; }
    have x86_64-w64-mingw32-gcc || { skip windows "no x86_64-w64-mingw32-gcc"; return; }
    have wine || { skip windows "no wine"; return; }
    CARGO_TARGET_DIR=$target cargo build --quiet --release --target x86_64-pc-windows-gnu \
        -p trine-tools --no-default-features --bin rgen
    # Wine before 9 has no bcryptprimitives.dll, of which Rust's standard library wants one function: random bytes.
    cat >"$target/prng.c" <<'END'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL ProcessPrng(PBYTE out, SIZE_T n) { return SystemFunction036(out, (ULONG)n); }
END
    x86_64-w64-mingw32-gcc -shared -o "$target/x86_64-pc-windows-gnu/release/bcryptprimitives.dll" "$target/prng.c" -ladvapi32
    export WINEPREFIX=$target/wine WINEDEBUG=-all
    compare windows wine "$target/x86_64-pc-windows-gnu/release/rgen.exe"
}

# The package for browsers, in one of them or in Node.js: files of many types, at one thread and several.
web() {
    have node || { skip "$1" "no node"; return; }
    local out
    if ! out=$(CARGO_TARGET_DIR=$target bash tools/web/test.sh "$1" 2>&1); then
        printf '%s\n' "$out" | tail -20
        printf '%-8s DIFFERS\n' "$1"
        failed=1
        return
    fi
    case $out in
        *SKIPPED*) skip "$1" "$(printf '%s\n' "$out" | grep -m 1 SKIPPED | sed 's/.*SKIPPED: //')" ;;
        *) printf '%-8s equal: %s models and settings\n' "$1" "$(printf '%s\n' "$out" | grep -c ' equal$')" ;;
    esac
}

for system in ${1:-aarch64 riscv64 s390x armv7 windows node chromium firefox}; do
    case $system in
        aarch64 | riscv64 | s390x | armv7 | windows) "$system" ;;
        node | chromium | firefox) web "$system" ;;
        *) echo "error: '$system' is none of aarch64, riscv64, s390x, armv7, windows, node, chromium, firefox" >&2; exit 2 ;;
    esac
done
exit $failed
