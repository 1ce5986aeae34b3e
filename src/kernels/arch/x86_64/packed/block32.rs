//! Types with 32-element blocks, with one chain or nested ones: their layouts, and products by AVX-512.

use std::arch::x86_64::*;

use trine_formats::types::{TypeId, ik, info};

use super::zmm::Zmm;
use crate::Isa;
use crate::arch::x86_64::rows::block32::{Codes, Dot, DotSet, VECTORS, layout};
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::arch::x86_64::rows::nested::layout as nested_layout;
use crate::proof::{Avx2, Avx512, AvxVnni};
use crate::shared::packed::Layout;
use crate::shared::packed::block32::{ByteCodes, Q8_0, layouts_of_block32};
use crate::shared::packed::nested::layouts_of_nested;

impl DotSet for Avx512 {
    const IN_REGISTERS: bool = true;
    // Beside sixteen registers of codes the sums of two tokens have room; those of four go to memory and back.
    const TOGETHER: usize = 2;
    const PREFETCHES: usize = 8 * VECTORS;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn one_dot<C: ByteCodes>(codes: &[__m512i; 8], record: *const u8, prefetch: impl Fn(usize)) -> __m512i {
        // SAFETY: a record has eight dwords of activations and its start at byte 36.
        unsafe {
            let mut sum = Zmm::broadcast(record.add(36));
            for (k, codes) in codes.iter().enumerate() {
                prefetch(k);
                sum = _mm512_dpbusd_epi32(sum, *codes, Zmm::broadcast(record.add(4 * k)));
            }
            sum
        }
    }
}

impl<const T: usize> Dot<T> for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn dot<C: ByteCodes>(
        codes: *const u8,
        record: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [[__m512i; VECTORS]; T] {
        let mut sums = [[_mm512_setzero_si512(); VECTORS]; T];
        // SAFETY: eight lines; a record has eight dwords of activations, and its start at byte 36.
        unsafe {
            for (t, sums) in sums.iter_mut().enumerate() {
                *sums = [Zmm::broadcast(record.add(stride * t + 36)); VECTORS];
            }
            // Tokens take turns at each dword. One after the other their chains of eight products are further apart than a
            // processor looks ahead: prompts of Q8_0 took 4 % more time on Zen 5.
            for g in 0..8 {
                for (t, sums) in sums.iter_mut().enumerate() {
                    let y = Zmm::broadcast(record.add(stride * t + 4 * g));
                    for (v, sum) in sums.iter_mut().enumerate() {
                        if t == 0 {
                            prefetch(VECTORS * g + v);
                        }
                        let codes = Zmm::load(codes.add(size_of::<Codes<Zmm>>() / 8 * g + 64 * v));
                        *sum = _mm512_dpbusd_epi32(*sum, codes, y);
                    }
                }
            }
        }
        sums
    }
}

/// `$layouts` of all instruction sets.
macro_rules! for_all {
    ($layout:ident, $layouts:ident) => {
        [$layouts!($layout, Avx2), $layouts!($layout, AvxVnni), $layouts!($layout, Avx512)].as_flattened()
    };
}

pub(super) static LAYOUTS: &[Layout] = for_all!(layout, layouts_of_block32);
pub(super) static NESTED: &[Layout] = for_all!(nested_layout, layouts_of_nested);
/// Q6_0 of ik_llama.cpp.
pub(super) static SIX_BITS: &[Layout] = &[six_bits::<Avx2>(), six_bits::<AvxVnni>(), six_bits::<Avx512>()];

/// Q6_0 by the products of Q8_0, whose steps are the same: its codes become bytes.
const fn six_bits<S: DotSet>() -> Layout {
    Layout { types: &[TypeId::Q6_0], name: "q6_0 as q8_0 x32", pack: pack_six_bits::<S>, ..layout::<S, Q8_0>() }
}

fn pack_six_bits<S: DotSet>(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let form = const { ik::form(TypeId::Q6_0) };
    assert!(w.len().is_multiple_of(form.bytes), "weights");
    let mut blocks = Vec::with_capacity(w.len() / form.bytes * info::Q8_0.bytes);
    let mut levels = [0; 256];
    for block in w.chunks_exact(form.bytes) {
        (form.levels)(block, &mut levels);
        blocks.extend_from_slice(&block[..2]);
        blocks.extend(levels[..form.block].iter().map(|level| level.cast_unsigned()));
    }
    S::pack::<Q8_0>(isa, &blocks, n, out)
}
