//! Q6_K, 16 rows interleaved as in [`super::k16`]. A part has 6 lines. Line k has unit k in the low 6 bits; the
//! upper 2 bits of lines 0, 1, 2 are bits 5..4, 3..2, 1..0 of unit 6, those of lines 3, 4, 5 of unit 7.

use std::arch::x86_64::*;

use trine_formats::types::info;

use super::k16::{CodesOf16, layout};
use super::lanes::{BLOCK, load};
use crate::packed::Layout;

pub(super) static Q6_K: Layout = layout::<Q6K>();

pub(super) struct Q6K;

impl CodesOf16 for Q6K {
    const NAME: &'static str = "q6_k x16";
    const FILE: usize = info::Q6_K.bytes;
    const FILE_SCALES: usize = 192;
    const FILE_D: usize = 208;
    const SCALE_LINES: usize = 4;
    const PART_LINES: usize = 6;
    const OFFSET: i16 = 32;
    const LOW: usize = 0;
    const ACTS: &'static str = "q8_k by lane, q6_k";
    const ACT: usize = 576;

    fn lines(block: &[u8]) -> [[u8; 32]; 6] {
        let mut units = [[0; 32]; 8];
        let (low, high) = block[..Self::FILE_SCALES].split_at(BLOCK / 2);
        for (h, units) in units.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            for e in 0..32 {
                let (a, b, high) = (low[64 * h + e], low[64 * h + 32 + e], high[32 * h + e]);
                units[0][e] = a & 15 | (high & 3) << 4;
                units[1][e] = b & 15 | (high >> 2 & 3) << 4;
                units[2][e] = a >> 4 | (high >> 4 & 3) << 4;
                units[3][e] = b >> 4 | (high >> 6) << 4;
            }
        }
        let mut lines = [[0; 32]; 6];
        for (k, line) in lines.iter_mut().enumerate() {
            let (own, other, shift) = (&units[k], &units[6 + k / 3], 4 - 2 * (k % 3));
            for e in 0..32 {
                line[e] = own[e] | other[e] >> shift << 6;
            }
        }
        lines
    }

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
            let parts = [
                _mm512_srli_epi16::<2>(lines[0]),
                _mm512_srli_epi16::<4>(lines[1]),
                _mm512_srli_epi16::<6>(lines[2]),
            ];
            // Bits of the mask from the first, the others from the second.
            let select = |mask, a, b| _mm512_ternarylogic_epi32::<0xCA>(mask, a, b);
            let upper = select(_mm512_set1_epi8(0x30), parts[0], parts[1]);
            let all = select(_mm512_set1_epi8(0x3C), upper, parts[2]);
            *unit = _mm512_and_si512(all, low6);
        }
        codes
    }
}
