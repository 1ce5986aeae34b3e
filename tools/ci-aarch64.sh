#!/usr/bin/env bash
# Lints and tests the crates for aarch64-unknown-linux-gnu on an x86-64 Debian machine; the tests run in emulation.
#
#   bash tools/ci-aarch64.sh                  what .ci/run runs: lints, formats, kernels on three processors, a model's hashes
#   bash tools/ci-aarch64.sh --all            that, the other types, the engine's tests of logits, lints of all crates
#   bash tools/ci-aarch64.sh --cpu NAME ARGS  `cargo test --release ARGS` on one emulated processor
#   bash tools/ci-aarch64.sh --run CMD ARGS   a command in the environment of the cross compiler
#   bash tools/ci-aarch64.sh --count TYPE...  instructions of products of packed rows, by instruction set
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

emulator=("$root/usr/bin/qemu-aarch64" -L "$root/usr/aarch64-linux-gnu")

# Programs run on the emulated processor `$1`.
processor() {
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="${emulator[*]} -cpu $1"
}

# Crates of others are compiled with little optimization: no time is spent in them.
release() {
    "$CARGO" "$1" --release --config 'profile.release.package."*".opt-level=1' "${@:2}"
}

# `cargo clippy` would take another compiler's driver; the packaged one is called directly.
lint() {
    "$root/usr/bin/cargo-clippy" clippy --all-targets "$@" -- -D warnings
}

# The programs for this machine, if `cargo test` has not left them in target/release.
native() {
    [ ! -x target/release/rquantize ] || [ ! -x target/release/examples/logits ] || return 0
    env -u RUSTC -u RUSTDOC -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET -u LD_LIBRARY_PATH \
        "$CARGO" build --release --workspace --bin rquantize --example logits
}

# The hashes that `examples/logits` prints for the type `$1` of the bundled model: of the program for this machine and of
# the one for ARM on the processors `$2`...
same_hashes() {
    local type=$1 model=$PWD/testdata/models/trilm-wt-5.8m-F16.gguf file=$home/models/$1.gguf cpu
    [ "$type" != F16 ] || file=$model
    [ -e "$file" ] || target/release/rquantize "$model" "$file" "$type" >>"$log" 2>&1
    target/release/examples/logits "$file" >"$home/models/$type.x86-64"
    for cpu in "${@:2}"; do
        "${emulator[@]}" -cpu "$cpu" "$CARGO_TARGET_DIR/$target/release/examples/logits" "$file" >"$home/models/$type.$cpu"
        if ! diff "$home/models/$type.x86-64" "$home/models/$type.$cpu"; then
            echo "aarch64: logits of $type on $cpu are not those of x86-64" >&2
            exit 1
        fi
        echo "aarch64: logits of $type on $cpu have the hashes of x86-64"
    done
}

# Weights times activations for each instruction of a product of 2048 columns, with one token and with 16, for the types
# that are named. What is done once is taken off: the difference of two runs counts.
count() {
    local plugin=$home/count.so program=$CARGO_TARGET_DIR/$target/release/examples/product
    env -u LD_LIBRARY_PATH cc -O2 -shared -fPIC -o "$plugin" tools/aarch64-count.c
    release build -p trine-kernels --example product
    local type tokens isa rounds instructions products
    for type in "$@"; do
        for tokens in 1 16; do
            for isa in scalar neon dotprod i8mm; do
                instructions=() products=()
                for rounds in 1 3; do
                    products+=("$(TRINE_ISA=$isa "${emulator[@]}" -cpu max -plugin "$plugin" "$program" "$type" 2048 $tokens $rounds 2>"$home/count")")
                    instructions+=("$(cat "$home/count")")
                done
                awk -v what="$type, $tokens tokens, $isa" -v products=$((products[1] - products[0])) \
                    -v instructions=$((instructions[1] - instructions[0])) 'BEGIN { printf "%-32s %6.2f\n", what, products / instructions }'
            done
        done
    done
}

processor max
case "${1:-}" in
--run)
    shift
    exec "$@"
    ;;
--count)
    shift
    count "$@"
    exit
    ;;
--cpu)
    processor "$2"
    shift 2
    release test "$@"
    exit
    ;;
esac

"$RUSTC" --version
lint -p trine-formats -p trine-kernels
release test -p trine-formats --lib
# Where there is SMMLA; where there is SDOT but not that; and where there is neither. What compares the definition with
# itself, which takes minutes of emulation, is left out: encoders, and kernels for rows as a file has them.
for cpu in max neoverse-n1 cortex-a72; do
    processor $cpu
    release test -p trine-kernels --lib -- --skip encoders_give_the_bytes --skip tests::kernels_give_the_bits_of_dot_ref
done
native
release build -p trine --example logits
rm -rf "$home/models"
mkdir -p "$home/models"
for type in F16 TQ2_0 Q4_0; do
    same_hashes $type max neoverse-n1 cortex-a72
done
if [ "${1:-}" = --all ]; then
    for type in BF16 TQ1_0 I2_S Q8_0 Q4_1 Q5_0 Q5_1 IQ4_NL Q2_K Q3_K_M Q4_K_M Q5_K_M Q6_K; do
        same_hashes $type max neoverse-n1 cortex-a72
    done
    processor max
    lint -p trine -p trine-tools
    release test -p trine-kernels --lib -- encoders_give_the_bytes tests::kernels_give_the_bits_of_dot_ref
    release test -p trine --test engine -- logits::
fi
