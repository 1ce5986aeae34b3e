#!/usr/bin/env bash
# Lints and tests the crates for aarch64-unknown-linux-gnu on an x86-64 Debian machine; the tests run in emulation.
#
#   bash tools/ci-aarch64.sh                  what .ci/run runs: lints, formats, kernels on three processors, a model's hashes
#   bash tools/ci-aarch64.sh --all            that, and whole models of every type, as tests/engine has them
#   bash tools/ci-aarch64.sh --cpu NAME ARGS  `cargo test --release ARGS` on one emulated processor
#   bash tools/ci-aarch64.sh --run CMD ARGS   a command in the environment of the cross compiler
#
# Compiler, linker and emulator are unpacked into target/aarch64; nothing is installed, and root is not needed.
# What cannot be had is said and skipped; with TRINE_AARCH64=required that is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
home=$PWD/target/aarch64
root=$home/root
log=$home/log

skip() {
    printf '\naarch64: SKIPPED, nothing was checked: %s\n\n' "$1" >&2
    [ "${TRINE_AARCH64:-}" != required ] || exit 1
    exit 0
}

# Package lists of both architectures in a place of our own: the system's apt learns of no other architecture.
apt() { APT_CONFIG=$home/apt.conf "$@"; }

# The first package that `$1` depends on and whose name is `$2`.
needs() {
    apt apt-cache depends --no-recommends --no-suggests "$1" | sed -n "s/^ *Depends: \($2\)$/\1/p" | head -1
}

# Packages with all that they depend on, but for the C library of this machine.
with_libraries() {
    apt apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
        grep -E '^[a-z][a-z0-9.+-]*$' | grep -vxE 'libc6|libc-bin|libcrypt1|debconf|dpkg|tar|perl-base'
}

unpack_toolchain() {
    [ "$(uname -sm)" = "Linux x86_64" ] || skip "the packages are for Linux on x86-64"
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "no apt-get"
    mkdir -p "$home"/apt/{lists,archives}/partial
    touch "$home/apt/status"
    cat >"$home/apt.conf" <<END
Dir::State "$home/apt";
Dir::State::status "$home/apt/status";
Dir::Cache "$home/apt";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "";
END
    apt apt-get update >"$log" 2>&1 || skip "no package lists (see $log)"
    # The compiler and its library in exactly one version; the library exists for ARM too.
    local std=libstd-rust-web-dev version shared gcc
    version=$(apt apt-cache policy $std:arm64 | sed -n 's/^ *Candidate: //p')
    [ -n "$version" ] && [ "$version" != "(none)" ] || skip "no package $std for arm64"
    shared=$(needs "$std=$version" 'libstd-rust-web-[0-9.]*')
    gcc=$(needs gcc-aarch64-linux-gnu 'gcc-[0-9]*-aarch64-linux-gnu')
    [ -n "$shared" ] && [ -n "$gcc" ] || skip "no package of the compiler's library or of the linker"
    echo "aarch64: fetching rustc $version and $gcc into $root"
    rm -rf "$root" "$home/deb"
    mkdir -p "$root" "$home/deb"
    # shellcheck disable=SC2046
    (cd "$home/deb" && apt apt-get download "$std:arm64=$version" \
        rustc-web="$version" rust-web-clippy="$version" "$shared=$version" $std="$version" "$gcc" \
        "$(needs "$gcc" 'libgcc-[0-9]*-dev-arm64-cross')" libgcc-s1-arm64-cross \
        $(with_libraries "$(needs "$shared=$version" 'libllvm[0-9]*')" binutils-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user) \
    ) >>"$log" 2>&1 || skip "packages could not be fetched (see $log)"
    for deb in "$home"/deb/*.deb; do dpkg-deb -x "$deb" "$root"; done
    rm -rf "$home/deb"
    # The linker's scripts of the C library name files by their place in an installed system.
    sed -i "s|/usr/aarch64-linux-gnu|$root/usr/aarch64-linux-gnu|g" "$root"/usr/aarch64-linux-gnu/lib/{libc,libm}.so
    touch "$home/ready"
}

[ -e "$home/ready" ] || unpack_toolchain

# Never in target/ itself: another compiler would build everything again, and again for the next x86 build.
export CARGO_TARGET_DIR=$home/build CARGO_BUILD_TARGET=$target
export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
export RUSTC=$root/usr/bin/rustc RUSTDOC=$root/usr/bin/rustdoc
linker=("$root"/usr/bin/aarch64-linux-gnu-gcc-[0-9]*)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=${linker[0]}
unset CARGO_ENCODED_RUSTFLAGS RUSTFLAGS RUSTC_WRAPPER
CARGO=$(rustup which cargo 2>/dev/null || command -v cargo)
export CARGO

# Programs run on the emulated processor `$1`.
processor() {
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$root/usr/bin/qemu-aarch64 -L $root/usr/aarch64-linux-gnu -cpu $1"
}

# Without arguments about crates, those whose bits are compared. Crates of others are compiled with little
# optimization: no time is spent in them.
tests() {
    "$CARGO" test --release --config 'profile.release.package."*".opt-level=1' "$@"
}

# `cargo clippy` would take another compiler's driver; the packaged one is called directly.
lint() {
    "$root/usr/bin/cargo-clippy" clippy --all-targets "$@" -- -D warnings
}

processor max
if [ "${1:-}" = --run ]; then
    shift
    exec "$@"
fi
if [ "${1:-}" = --cpu ]; then
    processor "$2"
    shift 2
    tests "$@"
    exit
fi

"$RUSTC" --version
lint -p trine-formats -p trine-kernels
tests -p trine-formats --lib
# With SMMLA; without it; and without SDOT. Encoders of every type are minutes of emulation for the definition itself.
for cpu in max neoverse-n1 cortex-a72; do
    processor $cpu
    tests -p trine-kernels --lib -- --skip encoders_give_the_bytes
done
# The logits of whole models have the hashes that were recorded on x86-64.
processor max
tests -p trine --test engine -- LOGITS
if [ "${1:-}" = --all ]; then
    lint -p trine -p trine-tools
    tests -p trine-kernels --lib encoders_give_the_bytes
    for cpu in max neoverse-n1 cortex-a72; do
        processor $cpu
        tests -p trine --test engine -- logits::
    done
fi
