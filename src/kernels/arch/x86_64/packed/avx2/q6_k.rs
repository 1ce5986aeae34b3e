//! Q6_K for AVX2, 16 rows interleaved as in [`super::k16`].
//!
//! Many tokens by AVX-VNNI: a part is expanded to the products of weight and scale, which take 13 bits, and two of
//! them to a lane meet two activations that were widened to 16 bits: two instructions for four weights of eight rows
//! instead of four.
//!
//! Bytes 0 and 2 of a dword of codes have the places of two scales in a lane, and so have bytes 1 and 3; activations
//! are put into that order as they are widened.

use std::arch::x86_64::*;

use super::super::k16::{Acts, CodesOf16, Layout16, Product, SCALE};
use super::super::lanes::{CHAINS, ROWS, TILE};
use super::super::q6_k::Q6K;
use super::broadcast_float;
use super::k16::{CodesOf16x8, head, layout, select};
use super::lanes::{Tile, VECTORS, finish, shuffle_dwords, step};
use super::vnni::{EightDwords, LINE};
use super::{by_tokens, load};
use crate::packed::Layout;
use crate::proof::{Avx2, AvxVnni};

pub(super) static LAYOUTS: &[Layout] = &[layout::<Q6K, Avx2>(), layout::<Q6K, AvxVnni>()];

impl CodesOf16x8 for Q6K {
    const BY_VNNI: (usize, Product) = (8, tile);

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn bytes(block: *const u8, v: usize) -> [__m256i; 4] {
        // SAFETY: a block begins with four lines of scales.
        [0, 1, 2, 3].map(|g| unsafe { load(block.add(64 * g + 32 * v)) })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn codes(part: *const u8) -> [__m256i; 8] {
        let low6 = _mm256_set1_epi8(0x3F);
        let mut codes = [low6; 8];
        for h in 0..2 {
            // SAFETY: the caller's part has six lines.
            let lines = [0, 1, 2].map(|k| unsafe { load(part.add(64 * (3 * h + k))) });
            for (k, line) in lines.into_iter().enumerate() {
                codes[3 * h + k] = _mm256_and_si256(line, low6);
            }
            let upper =
                select(_mm256_set1_epi8(0x30), _mm256_srli_epi16::<2>(lines[0]), _mm256_srli_epi16::<4>(lines[1]));
            let all = select(_mm256_set1_epi8(0x3C), upper, _mm256_srli_epi16::<6>(lines[2]));
            codes[6 + h] = _mm256_and_si256(all, low6);
        }
        codes
    }
}

/// Parts that are expanded side by side, so that they fill the lines of [`EightDwords`].
const SIDES: usize = 2;
/// The products of both parts: two lines for every dword of codes.
type Room = [[[[__m256i; VECTORS]; SIDES]; 2]; 8];
const _: () = assert!(32 * VECTORS * SIDES == LINE);

/// The product of a group with up to [`TILE`] tokens.
///
/// # Safety
/// The processor has AVX-VNNI and F16C; the group and the activations of as many tokens as there is room for in `out`
/// are readable.
#[target_feature(enable = "avx2,f16c")]
unsafe fn tile(w: *const u8, acts: Acts, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let (mut first, mut second) = (Tile::new(), Tile::new());
    let mut tiles = [first.start(tokens), second.start(tokens)];
    let mut room: Room = [[[[_mm256_setzero_si256(); VECTORS]; SIDES]; 2]; 8];
    let mut wide = [[[_mm256_setzero_si256(); 2]; SIDES]; TILE];
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of all activations too, as the caller says.
        unsafe {
            let y = acts.at.add(Q6K::ACT * b);
            let heads = [head::<Q6K>(w, b, 0), head::<Q6K>(w, b, 1)];
            for ((head, _), tile) in heads.iter().zip(&mut tiles) {
                for (t, token) in tile.iter_mut().enumerate() {
                    let dy = broadcast_float(y.add(acts.stride * t + SCALE));
                    token.d = _mm256_mul_ps(head.d, dy);
                }
            }
            for l in (0..CHAINS).step_by(SIDES) {
                for side in 0..SIDES {
                    for (v, (head, parts)) in heads.iter().enumerate() {
                        let codes = Q6K::codes(parts.add(64 * Q6K::PART_LINES * (l + side)));
                        expand(&head.scales, &codes, |j, h, products| {
                            room[j][h][side][v] = products;
                        });
                    }
                    for (t, wide) in wide[..tokens].iter_mut().enumerate() {
                        wide[side] = widened(y.add(acts.stride * t + 32 * (l + side)));
                    }
                }
                by_tokens!(t in tokens, T => for side in 0..SIDES {
                    let sums: [_; T] = chain_sums(&room, side, &wide[t..]);
                    step(&mut tiles, t, l + side, sums);
                });
            }
        }
    }
    finish(&tiles, out);
}

/// Hands out the products of unit j: of bytes 0 and 2 of every dword, then of the others.
#[inline]
#[target_feature(enable = "avx2")]
fn expand(scales: &[__m256i; 8], codes: &[__m256i; 8], mut put: impl FnMut(usize, usize, __m256i)) {
    let excess = _mm256_set1_epi16(Q6K::OFFSET);
    for (j, (codes, scales)) in codes.iter().zip(scales).enumerate() {
        let bytes = [_mm256_and_si256(*codes, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16::<8>(*codes)];
        for (h, codes) in bytes.into_iter().enumerate() {
            let weights = _mm256_sub_epi16(codes, excess);
            put(j, h, _mm256_mullo_epi16(weights, *scales));
        }
    }
}

/// The activations of a part, of each dword bytes 0 and 2, then the others.
///
/// # Safety
/// The processor has AVX2; 32 bytes are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn widened(y: *const u8) -> [__m256i; 2] {
    // SAFETY: the caller's bytes.
    let bytes = shuffle_dwords(unsafe { load(y) }, [0, 2, 1, 3]);
    [_mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(bytes))]
}

/// The integers of a chain, of 16 rows and T tokens.
///
/// # Safety
/// The processor has AVX-VNNI.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn chain_sums<const T: usize>(
    room: &Room,
    side: usize,
    wide: &[[[__m256i; 2]; SIDES]],
) -> [[__m256i; VECTORS]; T]
where
    AvxVnni: EightDwords<T>,
{
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; T];
    let stride = size_of_val(&wide[0]);
    assert!(wide.len() >= T, "tokens");
    for (half, lines) in room.as_chunks::<4>().0.iter().enumerate() {
        // SAFETY: four units have eight lines and 32 bytes of activations of each token, of which there are T.
        unsafe {
            let products = (&raw const lines[0][0][side]).cast();
            let y = (&raw const wide[0][side][half]).cast();
            sums = AvxVnni::add_words(products, y, stride, sums);
        }
    }
    sums
}
