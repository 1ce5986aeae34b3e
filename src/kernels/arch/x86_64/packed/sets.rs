//! Instruction sets that rows are compiled for. AVX-VNNI is AVX2 with products that are written as assembly, because
//! both share all else.

use super::ymm::Ymm;
use super::zmm::Zmm;
use crate::arch::x86_64::rows::lanes::{Kernel, Set};
use crate::proof::{Avx2, Avx512, AvxVnni};

macro_rules! sets {
    ($($set:ident: $lanes:ident, $tokens:literal tokens, $prefetches:literal prefetches, $features:literal;)*) => { $(
        impl Set for $set {
            type L = $lanes;
            const TOKENS: usize = $tokens;
            const PREFETCHES: usize = $prefetches;

            #[target_feature(enable = $features)]
            unsafe fn run<K: Kernel>(call: K::Call<'_>) {
                // SAFETY: the caller's promise.
                unsafe { K::run(call) }
            }
        }
    )* };
}

sets! {
    Avx2: Ymm, 4 tokens, 2 prefetches, "avx2,f16c";
    AvxVnni: Ymm, 4 tokens, 2 prefetches, "avx2,f16c";
    Avx512: Zmm, 1 tokens, 8 prefetches, "avx512f,avx512bw,avx512vnni";
}
