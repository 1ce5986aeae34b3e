//! Q6_K, 16 rows interleaved as in [`super::k16`].

use std::arch::x86_64::*;

use super::k16::{CodesOf16, layout};
use super::lanes::load;
use crate::packed::Layout;
pub(super) use crate::packed::k_quants::of_16::Q6K;

pub(super) static Q6_K: Layout = layout::<Q6K>();

impl CodesOf16 for Q6K {
    const LOW: usize = 0;
    const ACTS: &'static str = "q8_k by lane, q6_k";
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
