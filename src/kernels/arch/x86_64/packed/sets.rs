//! Instruction sets that rows are compiled for. AVX-VNNI is AVX2 with products that are written as assembly, because
//! both share all else.

use super::ymm::Ymm;
use super::zmm::Zmm;
use crate::arch::x86_64::rows::lanes::{Kernel, Set};
use crate::proof::{Avx2, Avx512, AvxVnni};

impl Set for Avx2 {
    type L = Ymm;
    const TOKENS: usize = 4;
    const ASKS: usize = 2;

    #[target_feature(enable = "avx2,f16c")]
    unsafe fn run<K: Kernel>(call: K::Call<'_>) {
        // SAFETY: the caller's promise.
        unsafe { K::run(call) }
    }
}

impl Set for AvxVnni {
    type L = Ymm;
    const TOKENS: usize = 4;
    const ASKS: usize = 2;

    #[target_feature(enable = "avx2,f16c")]
    unsafe fn run<K: Kernel>(call: K::Call<'_>) {
        // SAFETY: the caller's promise.
        unsafe { K::run(call) }
    }
}

impl Set for Avx512 {
    type L = Zmm;
    const TOKENS: usize = 1;
    const ASKS: usize = 8;

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn run<K: Kernel>(call: K::Call<'_>) {
        // SAFETY: the caller's promise.
        unsafe { K::run(call) }
    }
}
