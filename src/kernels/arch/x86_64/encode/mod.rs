//! Whole rows of weights to and from floats, for the quantizer: the bytes of each type's own `encode` and the
//! bits of its own `decode`.
//!
//! Blocks that hold a NaN, an infinity or anything else out of the ordinary go to the definition; with that
//! settled the kernels need not wonder which of two NaNs an instruction returns.

use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

use super::quantize;
use crate::scalar::{self, CompareRows};
use crate::{Isa, Level};

mod block32;
mod decode;
mod searched;
mod ternary;

/// Hands a kernel out as a safe function.
macro_rules! safe {
    (fn($($arg:ident: $ty:ty),*) $(-> $out:ty)? = $kernel:path) => {{
        fn call($($arg: $ty),*) $(-> $out)? {
            // SAFETY: the tables below hand this out only where the instruction set was detected.
            unsafe { $kernel($($arg),*) }
        }
        call
    }};
}

/// The decoder of a type for an instruction set that the processor has, where it is not just the type's own.
pub(crate) fn decode_rows(ty: TypeId, isa: Isa) -> Option<DecodeFn> {
    macro_rules! kernel {
        ($kernel:path) => {
            safe!(fn(row: &[u8], out: &mut [f32]) = $kernel)
        };
    }
    Some(match (ty, isa.vectors()) {
        _ if !isa.has(Level::Avx2) => return None,
        (TypeId::F16, Level::Avx2) => kernel!(decode::f16_avx2),
        (TypeId::F16, Level::Avx512) => kernel!(decode::f16_avx512),
        (TypeId::BF16, _) => kernel!(decode::bf16),
        (TypeId::TQ1_0, _) => kernel!(ternary::decode_tq1_0),
        (TypeId::TQ2_0, _) => kernel!(ternary::decode_tq2_0),
        _ => return None,
    })
}

/// The encoder of a type for an instruction set that the processor has, where it is not just the type's own.
pub(crate) fn encode_rows(ty: TypeId, isa: Isa) -> Option<EncodeFn> {
    macro_rules! kernel {
        ($kernel:path) => {
            safe!(fn(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) = $kernel)
        };
    }
    // Activations are encoded by the same rules, without importance.
    macro_rules! plain {
        ($encode:path) => {
            |x: &[f32], _: Option<&[f32]>, row: &mut [u8]| $encode(x, row)
        };
    }
    Some(match (ty, isa.vectors()) {
        _ if !isa.has(Level::Avx2) => return None,
        (TypeId::TQ1_0, _) => kernel!(ternary::encode_tq1_0),
        (TypeId::TQ2_0, _) => kernel!(ternary::encode_tq2_0),
        (TypeId::F16, _) => plain!(quantize::f16),
        (TypeId::Q8_0, _) => plain!(quantize::q8_0),
        (TypeId::Q4_0, Level::Avx2) => kernel!(block32::q4_0_avx2),
        (TypeId::Q4_0, Level::Avx512) => kernel!(block32::q4_0_avx512),
        (TypeId::Q4_1, Level::Avx2) => kernel!(block32::q4_1_avx2),
        (TypeId::Q4_1, Level::Avx512) => kernel!(block32::q4_1_avx512),
        (TypeId::Q5_0, Level::Avx2) => kernel!(block32::q5_0_avx2),
        (TypeId::Q5_0, Level::Avx512) => kernel!(block32::q5_0_avx512),
        (TypeId::Q5_1, Level::Avx2) => kernel!(block32::q5_1_avx2),
        (TypeId::Q5_1, Level::Avx512) => kernel!(block32::q5_1_avx512),
        (TypeId::Q2_K, Level::Avx2) => kernel!(searched::q2_k_avx2),
        (TypeId::Q2_K, Level::Avx512) => kernel!(searched::q2_k_avx512),
        (TypeId::Q3_K, Level::Avx2) => kernel!(searched::q3_k_avx2),
        (TypeId::Q3_K, Level::Avx512) => kernel!(searched::q3_k_avx512),
        (TypeId::Q4_K, Level::Avx2) => kernel!(searched::q4_k_avx2),
        (TypeId::Q4_K, Level::Avx512) => kernel!(searched::q4_k_avx512),
        (TypeId::Q5_K, Level::Avx2) => kernel!(searched::q5_k_avx2),
        (TypeId::Q5_K, Level::Avx512) => kernel!(searched::q5_k_avx512),
        (TypeId::Q6_K, Level::Avx2) => kernel!(searched::q6_k_avx2),
        (TypeId::Q6_K, Level::Avx512) => kernel!(searched::q6_k_avx512),
        (TypeId::IQ1_S, Level::Avx2) => kernel!(searched::iq1_s_avx2),
        (TypeId::IQ1_S, Level::Avx512) => kernel!(searched::iq1_s_avx512),
        (TypeId::IQ1_M, Level::Avx2) => kernel!(searched::iq1_m_avx2),
        (TypeId::IQ1_M, Level::Avx512) => kernel!(searched::iq1_m_avx512),
        (TypeId::IQ2_XXS, Level::Avx2) => kernel!(searched::iq2_xxs_avx2),
        (TypeId::IQ2_XXS, Level::Avx512) => kernel!(searched::iq2_xxs_avx512),
        (TypeId::IQ2_XS, Level::Avx2) => kernel!(searched::iq2_xs_avx2),
        (TypeId::IQ2_XS, Level::Avx512) => kernel!(searched::iq2_xs_avx512),
        (TypeId::IQ2_S, Level::Avx2) => kernel!(searched::iq2_s_avx2),
        (TypeId::IQ2_S, Level::Avx512) => kernel!(searched::iq2_s_avx512),
        (TypeId::IQ3_XXS, Level::Avx2) => kernel!(searched::iq3_xxs_avx2),
        (TypeId::IQ3_XXS, Level::Avx512) => kernel!(searched::iq3_xxs_avx512),
        (TypeId::IQ3_S, Level::Avx2) => kernel!(searched::iq3_s_avx2),
        (TypeId::IQ3_S, Level::Avx512) => kernel!(searched::iq3_s_avx512),
        _ => return None,
    })
}

#[target_feature(enable = "avx2,fma,f16c")]
fn compare_avx2(a: &[f32], b: &[f32]) -> Option<usize> {
    scalar::compare_rows(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn compare_avx512(a: &[f32], b: &[f32]) -> Option<usize> {
    scalar::compare_rows(a, b)
}

/// The comparison of rows for an instruction set that the processor has.
pub(crate) fn compare_rows(isa: Isa) -> Option<CompareRows> {
    match isa.vectors() {
        Level::Avx2 => Some(safe!(fn(a: &[f32], b: &[f32]) -> Option<usize> = compare_avx2)),
        Level::Avx512 => Some(safe!(fn(a: &[f32], b: &[f32]) -> Option<usize> = compare_avx512)),
        _ => None,
    }
}
