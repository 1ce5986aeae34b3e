//! The table of instruction sets.

/// Calls `$callback` with all instruction sets, of which each stands behind those that it extends: its name here and
/// for `TRINE_ISA`, what it extends, where it exists, and what the processor must have of it (each feature, and whether
/// it is there). `in` names the folder of kernels under [`crate::arch`] that every architecture compiles; the others
/// belong to the folder of theirs.
macro_rules! with_sets {
    ($callback:ident) => {
        $callback! {
            /// Portable Rust: the definitions themselves.
            Scalar "scalar": (all()) {};
            /// Four rows at a time in portable Rust, for what has nothing better.
            Scalar4 "scalar4": Scalar (all()) {} in scalar4;
            /// x86-64 with AVX2, FMA, F16C, BMI1 and POPCNT.
            Avx2 "avx2": Scalar (target_arch = "x86_64") {
                x86_64!("avx2" "fma" "f16c" "bmi1" "popcnt")
            };
            /// The above with AVX-VNNI, sums of four products of bytes in vectors of 256 bits: Alder Lake, Zen 5 and
            /// what came after them.
            AvxVnni "avxvnni": Avx2 (target_arch = "x86_64") { x86_64!("avxvnni") };
            /// AVX2 with AVX-512 F, BW, VL, DQ and VNNI.
            Avx512 "avx512": Avx2 (target_arch = "x86_64") {
                x86_64!("avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni")
            };
            /// The above with AMX: tiles of 16 x 64 bytes and their products. Sapphire Rapids and what came after it,
            /// on Linux.
            Amx "amx": Avx512 (target_arch = "x86_64") { $crate::arch::x86_64::tiles::features() };
            /// 64-bit ARM: every such processor has these vectors.
            Neon "neon": Scalar (target_arch = "aarch64") { $crate::arch::aarch64::detected!("neon") };
            /// The above with `SDOT`, sums of four products of bytes: Cortex-A75, Neoverse N1, Apple A11 and what came
            /// after them.
            Dotprod "dotprod": Neon (target_arch = "aarch64") { $crate::arch::aarch64::detected!("dotprod") };
            /// The above with `SMMLA`, products of 2 x 8 by 8 x 2 matrices of bytes: Neoverse V1 and N2, Apple M2 and
            /// what came after them.
            I8mm "i8mm": Dotprod (target_arch = "aarch64") { $crate::arch::aarch64::detected!("i8mm") };
            /// WebAssembly with vectors of 128 bits, in programs that are compiled for them: all browsers since 2023.
            Simd128 "simd128": Scalar (all(target_arch = "wasm32", target_feature = "simd128")) {
                vec![("simd128", true)]
            };
        }
    };
}
