//! Q3_K, 16 rows interleaved as in [`super::k16`].
//!
//! With few tokens, units 3 to 7 are used as 8 times their codes.
//!
//! With many, a part is expanded to the bytes 128 - weight * scale, which all types of this kind lack by one
//! value when signed but which here fit 0..252. The integer of a chain starts at -128 times the sum of the activations,
//! so that it ends as minus the wanted one; the sign goes to the scale.

use std::arch::x86_64::*;

use super::k16::{Acts, CodesOf16, Layout16, Product, SCALE, at, layout, pair_scales};
use super::lanes::{BLOCK, CHAINS, ROWS, Tile, broadcast, finish, load, scales, step, unroll};
use crate::packed::Layout;
pub(super) use crate::packed::k_quants::of_16::Q3K;

pub(super) static LAYOUTS: &[Layout] = &[layout::<Q3K>()];

/// Where the starts of the integers of the chains are in the arranged activations, i32.
pub(super) const STARTS: usize = SCALE + 4;

impl CodesOf16 for Q3K {
    const LOW: usize = 3;
    const EXPANDED: Option<(usize, Product)> = Some((4, expanded));
    const ACT: usize = 576;

    #[inline]
    fn arrange(block: &mut [u8]) {
        let (quants, rest) = block.split_at_mut(BLOCK);
        let starts = rest[STARTS - BLOCK..].as_chunks_mut::<4>().0;
        for (start, q) in starts.iter_mut().zip(quants.as_chunks::<32>().0) {
            let sum: i32 = q.iter().map(|q| i32::from(*q as i8)).sum();
            *start = (-128 * sum).to_le_bytes();
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn scales(block: *const u8) -> [__m512i; 4] {
        // SAFETY: a block begins with three lines of scales.
        let [a, b, c] = [0, 1, 2].map(|k| unsafe { load(block.add(64 * k)) });
        let (low4, upper) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
        let join = |low, high| {
            // (low & 15 | high & 0x30) - 32
            let high = _mm512_and_si512(high, upper);
            let code = _mm512_ternarylogic_epi32::<0xF8>(high, low, low4);
            _mm512_sub_epi8(code, _mm512_set1_epi8(32))
        };
        [
            join(a, _mm512_slli_epi16::<4>(c)),
            join(b, _mm512_slli_epi16::<2>(c)),
            join(_mm512_srli_epi16::<4>(a), c),
            join(_mm512_srli_epi16::<4>(b), _mm512_srli_epi16::<2>(c)),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn unpack(part: *const u8) -> [__m512i; 8] {
        // SAFETY: the caller's part has three lines.
        let [a, b, c] = [0, 1, 2].map(|k| unsafe { load(part.add(64 * k)) });
        let (low, high) = (_mm512_set1_epi8(0x07), _mm512_set1_epi8(0x38));
        let [six, seven] = rest(
            _mm512_srli_epi16::<2>(a),
            _mm512_srli_epi16::<4>(b),
            _mm512_srli_epi16::<1>(b),
            _mm512_srli_epi16::<3>(c),
            3,
        );
        [
            _mm512_and_si512(a, low),
            _mm512_and_si512(b, low),
            _mm512_and_si512(c, low),
            _mm512_and_si512(a, high),
            _mm512_and_si512(b, high),
            _mm512_and_si512(c, high),
            _mm512_and_si512(six, high),
            _mm512_and_si512(seven, high),
        ]
    }
}

/// Units 6 and 7, their lowest bit at bit `at`, and other bits around them. The arguments: lines 0, 1, 1 and 2
/// shifted so that the bits are in place.
#[inline]
#[target_feature(enable = "avx512f")]
fn rest(a6: __m512i, b6: __m512i, b7: __m512i, c7: __m512i, at: u32) -> [__m512i; 2] {
    // Bits of the mask from the first, the others from the second.
    let select = |mask: i32, a, b| _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi8((mask << at) as i8), a, b);
    [select(0b110, a6, b6), select(0b100, b7, c7)]
}

/// What code 0 becomes: 128 + 4 * scale, in both bytes of the scale.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn zeros(scales: &[__m512i; 8]) -> [__m512i; 8] {
    let low = _mm_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
    let low = _mm512_broadcast_i32x4(low);
    let mut zeros = *scales;
    for zero in &mut zeros {
        let twice = _mm512_shuffle_epi8(_mm512_add_epi16(*zero, *zero), low);
        *zero = _mm512_add_epi8(_mm512_add_epi8(twice, twice), _mm512_set1_epi8(-128));
    }
    zeros
}

/// The bytes 128 - weight * scale of a part.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn expand(part: *const u8, scales: &[__m512i; 8], zeros: &[__m512i; 8]) -> [__m512i; 8] {
    // SAFETY: the caller's part has three lines.
    let [a, b, c] = [0, 1, 2].map(|k| unsafe { load(part.add(64 * k)) });
    let [six, seven] = rest(
        _mm512_srli_epi16::<5>(a),
        _mm512_srli_epi16::<7>(b),
        _mm512_srli_epi16::<4>(b),
        _mm512_srli_epi16::<6>(c),
        0,
    );
    let codes = [a, b, c, _mm512_srli_epi16::<3>(a), _mm512_srli_epi16::<3>(b), _mm512_srli_epi16::<3>(c), six, seven];
    let mut bytes = codes;
    unroll!(J in [0 1 2 3 4 5 6 7] {
        // All modulo 256. Even bytes and odd bytes apart, or the product of one would carry into the other.
        let even = _mm512_and_si512(codes[J], _mm512_set1_epi16(0x0007));
        let odd = _mm512_and_si512(codes[J], _mm512_set1_epi16(0x0700));
        let even = _mm512_mullo_epi16(even, scales[J]);
        let odd = _mm512_mullo_epi16(odd, scales[J]);
        let product = _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi16(0x00FF), even, odd);
        bytes[J] = _mm512_sub_epi8(zeros[J], product);
    });
    bytes
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn expanded(w: *const u8, acts: Acts, out: &mut [f32]) {
    let mut tile = Tile::new();
    let tile = tile.start(out.len() / ROWS);
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of all activations too, as `check` saw.
        unsafe {
            let y = acts.at.add(Q3K::ACT * b);
            let (d, block) = at::<Q3K>(b);
            let (d, block) = (scales(w.add(d)), w.add(block));
            let minus_d = _mm512_sub_ps(_mm512_set1_ps(-0.0), d);
            for (t, token) in tile.iter_mut().enumerate() {
                let dy = _mm512_castsi512_ps(broadcast(y.add(acts.stride * t + SCALE)));
                token.d = _mm512_mul_ps(minus_d, dy);
            }
            let scales = pair_scales(Q3K::scales(block));
            let zeros = zeros(&scales);
            for l in 0..CHAINS {
                let part = block.add(Q3K::CODES + 64 * Q3K::PART_LINES * l);
                let bytes = expand(part, &scales, &zeros);
                for (t, token) in tile.iter_mut().enumerate() {
                    let y = y.add(acts.stride * t);
                    let mut sum = broadcast(y.add(STARTS + 4 * l));
                    let y = y.add(32 * l);
                    unroll!(J in [0 1 2 3 4 5 6 7] {
                        sum = _mm512_dpbusd_epi32(sum, bytes[J], broadcast(y.add(4 * J)));
                    });
                    token.chains[l] = step(token.chains[l], token.d, sum);
                }
            }
        }
    }
    for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        finish(token.minus, token.chains, out);
    }
}
