//! Half and brain floats to floats.

use std::arch::x86_64::*;

use trine_formats::types::num::{bf16_to_f32, f16_to_f32};

#[inline(always)]
fn rest(row: &[u8], out: &mut [f32], value: fn(u16) -> f32) {
    for (b, y) in row.as_chunks::<2>().0.iter().zip(out) {
        *y = value(u16::from_le_bytes(*b));
    }
}

/// F16C makes a signalling NaN quiet and keeps its payload, as the definition does.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f16_avx2(row: &[u8], out: &mut [f32]) {
    let ((lines, row), (eights, out)) = (row.as_chunks::<16>(), out.as_chunks_mut::<8>());
    for (line, y) in lines.iter().zip(eights.iter_mut()) {
        // SAFETY: 16 bytes and 8 floats; neither asks for an alignment.
        unsafe {
            let halves = _mm_loadu_si128(line.as_ptr().cast());
            _mm256_storeu_ps(y.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
    }
    if lines.len() == eights.len() {
        rest(row, out, f16_to_f32);
    }
}

/// The same, 16 at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn f16_avx512(row: &[u8], out: &mut [f32]) {
    let ((lines, row), (sixteens, out)) = (row.as_chunks::<32>(), out.as_chunks_mut::<16>());
    for (line, y) in lines.iter().zip(sixteens.iter_mut()) {
        // SAFETY: 32 bytes and 16 floats; neither asks for an alignment.
        unsafe {
            let halves = _mm256_loadu_si256(line.as_ptr().cast());
            _mm512_storeu_ps(y.as_mut_ptr(), _mm512_cvtph_ps(halves));
        }
    }
    if lines.len() == sixteens.len() {
        rest(row, out, f16_to_f32);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn bf16(row: &[u8], out: &mut [f32]) {
    rest(row, out, bf16_to_f32);
}
