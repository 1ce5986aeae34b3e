//! Sixteen rows with 8-bit activations on AVX-512 with VNNI, as [`super::bytes256`] has them; four products are added
//! at once.

use std::arch::x86_64::*;

use super::super::packed::PrefetchDistance;
use super::bytes256::TABLES;
use crate::shared::widely::{BLOCK_BYTES, BLOCK_CHUNKS, Block, CHUNK_BYTES, ROWS, Unit, by_blocks};

/// The products of a unit and one row of activations.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn multiply(unit: &Unit<'_>, acts: &[u8], ahead: impl PrefetchDistance, out: &mut [[f32; ROWS]; 2]) {
    by_blocks(unit, acts, out, |codes, x, sums| {
        stream_of_block(codes, x, ahead, sums);
    });
}

/// The rows of a block of one stream.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn stream_of_block(
    codes: &[u8; BLOCK_BYTES],
    x: &Block<'_>,
    ahead: impl PrefetchDistance,
    sums: &mut [[f32; ROWS]; 4],
) {
    let table = |t: &[i8; 16]| {
        // SAFETY: sixteen bytes.
        _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(t.as_ptr().cast()) })
    };
    let tables = [[table(&TABLES[0][0]), table(&TABLES[0][1])], [table(&TABLES[1][0]), table(&TABLES[1][1])]];
    let nibble = _mm512_set1_epi8(15);
    // the 1 that is added to every factor adds the activations once
    let without = x.sums.map(|sum| _mm512_set1_epi32(-sum));
    let mut integers = [without[0], without[1], without[0], without[1]];
    // Of a loop that it could unroll the compiler would keep all activations and what is looked up on the stack.
    for chunk in 0..std::hint::black_box(BLOCK_CHUNKS) {
        // SAFETY: one of the block's four chunks, and four activations of each of four fields: 64 real and 64
        // imaginary parts are there.
        unsafe {
            let bytes = codes.as_ptr().add(CHUNK_BYTES * chunk);
            ahead.line(bytes);
            let bytes = _mm512_loadu_si512(bytes.cast());
            let low = _mm512_and_si512(bytes, nibble);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibble);
            for field in 0..4 {
                let codes = if field < 2 { low } else { high };
                let [real, imaginary] = tables[field % 2];
                let real = _mm512_shuffle_epi8(real, codes);
                let imaginary = _mm512_shuffle_epi8(imaginary, codes);
                let four = |part: usize| {
                    let at = x.ints.as_ptr().add(64 * part + 16 * chunk + 4 * field);
                    _mm512_set1_epi32(at.cast::<i32>().read_unaligned())
                };
                let (re, im) = (four(0), four(1));
                let [rr, ri, ir, ii] = &mut integers;
                *rr = _mm512_dpbusd_epi32(*rr, real, re);
                *ri = _mm512_dpbusd_epi32(*ri, real, im);
                *ir = _mm512_dpbusd_epi32(*ir, imaginary, re);
                *ii = _mm512_dpbusd_epi32(*ii, imaginary, im);
            }
        }
    }
    for (k, (integers, sums)) in integers.into_iter().zip(sums).enumerate() {
        let scale = _mm512_set1_ps(x.scales[k % 2]);
        // SAFETY: sixteen floats.
        unsafe {
            let at = sums.as_mut_ptr();
            let product = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(integers));
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), product));
        }
    }
}
