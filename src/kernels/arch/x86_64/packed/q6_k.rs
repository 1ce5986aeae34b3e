//! Q6_K, 16 rows interleaved as in [`super::k16`].
//!
//! With 16 and more tokens, which share the price, a part is expanded to the products of weight and scale, which take
//! 13 bits: two of them to a lane meet two activations of 16 bits, to which those of a token are widened on the way.
//! That is two instructions for four weights instead of three.

use std::arch::x86_64::*;

use super::k16::{Acts, CodesOf16, Layout16, Product, SCALE, at, layout};
use super::lanes::{CHAINS, ROWS, TILE, Tile, broadcast, dpwssd_at, finish, load, scales, step, store, unroll};
use crate::packed::Layout;
pub(super) use crate::packed::k_quants::of_16::Q6K;

pub(super) static LAYOUTS: &[Layout] = &[layout::<Q6K>()];

impl CodesOf16 for Q6K {
    const LOW: usize = 0;
    const EXPANDED: Option<(usize, Product)> = Some((16, expanded));
    const ACT: usize = 576;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn scales(block: *const u8) -> [__m512i; 4] {
        // SAFETY: a block begins with four lines of scales.
        [0, 1, 2, 3].map(|g| unsafe { load(block.add(64 * g)) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn unpack(part: *const u8) -> [__m512i; 8] {
        let low6 = _mm512_set1_epi8(0x3F);
        let mut lines = [low6; 6];
        let mut codes = [low6; 8];
        for (k, line) in lines.iter_mut().enumerate() {
            // SAFETY: the caller's part has six lines.
            *line = unsafe { load(part.add(64 * k)) };
            codes[k] = _mm512_and_si512(*line, low6);
        }
        for (unit, lines) in codes[6..].iter_mut().zip(lines.as_chunks::<3>().0) {
            let parts =
                [_mm512_srli_epi16::<2>(lines[0]), _mm512_srli_epi16::<4>(lines[1]), _mm512_srli_epi16::<6>(lines[2])];
            // Bits of the mask from the first, the others from the second.
            let select = |mask, a, b| _mm512_ternarylogic_epi32::<0xCA>(mask, a, b);
            let upper = select(_mm512_set1_epi8(0x30), parts[0], parts[1]);
            let all = select(_mm512_set1_epi8(0x3C), upper, parts[2]);
            *unit = _mm512_and_si512(all, low6);
        }
        codes
    }
}

/// The bytes of each dword that its first 16 elements own, or the others, as words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn halves(bytes: __m512i) -> [__m512i; 2] {
    let orders = [
        _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1),
        _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1),
    ];
    orders.map(|order| _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(order)))
}

/// The scales of groups 2j and 2j + 1, each twice as i16, from those of [`CodesOf16::scales`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn double_scales(bytes: [__m512i; 4]) -> [[__m512i; 2]; 8] {
    let orders = [
        _mm_setr_epi8(-1, 0, -1, 0, -1, 4, -1, 4, -1, 8, -1, 8, -1, 12, -1, 12),
        _mm_setr_epi8(-1, 1, -1, 1, -1, 5, -1, 5, -1, 9, -1, 9, -1, 13, -1, 13),
        _mm_setr_epi8(-1, 2, -1, 2, -1, 6, -1, 6, -1, 10, -1, 10, -1, 14, -1, 14),
        _mm_setr_epi8(-1, 3, -1, 3, -1, 7, -1, 7, -1, 11, -1, 11, -1, 15, -1, 15),
    ];
    let mut all = [[_mm512_setzero_si512(); 2]; 8];
    for (four, bytes) in all.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        for (scale, order) in four.as_flattened_mut().iter_mut().zip(orders) {
            let upper = _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(order));
            *scale = _mm512_srai_epi16::<8>(upper);
        }
    }
    all
}

/// The weights of a part times their scales, at most 32 * 128 in magnitude.
///
/// # Safety
/// The part is readable; the processor has AVX-512 F and BW.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn expand(part: *const u8, scales: &[[__m512i; 2]; 8]) -> [[__m512i; 2]; 8] {
    // SAFETY: as the caller says.
    let codes = unsafe { Q6K::unpack(part) };
    let mut products = *scales;
    for (products, codes) in products.iter_mut().zip(codes) {
        for (product, codes) in products.iter_mut().zip(halves(codes)) {
            let weights = _mm512_sub_epi16(codes, _mm512_set1_epi16(Q6K::OFFSET));
            *product = _mm512_mullo_epi16(weights, *product);
        }
    }
    products
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn expanded(w: *const u8, acts: Acts, out: &mut [f32]) {
    let mut tile = Tile::new();
    let tile = tile.start(out.len() / ROWS);
    let mut wide = [[0; 64]; TILE];
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of all activations too, as `check` saw.
        unsafe {
            let y = acts.at.add(Q6K::ACT * b);
            let (d, block) = at::<Q6K>(b);
            let (d, block) = (scales(w.add(d)), w.add(block));
            for (t, token) in tile.iter_mut().enumerate() {
                let dy = _mm512_castsi512_ps(broadcast(y.add(acts.stride * t + SCALE)));
                token.d = _mm512_mul_ps(d, dy);
            }
            let scales = double_scales(Q6K::scales(block));
            for l in 0..CHAINS {
                let products = expand(block.add(Q6K::CODES + 64 * Q6K::PART_LINES * l), &scales);
                // To memory, where products broadcast them from.
                for (t, wide) in wide.iter_mut().take(tile.len()).enumerate() {
                    let quants = y.add(acts.stride * t + 32 * l);
                    store(wide, _mm512_cvtepi8_epi16(_mm256_loadu_si256(quants.cast())));
                }
                for (token, wide) in tile.iter_mut().zip(&wide) {
                    let (y, mut sums) = (wide.as_ptr(), [_mm512_setzero_si512(); 2]);
                    unroll!(J in [0 1 2 3 4 5 6 7] {
                        sums[0] = dpwssd_at::<{ 8 * J }>(sums[0], products[J][0], y);
                        sums[1] = dpwssd_at::<{ 8 * J + 4 }>(sums[1], products[J][1], y);
                    });
                    let sum = _mm512_add_epi32(sums[0], sums[1]);
                    token.chains[l] = step(token.chains[l], token.d, sum);
                }
            }
        }
    }
    for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        finish(token.minus, token.chains, out);
    }
}
