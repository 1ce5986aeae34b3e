//! Codes from bit planes, 64 weights at a time: the word of each plane is woven with the others byte by byte, then the
//! bits of every eight bytes are transposed, by one instruction where there is one.

use std::arch::x86_64::*;

/// The first four words of each half of a register, by their places.
const fn order(lower: [u8; 4], upper: [u8; 4]) -> [u8; 32] {
    let mut out = [0; 32];
    let mut i = 0;
    while i < 4 {
        let (a, b) = (2 * lower[i], 2 * upper[i]);
        (out[2 * i], out[2 * i + 1]) = (a, a + 1);
        (out[16 + 2 * i], out[16 + 2 * i + 1]) = (b, b + 1);
        i += 1;
    }
    out
}

/// Order of the bytes of a plane, byte `g` of which belongs to the weights from `8 g` on: bytes `g` and `g + 4` share a
/// quadword.
static TWO_CODES: [u8; 32] = order([0, 4, 1, 5], [2, 6, 3, 7]);
/// Order of the bytes of a plane where each byte gets a quadword of its own.
static ONE_CODE: [u8; 32] = order([0, 1, 4, 5], [2, 3, 6, 7]);

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes; no alignment is asked for.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Transposes the bits of each quadword: with `GFNI` bit `7 - j` of byte `i` is bit `i` of byte `j` before, without
/// it is bit `j`.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose<const GFNI: bool>(m: __m256i) -> __m256i {
    if GFNI {
        #[target_feature(enable = "avx2,gfni")]
        #[inline]
        fn at_once(m: __m256i) -> __m256i {
            let columns = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            _mm256_gf2p8affine_epi64_epi8::<0>(columns, m)
        }
        // SAFETY: `GFNI` says that it is there.
        return unsafe { at_once(m) };
    }
    macro_rules! swap {
        ($m:expr, $shift:literal, $mask:literal) => {{
            let other = _mm256_srli_epi64::<$shift>($m);
            let differ = _mm256_and_si256(_mm256_xor_si256($m, other), _mm256_set1_epi64x($mask));
            let there = _mm256_slli_epi64::<$shift>(differ);
            _mm256_xor_si256($m, _mm256_xor_si256(differ, there))
        }};
    }
    let m = swap!(m, 7, 0x00AA_00AA_00AA_00AA);
    let m = swap!(m, 14, 0x0000_CCCC_0000_CCCC);
    swap!(m, 28, 0x0000_0000_F0F0_F0F0)
}

/// The codes of a block, 32 and 32, from the word of each plane in all quadwords, the leading plane first. What a byte
/// has above its code means nothing; of four planes or less it is below 16.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn codes<const B: usize, const GFNI: bool>(p: [__m256i; B]) -> [__m256i; 2] {
    // of missing planes the first stands in, above the code
    let nibble = |i: usize| {
        let i = if GFNI { i } else { 3 - i };
        p[(B + i).saturating_sub(4)]
    };
    let byte = |i: usize| {
        let i = if GFNI { i } else { 7 - i };
        p[(B + i).saturating_sub(8)]
    };
    if B <= 4 {
        let order = load(&TWO_CODES);
        let a = _mm256_unpacklo_epi8(nibble(0), nibble(1));
        let b = _mm256_unpacklo_epi8(nibble(2), nibble(3));
        let (a, b) = (_mm256_shuffle_epi8(a, order), _mm256_shuffle_epi8(b, order));
        let two = transpose::<GFNI>(_mm256_unpacklo_epi16(a, b));
        let mask = _mm256_set1_epi8(0x0F);
        let lower = _mm256_and_si256(two, mask);
        let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(two), mask);
        return if GFNI { [upper, lower] } else { [lower, upper] };
    }
    let order = load(&ONE_CODE);
    let two = |i: usize| {
        let woven = _mm256_unpacklo_epi8(byte(i), byte(i + 1));
        _mm256_shuffle_epi8(woven, order)
    };
    let (a, b) = (_mm256_unpacklo_epi16(two(0), two(2)), _mm256_unpacklo_epi16(two(4), two(6)));
    [transpose::<GFNI>(_mm256_unpacklo_epi32(a, b)), transpose::<GFNI>(_mm256_unpackhi_epi32(a, b))]
}
