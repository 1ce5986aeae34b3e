//! Half floats from and to floats.

use std::arch::aarch64::*;

use trine_formats::types::TypeId;
use trine_formats::types::num::f16_to_f32;

use super::super::dot::halves;
use super::values::{FOUR, load, store};
use crate::arch::halves::native::narrow_numbers;
use crate::scalar::definition;

/// Values that are looked through for a NaN together.
const LINE: usize = 32;

#[target_feature(enable = "neon")]
pub(super) fn encode_f16(x: &[f32], out: &mut [u8]) {
    let (lines, rest) = x.as_chunks::<LINE>();
    let mut out = out.chunks_mut(2 * LINE);
    for (line, out) in lines.iter().zip(&mut out) {
        let mut most = vdupq_n_f32(0.0);
        for (x, out) in line.as_chunks::<8>().0.iter().zip(out.as_chunks_mut().0) {
            let [low, high] = [0, 1].map(|k| load(&x.as_chunks::<FOUR>().0[k]));
            // The larger of a NaN and anything is a NaN.
            most = vmaxq_f32(most, vmaxq_f32(low, high));
            let halves = vcombine_u16(narrow_numbers(low), narrow_numbers(high));
            store(out, vreinterpretq_u8_u16(halves));
        }
        // The definition has one NaN; the conversion keeps payloads.
        if vmaxvq_f32(most).is_nan() {
            definition(TypeId::F16)(line, None, out);
        }
    }
    if let Some(out) = out.next() {
        definition(TypeId::F16)(rest, None, out);
    }
}

/// The conversion makes a signalling NaN quiet and keeps its payload, as the definition does.
#[target_feature(enable = "neon")]
pub(super) fn decode_f16(row: &[u8], out: &mut [f32]) {
    let (fours, rest) = row.as_chunks::<{ 2 * FOUR }>();
    let mut out = out.chunks_mut(FOUR);
    for (x, y) in fours.iter().zip(&mut out) {
        let y = &mut y[..FOUR];
        // SAFETY: eight bytes and four floats; neither asks for an alignment.
        unsafe { vst1q_f32(y.as_mut_ptr(), halves(x.as_ptr())) }
    }
    for (x, y) in rest.as_chunks::<2>().0.iter().zip(out.flatten()) {
        *y = f16_to_f32(u16::from_le_bytes(*x));
    }
}
