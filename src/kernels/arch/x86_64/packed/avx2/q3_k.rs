//! Q3_K for AVX2, 16 rows interleaved as in [`super::k16`].
//!
//! Many tokens by AVX-VNNI: a part is expanded to the bytes 128 - weight * scale, as on AVX-512
//! ([`super::super::q3_k`]), so that one instruction takes four weights of eight rows.

use std::arch::x86_64::*;

use super::super::k16::{Acts, CodesOf16, Layout16, Product, SCALE};
use super::super::lanes::{CHAINS, ROWS};
use super::super::q3_k::{Q3K, STARTS};
use super::k16::{CodesOf16x8, head, layout, select};
use super::lanes::{Tile, VECTORS, finish, step};
use super::vnni::{EightDwords, LINE};
use super::{broadcast, broadcast_float, by_tokens, load};
use crate::packed::Layout;
use crate::proof::{Avx2, AvxVnni};

pub(super) static LAYOUTS: &[Layout] = &[layout::<Q3K, Avx2>(), layout::<Q3K, AvxVnni>()];

impl CodesOf16x8 for Q3K {
    const BY_VNNI: (usize, Product) = (3, tile);

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn bytes(block: *const u8, v: usize) -> [__m256i; 4] {
        // SAFETY: a block begins with three lines of scales.
        let [a, b, c] = [0, 1, 2].map(|k| unsafe { load(block.add(64 * k + 32 * v)) });
        let (low4, upper) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
        let join = |low, high| {
            let code = _mm256_or_si256(_mm256_and_si256(low, low4), _mm256_and_si256(high, upper));
            _mm256_sub_epi8(code, _mm256_set1_epi8(32))
        };
        [
            join(a, _mm256_slli_epi16::<4>(c)),
            join(b, _mm256_slli_epi16::<2>(c)),
            join(_mm256_srli_epi16::<4>(a), c),
            join(_mm256_srli_epi16::<4>(b), _mm256_srli_epi16::<2>(c)),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn codes(part: *const u8) -> [__m256i; 8] {
        // SAFETY: the caller's part has three lines.
        let [a, b, c] = [0, 1, 2].map(|k| unsafe { load(part.add(64 * k)) });
        let (low, high) = (_mm256_set1_epi8(0x07), _mm256_set1_epi8(0x38));
        let six = select(_mm256_set1_epi8(0b110 << 3), _mm256_srli_epi16::<2>(a), _mm256_srli_epi16::<4>(b));
        let seven = select(_mm256_set1_epi8(0b100 << 3), _mm256_srli_epi16::<1>(b), _mm256_srli_epi16::<3>(c));
        [
            _mm256_and_si256(a, low),
            _mm256_and_si256(b, low),
            _mm256_and_si256(c, low),
            _mm256_and_si256(a, high),
            _mm256_and_si256(b, high),
            _mm256_and_si256(c, high),
            _mm256_and_si256(six, high),
            _mm256_and_si256(seven, high),
        ]
    }
}

/// Parts that are expanded side by side, so that they fill the lines of [`EightDwords`].
const SIDES: usize = 2;
/// The bytes of both parts: a line for every unit.
type Room = [[[__m256i; VECTORS]; SIDES]; 8];
const _: () = assert!(32 * VECTORS * SIDES == LINE);

/// Scales and codes are such that products are eight times too large.
const TIMES: i32 = 3;

/// The product of a group with up to [`super::super::lanes::TILE`] tokens.
///
/// # Safety
/// The processor has AVX-VNNI and F16C; the group and the activations of as many tokens as there is room for in `out`
/// are readable.
#[target_feature(enable = "avx2,f16c")]
#[expect(clippy::needless_range_loop, reason = "side of rows and chains alike")]
unsafe fn tile(w: *const u8, acts: Acts, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let (mut first, mut second) = (Tile::new(), Tile::new());
    let mut tiles = [first.start(tokens), second.start(tokens)];
    let mut room: Room = [[[_mm256_setzero_si256(); VECTORS]; SIDES]; 8];
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of all activations too, as the caller says.
        unsafe {
            let y = acts.at.add(Q3K::ACT * b);
            let heads = [head::<Q3K>(w, b, 0), head::<Q3K>(w, b, 1)];
            for ((head, _), tile) in heads.iter().zip(&mut tiles) {
                let minus_d = _mm256_sub_ps(_mm256_set1_ps(-0.0), head.d);
                for (t, token) in tile.iter_mut().enumerate() {
                    let dy = broadcast_float(y.add(acts.stride * t + SCALE));
                    token.d = _mm256_mul_ps(minus_d, dy);
                }
            }
            let zeros = heads.each_ref().map(|(head, _)| zeros(&head.scales));
            for l in (0..CHAINS).step_by(SIDES) {
                for side in 0..SIDES {
                    for (v, (head, parts)) in heads.iter().enumerate() {
                        let codes = Q3K::codes(parts.add(64 * Q3K::PART_LINES * (l + side)));
                        for (j, codes) in codes.into_iter().enumerate() {
                            room[j][side][v] = bytes(codes, head.scales[j], zeros[v][j]);
                        }
                    }
                }
                by_tokens!(t in tokens, T => for side in 0..SIDES {
                    let y = y.add(acts.stride * t);
                    let starts: [_; T] = std::array::from_fn(|i| {
                        [broadcast(y.add(acts.stride * i + STARTS + 4 * (l + side))); VECTORS]
                    });
                    let bytes = (&raw const room[0][side]).cast();
                    let quants = y.add(32 * (l + side));
                    let sums = AvxVnni::add(bytes, quants, acts.stride, starts);
                    step(&mut tiles, t, l + side, sums);
                });
            }
        }
    }
    finish(&tiles, out);
}

/// What code 0 becomes, times eight, in words: 128 plus what the codes of a unit exceed the weights by, times the
/// scale.
#[inline]
#[target_feature(enable = "avx2")]
fn zeros(scales: &[__m256i; 8]) -> [__m256i; 8] {
    let mut zeros = *scales;
    for (j, zero) in zeros.iter_mut().enumerate() {
        let excess = _mm256_set1_epi16(if j < Q3K::LOW { Q3K::OFFSET } else { 32 });
        let times = _mm256_mullo_epi16(*zero, excess);
        *zero = _mm256_add_epi16(_mm256_set1_epi16(128 << TIMES), times);
    }
    zeros
}

/// The bytes 128 - weight * scale of a unit, which are 0 .. 252.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes(codes: __m256i, scales: __m256i, zeros: __m256i) -> __m256i {
    let even = _mm256_and_si256(codes, _mm256_set1_epi16(0xFF));
    let odd = _mm256_srli_epi16::<8>(codes);
    let times_eight = |codes| _mm256_sub_epi16(zeros, _mm256_mullo_epi16(codes, scales));
    _mm256_or_si256(_mm256_srli_epi16::<TIMES>(times_eight(even)), _mm256_slli_epi16::<{ 8 - TIMES }>(times_eight(odd)))
}
