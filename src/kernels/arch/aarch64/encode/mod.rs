//! Whole rows to blocks, for the quantizer and for activations, and half floats to floats: the bytes of each type's own
//! `encode` and the bits of its own `decode`.
//!
//! Blocks that hold a NaN, an infinity or anything else out of the ordinary go to the definition; with that settled the
//! kernels need not wonder which of two NaNs an instruction returns. Nothing beyond NEON is used.

use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

use super::simd::Neon;
use crate::scalar::QuantizeAct;
use crate::scalar::check_lengths;
use crate::{Isa, Level};

mod block32;
mod floats;
mod q8;
mod ternary;
mod values;

/// The encoders that search for scales and points, and those that may be given importance: the searches of
/// `trine_formats` on these vectors.
mod searched {
    use super::Neon;
    use trine_formats::types::encode_on;

    macro_rules! encoders {
        ($($name:ident)*) => { $(
            #[target_feature(enable = "neon")]
            pub(super) fn $name(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
                encode_on::$name(Neon::here(), x, importance, row);
            }
        )* };
    }

    encoders! { q2_k q3_k q4_k q5_k q6_k iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s }
}

/// Hands a kernel out as a safe function.
macro_rules! safe {
    (fn($($arg:ident: $ty:ty),*) = $($kernel:tt)+) => {{
        fn call($($arg: $ty),*) {
            // SAFETY: the tables below hand this out only for an `Isa` that includes NEON.
            unsafe { $($kernel)+ }
        }
        call
    }};
}

/// The decoder of a type for an instruction set that the processor has, where it is not just the type's own.
pub(crate) fn decode_rows(ty: TypeId, isa: Isa) -> Option<DecodeFn> {
    match ty {
        _ if !isa.has(Level::Neon) => None,
        TypeId::F16 => Some(safe!(fn(row: &[u8], out: &mut [f32]) = floats::decode_f16(row, out))),
        _ => None,
    }
}

/// The encoder of a type for an instruction set that the processor has, where it is not just the type's own.
pub(crate) fn encode_rows(ty: TypeId, isa: Isa) -> Option<EncodeFn> {
    macro_rules! kernel {
        ($kernel:path) => {
            safe!(fn(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) = $kernel(x, importance, row))
        };
    }
    // Activations are encoded by the same rules, without importance.
    macro_rules! plain {
        ($kernel:path) => {
            safe!(fn(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) = $kernel(x, row))
        };
    }
    Some(match ty {
        _ if !isa.has(Level::Neon) => return None,
        TypeId::F16 => plain!(floats::encode_f16),
        TypeId::Q8_0 => plain!(q8::q8_0),
        TypeId::TQ1_0 => plain!(ternary::tq1_0),
        TypeId::TQ2_0 => plain!(ternary::tq2_0),
        TypeId::Q4_0 => kernel!(block32::q4_0),
        TypeId::Q4_1 => kernel!(block32::q4_1),
        TypeId::Q5_0 => kernel!(block32::q5_0),
        TypeId::Q5_1 => kernel!(block32::q5_1),
        TypeId::Q2_K => kernel!(searched::q2_k),
        TypeId::Q3_K => kernel!(searched::q3_k),
        TypeId::Q4_K => kernel!(searched::q4_k),
        TypeId::Q5_K => kernel!(searched::q5_k),
        TypeId::Q6_K => kernel!(searched::q6_k),
        TypeId::IQ1_S => kernel!(searched::iq1_s),
        TypeId::IQ1_M => kernel!(searched::iq1_m),
        TypeId::IQ2_XXS => kernel!(searched::iq2_xxs),
        TypeId::IQ2_XS => kernel!(searched::iq2_xs),
        TypeId::IQ2_S => kernel!(searched::iq2_s),
        TypeId::IQ3_XXS => kernel!(searched::iq3_xxs),
        TypeId::IQ3_S => kernel!(searched::iq3_s),
        _ => return None,
    })
}

/// The encoder of an activation type for an instruction set that the processor has, where it is not just the type's
/// own.
pub(crate) fn quantize_act(act: TypeId, isa: Isa) -> Option<QuantizeAct> {
    macro_rules! kernel {
        ($act:ident, $kernel:path) => {
            safe!(
                fn(x: &[f32], out: &mut [u8]) = {
                    check_lengths(TypeId::$act, x, out);
                    $kernel(x, out)
                }
            )
        };
    }
    Some(match act {
        _ if !isa.has(Level::Neon) => return None,
        TypeId::F16 => kernel!(F16, floats::encode_f16),
        TypeId::Q8_0 => kernel!(Q8_0, q8::q8_0),
        TypeId::Q8_1 => kernel!(Q8_1, q8::q8_1),
        TypeId::Q8_K => kernel!(Q8_K, q8::q8_k),
        _ => return None,
    })
}
