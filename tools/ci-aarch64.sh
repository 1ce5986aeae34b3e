#!/usr/bin/env bash
# Lints and tests the crates for aarch64-unknown-linux-gnu on an x86-64 Debian machine; the tests run in emulation.
#
#   bash tools/ci-aarch64.sh                  what .ci/run runs: lints, formats, kernels on two processors, hashes of a model on three
#   bash tools/ci-aarch64.sh --all            that, kernels on a third, the other types, the engine's tests of logits, lints of all crates
#   bash tools/ci-aarch64.sh --cpu NAME ARGS  `cargo test --release ARGS` on one emulated processor
#   bash tools/ci-aarch64.sh --run CMD ARGS   a command in the environment of the cross compiler
#   bash tools/ci-aarch64.sh --count TYPE...  weights for each instruction of products of packed rows, by instruction set
#   bash tools/ci-aarch64.sh --count-encoders TYPE...  instructions for each value encoded, definition and NEON
#   bash tools/ci-aarch64.sh --count-ggml DIR TYPE...  as --count, of ggml's products; DIR is llama.cpp's source
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

# Fetches packages and unpacks them into the root.
unpack() {
    rm -rf "$home/deb"
    mkdir -p "$root" "$home/deb"
    (cd "$home/deb" && apt apt-get download "$@") >>"$log" 2>&1 || skip "packages could not be fetched (see $log)"
    for deb in "$home"/deb/*.deb; do dpkg-deb -x "$deb" "$root"; done
    rm -rf "$home/deb"
}

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
    rm -rf "$root"
    # shellcheck disable=SC2046
    unpack "$std:arm64=$version" \
        rustc-web="$version" rust-web-clippy="$version" "$shared=$version" $std="$version" "$gcc" \
        "$(needs "$gcc" 'libgcc-[0-9]*-dev-arm64-cross')" libgcc-s1-arm64-cross \
        $(with_libraries "$(needs "$shared=$version" 'libllvm[0-9]*')" binutils-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
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

# The plugin that counts, for the emulator.
plugin=$home/count.so
build_plugin() {
    env -u LD_LIBRARY_PATH cc -O2 -shared -fPIC -o "$plugin" tools/aarch64-count.c
}

# `OF PER` of a program's rounds: what it says to have done, and the instructions it took. The command is given without its
# number of rounds. What is done once is taken off: the difference of two runs counts.
done_and_instructions() {
    local rounds instructions=() units=()
    for rounds in 1 3; do
        units+=("$("${emulator[@]}" -cpu max -plugin "$plugin" "$@" $rounds 2>"$home/count")")
        instructions+=("$(cat "$home/count")")
    done
    echo $((units[1] - units[0])) $((instructions[1] - instructions[0]))
}

# Weights times activations for each instruction of a product of 2048 columns, with one token and with 16, for the types
# that are named.
count() {
    local program=$CARGO_TARGET_DIR/$target/release/examples/product type tokens isa
    build_plugin
    release build -p trine-kernels --example product
    for type in "$@"; do
        for tokens in 1 16; do
            for isa in scalar neon dotprod i8mm; do
                TRINE_ISA=$isa done_and_instructions "$program" "$type" 2048 $tokens |
                    awk -v what="$type, $tokens tokens, $isa" '{ printf "%-32s %6.2f\n", what, $1 / $2 }'
            done
        done
    done
}

# The compilers of C and C++, of the linker's version.
unpack_c_compiler() {
    local version=${linker[0]##*-} gxx
    gxx=g++-$version-aarch64-linux-gnu
    echo "aarch64: fetching $gxx into $root"
    # shellcheck disable=SC2046
    unpack "$gxx" $(with_libraries "cpp-$version-aarch64-linux-gnu") \
        "$(needs "$gxx" "libstdc++-$version-dev-arm64-cross")" libstdc++6-arm64-cross
}

# What `count` counts, of the products of ggml's processor backend in llama.cpp's source `$1`, compiled for three kinds of
# processors, all without SVE.
count_ggml() {
    local ggml=$1/ggml/src version=${linker[0]##*-} program=$home/ggml-product objects=$home/ggml type tokens isa
    [ -e "$ggml/ggml-cpu/arch/arm/repack.cpp" ] || {
        echo "aarch64: $1 is no folder of llama.cpp's source: ggml/src/ggml-cpu/arch/arm/repack.cpp is not there" >&2
        exit 1
    }
    [ -e "$root/usr/lib/gcc-cross/aarch64-linux-gnu/$version/cc1plus" ] || unpack_c_compiler
    build_plugin
    mkdir -p "$objects"
    declare -A march=([neon]=armv8-a [dotprod]=armv8.2-a+fp16+dotprod [i8mm]=armv8.2-a+fp16+dotprod+i8mm)
    for isa in neon dotprod i8mm; do
        # As CMake compiles a release; what the products do not reach is left out by the linker, with all that it asks for.
        local options=(-O3 -DNDEBUG -w "-march=${march[$isa]}" -ffunction-sections -fdata-sections
            "-I$1/ggml/include" "-I$ggml" "-I$ggml/ggml-cpu")
        "${linker[0]}" "${options[@]}" -c "$ggml/ggml-cpu/quants.c" -o "$objects/generic.o"
        "${linker[0]}" "${options[@]}" -c "$ggml/ggml-cpu/arch/arm/quants.c" -o "$objects/quants.o"
        "${linker[0]/gcc/g++}" "${options[@]}" -std=c++17 -c "$ggml/ggml-cpu/arch/arm/repack.cpp" -o "$objects/repack.o"
        "${linker[0]/gcc/g++}" "${options[@]}" -std=c++17 -c "$ggml/ggml-cpu/vec.cpp" -o "$objects/vec.o"
        "${linker[0]}" "${options[@]}" -Wl,--gc-sections tools/aarch64-ggml.c "$objects"/*.o -lm -o "$program-$isa"
    done
    for type in "${@:2}"; do
        for tokens in 1 16; do
            for isa in neon dotprod i8mm; do
                done_and_instructions "$program-$isa" "$type" $tokens |
                    awk -v what="$type, $tokens tokens, $isa" '{ printf "%-32s %6.2f\n", what, $1 / $2 }'
            done
        done
    done
}

# Instructions for each value of a row of 8192 that is encoded without importance, for the types that are named.
count_encoders() {
    local program=$CARGO_TARGET_DIR/$target/release/examples/encode type isa
    build_plugin
    release build -p trine-kernels --example encode
    for type in "$@"; do
        for isa in scalar neon; do
            TRINE_ISA=$isa done_and_instructions "$program" "$type" 8192 |
                awk -v what="$type, $isa" '{ printf "%-32s %8.2f\n", what, $2 / $1 }'
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
--count-ggml)
    shift
    count_ggml "$@"
    exit
    ;;
--count-encoders)
    shift
    count_encoders "$@"
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
# Where there is SMMLA, and the kernels without it are tested too; with --all, where there is SDOT but not that; and where there
# is neither. What takes minutes of emulation is left out: encoders that search, and kernels for rows as a file has them, where
# the definition is compared with itself. The other encoders need nothing beyond NEON and are tested where there is nothing else.
processors=(max cortex-a72)
[ "${1:-}" != --all ] || processors+=(neoverse-n1)
for cpu in "${processors[@]}"; do
    processor $cpu
    encoders=encoders_give_the_bytes
    [ $cpu != cortex-a72 ] || encoders=searching_$encoders
    release test -p trine-kernels --lib -- --skip $encoders --skip tests::kernels_give_the_bits_of_dot_ref
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
    # Nothing here has an instruction beyond NEON.
    processor cortex-a72
    release test -p trine-kernels --lib -- searching_encoders tests::kernels_give_the_bits_of_dot_ref
    processor max
    release test -p trine --test engine -- logits::
fi
