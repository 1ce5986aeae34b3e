//! The weight types with one float chain per row: how a block unpacks to unsigned byte codes.
//!
//! A weight is `(code - OFFSET) * scale`, so a block's integer sum is `sum(code * q) - OFFSET * sum(q)`; the
//! second term belongs to the activation and is computed once. Codes come in natural order, 32 to a vector.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

/// The block step of a type: what is added to the row's sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockStep {
    /// `(isum * dw) * dx`
    SumFirst,
    /// `(dw * dx) * isum`
    ScaleFirst,
    /// `(dw * dx) * isum + mw * sx`
    PlusOffset,
    /// `(dx * dw) * isum - (dx * mw) * msum` with `msum` the sum of minimum codes times activation sums
    MinusMins,
    /// `dw * (((0 + dx0 * isum0) + dx1 * isum1) ..)` over the activation blocks within the weight block
    Nested,
}

/// The activation a type is multiplied with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Q8_0,
    Q8_1,
    Q8K,
}

/// How a type's blocks become byte codes.
pub(super) trait BlockCodes {
    /// Bytes of a block.
    const BYTES: usize;
    /// Groups of 32 weights in a block.
    const SUBS: usize;
    /// Difference of a code and its weight.
    const OFFSET: i32;
    /// The largest code there is, for any bytes.
    const MAX: i32;
    const STEP: BlockStep;
    const ACT: Act;
    /// Byte offset of the f16 scale, or of the exponent byte where `E8M0`.
    const SCALE_AT: usize;
    /// Byte offset of the f16 minimum or offset, where the form has one.
    const MIN_AT: usize = 0;
    /// The scale is one byte, a power of two.
    const E8M0: bool = false;

    /// The codes of one block; vectors beyond `SUBS` are zero.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn unpack(block: &[u8]) -> [__m256i; 8];

    /// The minimum codes of a block as 16 i16 (`MinusMins` only).
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn mins(_block: &[u8]) -> __m256i {
        unreachable!("only types with minimum codes are asked for them")
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load16(b: &[u8], at: usize) -> __m128i {
    let b = &b[at..at + 16];
    // SAFETY: `b` has 16 bytes; the load asks for no alignment.
    unsafe { _mm_loadu_si128(b.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load32(b: &[u8], at: usize) -> __m256i {
    let b = &b[at..at + 32];
    // SAFETY: `b` has 32 bytes; the load asks for no alignment.
    unsafe { _mm256_loadu_si256(b.as_ptr().cast()) }
}

#[inline]
pub(super) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// One vector and seven zeros.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn alone(v: __m256i) -> [__m256i; 8] {
    let mut all = [_mm256_setzero_si256(); 8];
    all[0] = v;
    all
}

/// The nibbles of 16 bytes: low ones first, then high ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn nibbles(b: &[u8], at: usize) -> __m256i {
    let q = load16(b, at);
    _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(q), q), _mm256_set1_epi8(15))
}

/// 32 bits to 32 bytes: 0xFF where the bit is set.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn bit_mask(bits: u32) -> __m256i {
    let which = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), which);
    _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit)
}

/// Nibbles through a table of 16 codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn looked_up(table: [u8; 16], nibbles: __m256i) -> __m256i {
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(&table, 0)), nibbles)
}

/// Adds 16 to the nibbles whose fifth bit is set.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn with_fifth_bit(nibbles: __m256i, bits: u32) -> __m256i {
    _mm256_or_si256(nibbles, _mm256_and_si256(bit_mask(bits), _mm256_set1_epi8(16)))
}

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident: $ty:ident, $subs:literal x 32, minus $offset:literal, max $max:literal,
     $form:ident, $act:ident $(, with $min:ident)? $(, e8m0 $e8m0:literal)?;
     $unpack:expr $(; mins $mins:expr)?) => {
        $(#[$doc])*
        pub(super) struct $name;
        impl BlockCodes for $name {
            const BYTES: usize = info::$ty.bytes;
            const SUBS: usize = $subs;
            const OFFSET: i32 = $offset;
            const MAX: i32 = $max;
            const STEP: BlockStep = BlockStep::$form;
            const ACT: Act = Act::$act;
            const SCALE_AT: usize = info::$ty.at(Part::Scale);
            $(const MIN_AT: usize = info::$ty.at(Part::$min);)?
            $(const E8M0: bool = $e8m0;)?
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn unpack(block: &[u8]) -> [__m256i; 8] {
                #[allow(dead_code, reason = "for the types that unpack in a line")]
                const CODES: usize = info::$ty.at(Part::Codes);
                $unpack(block)
            }
            $(
                #[inline]
                #[target_feature(enable = "avx2,fma,f16c")]
                unsafe fn mins(block: &[u8]) -> __m256i {
                    $mins(block)
                }
            )?
        }
    };
}

codes!(Q8_0: Q8_0, 1 x 32, minus 128, max 255, ScaleFirst, Q8_0;
    |b| alone(_mm256_xor_si256(load32(b, CODES), _mm256_set1_epi8(-128))));
codes!(Q4_0: Q4_0, 1 x 32, minus 8, max 15, SumFirst, Q8_0; |b| alone(nibbles(b, CODES)));
codes!(Q4_1: Q4_1, 1 x 32, minus 0, max 15, PlusOffset, Q8_1, with Min; |b| alone(nibbles(b, CODES)));
codes!(Q5_0: Q5_0, 1 x 32, minus 16, max 31, ScaleFirst, Q8_0;
    |b| alone(with_fifth_bit(nibbles(b, CODES), u32_at(b, const { info::Q5_0.at(Part::HighBits) }))));
codes!(Q5_1: Q5_1, 1 x 32, minus 0, max 31, PlusOffset, Q8_1, with Min;
    |b| alone(with_fifth_bit(nibbles(b, CODES), u32_at(b, const { info::Q5_1.at(Part::HighBits) }))));
codes!(
    /// The codebook plus 128.
    Iq4Nl: IQ4_NL, 1 x 32, minus 128, max 241, ScaleFirst, Q8_0;
    |b| alone(looked_up(const { info::IQ4_NL.raised_codebook(128) }, nibbles(b, CODES))));
codes!(
    /// Twice the E2M1 values, plus 12; the scale is halved instead.
    Mxfp4: MXFP4, 1 x 32, minus 12, max 24, ScaleFirst, Q8_0, e8m0 true;
    |b| alone(looked_up(const { info::MXFP4.raised_codebook(12) }, nibbles(b, CODES))));
codes!(
    /// Bits 0 and 1 to codes 0 and 2: the weights are -1 and +1.
    Q1_0: Q1_0, 4 x 32, minus 1, max 2, Nested, Q8_0; unpack_q1_0);
codes!(Q2_0: Q2_0, 2 x 32, minus 1, max 3, Nested, Q8_0; |b| {
    let [first, second] = codes_in_order(load16(b, CODES));
    let mut all = alone(first);
    all[1] = second;
    all
});
codes!(
    /// The type of PrismML's first files too, which is the same by another number.
    Pq2_0: PQ2_0, 4 x 32, minus 1, max 3, Nested, Q8_0; |b| {
    let mut all = alone(_mm256_setzero_si256());
    [all[0], all[1]] = codes_in_order(load16(b, CODES));
    [all[2], all[3]] = codes_in_order(load16(b, CODES + 16));
    all
});
codes!(Ptq1_0: PTQ1_0, 4 x 32, minus 1, max 2, Nested, Q8_0; unpack_ptq1_0);
codes!(Tq2_0: TQ2_0, 8 x 32, minus 1, max 3, ScaleFirst, Q8K; unpack_tq2_0);
codes!(Tq1_0: TQ1_0, 8 x 32, minus 1, max 2, ScaleFirst, Q8K; unpack_tq1_0);
codes!(
    /// Codes times their 4-bit scales: at most 3 * 15.
    Q2K: Q2_K, 8 x 32, minus 0, max 45, MinusMins, Q8K, with Min; unpack_q2_k;
    mins |b| _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16::<4>(load16(b, 0)), _mm_set1_epi8(15))));

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack_q1_0(b: &[u8]) -> [__m256i; 8] {
    let mut all = alone(_mm256_setzero_si256());
    for (k, v) in all[..4].iter_mut().enumerate() {
        *v = _mm256_and_si256(bit_mask(u32_at(b, 2 + 4 * k)), _mm256_set1_epi8(2));
    }
    all
}

/// The 64 two-bit codes of 16 bytes in their order, four to a byte from its lowest bits on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn codes_in_order(q: __m128i) -> [__m256i; 2] {
    let three = _mm_set1_epi8(3);
    let plane0 = _mm_and_si128(q, three);
    let plane1 = _mm_and_si128(_mm_srli_epi16::<2>(q), three);
    let plane2 = _mm_and_si128(_mm_srli_epi16::<4>(q), three);
    let plane3 = _mm_and_si128(_mm_srli_epi16::<6>(q), three);
    let (lo01, hi01) = (_mm_unpacklo_epi8(plane0, plane1), _mm_unpackhi_epi8(plane0, plane1));
    let (lo23, hi23) = (_mm_unpacklo_epi8(plane2, plane3), _mm_unpackhi_epi8(plane2, plane3));
    let first = _mm256_set_m128i(_mm_unpackhi_epi16(lo01, lo23), _mm_unpacklo_epi16(lo01, lo23));
    let second = _mm256_set_m128i(_mm_unpackhi_epi16(hi01, hi23), _mm_unpacklo_epi16(hi01, hi23));
    [first, second]
}

/// The four 2-bit planes of 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn planes(q: __m256i) -> [__m256i; 4] {
    let three = _mm256_set1_epi8(3);
    [
        _mm256_and_si256(q, three),
        _mm256_and_si256(_mm256_srli_epi16::<2>(q), three),
        _mm256_and_si256(_mm256_srli_epi16::<4>(q), three),
        _mm256_and_si256(_mm256_srli_epi16::<6>(q), three),
    ]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack_tq2_0(b: &[u8]) -> [__m256i; 8] {
    let [a0, a1, a2, a3] = planes(load32(b, 0));
    let [b0, b1, b2, b3] = planes(load32(b, 32));
    [a0, a1, a2, a3, b0, b1, b2, b3]
}

/// The leading base-3 digit of each byte read as a fraction of 256, `(3 * byte) >> 8`; bytes come with
/// their top bit flipped, so that they compare as signed.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn trit(flipped: __m256i) -> __m256i {
    // 3 * 86 = 258 and 3 * 171 = 513 are the first to reach 256 and 512: beyond 85 - 128 and 170 - 128
    // with the top bit flipped. A mask is -1.
    let one = _mm256_cmpgt_epi8(flipped, _mm256_set1_epi8(-43));
    let two = _mm256_cmpgt_epi8(flipped, _mm256_set1_epi8(42));
    _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two))
}

/// The byte without its leading digit: `3 * byte` mod 256. A flipped top bit stays flipped: 3 * 128 is
/// 128 mod 256.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn next_trit(b: __m256i) -> __m256i {
    _mm256_add_epi8(b, _mm256_add_epi8(b, b))
}

/// Weights 0..160: digit t of byte m is weight 32t + m. 160..240: digit t of byte 32 + m is 160 + 16t + m.
/// 240..256: digit t of byte 48 + m is 240 + 4t + m.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack_tq1_0(b: &[u8]) -> [__m256i; 8] {
    let mut all = alone(_mm256_setzero_si256());
    let top = _mm256_set1_epi8(-128);
    let mut first = _mm256_xor_si256(load32(b, 0), top);
    for v in &mut all[..5] {
        *v = trit(first);
        first = next_trit(first);
    }
    // Bytes 32..48 twice: the upper half one digit ahead, so that each step gives two groups of 16.
    let tail = _mm256_xor_si256(_mm256_broadcastsi128_si256(load16(b, 32)), top);
    let tail3 = next_trit(tail);
    let step0 = _mm256_blend_epi32::<0xF0>(tail, tail3);
    let step1 = next_trit(next_trit(step0));
    all[5] = trit(step0);
    all[6] = trit(step1);
    let step2 = next_trit(next_trit(step1));
    // Bytes 48..52, digits 0..4, four bytes each.
    let last = _mm256_xor_si256(_mm256_set1_epi32(u32_at(b, 48) as i32), top);
    let last3 = next_trit(last);
    let last9 = next_trit(last3);
    let last27 = next_trit(last9);
    let low = _mm256_blend_epi32::<0b0010_0000>(last, last3);
    let high = _mm256_blend_epi32::<0b1000_0000>(last9, last27);
    let last = _mm256_blend_epi32::<0b1100_0000>(low, high);
    all[7] = trit(_mm256_blend_epi32::<0xF0>(step2, last));
    all
}

/// Weights 0..80: digit t of byte m is weight 16t + m. 80..120: digit t of byte 16 + m is 80 + 8t + m. 120..128: digit
/// t of byte 24 + m is 120 + 2t + m.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack_ptq1_0(b: &[u8]) -> [__m256i; 8] {
    let mut all = alone(_mm256_setzero_si256());
    let top = _mm256_set1_epi8(-128);
    // Bytes 0..16 twice, the upper half one digit ahead: each step gives two groups of 16.
    let head = _mm256_xor_si256(_mm256_broadcastsi128_si256(load16(b, 0)), top);
    let step0 = _mm256_blend_epi32::<0xF0>(head, next_trit(head));
    let step1 = next_trit(next_trit(step0));
    let step2 = next_trit(next_trit(step1));
    all[0] = trit(step0);
    all[1] = trit(step1);
    // Bytes 16..24 likewise, two groups of 8 at a step.
    let eight = _mm_srli_si128::<6>(load16(b, 10));
    let eight = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(eight, eight));
    let eight = _mm256_xor_si256(eight, top);
    let tail0 = _mm256_blend_epi32::<0b1100_1100>(eight, next_trit(eight));
    let tail1 = next_trit(next_trit(tail0));
    let tail2 = next_trit(next_trit(tail1));
    all[2] = trit(_mm256_blend_epi32::<0xF0>(step2, tail0));
    // Bytes 24 and 25, digits 0..4.
    let last = _mm256_xor_si256(_mm256_set1_epi16(u32_at(b, 24) as i16), top);
    let last3 = next_trit(last);
    let last9 = next_trit(last3);
    let tail2 = _mm256_blend_epi16::<0b0001_0000>(tail2, last);
    let tail2 = _mm256_blend_epi16::<0b0010_0000>(tail2, last3);
    let tail2 = _mm256_blend_epi16::<0b0100_0000>(tail2, last9);
    let tail2 = _mm256_blend_epi16::<0b1000_0000>(tail2, next_trit(last9));
    all[3] = trit(_mm256_blend_epi32::<0xF0>(tail1, tail2));
    all
}

/// Codes times scales: each 16 weights look theirs up in a table of the four multiples of their scale.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack_q2_k(b: &[u8]) -> [__m256i; 8] {
    let scales = _mm_and_si128(load16(b, 0), _mm_set1_epi8(15));
    // Four bytes 0, s, 2s, 3s: no carry between them, since 3 * 15 < 256.
    let multiples = _mm256_set1_epi32(0x0302_0100);
    let low = _mm256_mullo_epi32(_mm256_cvtepu8_epi32(scales), multiples);
    let high = _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128::<8>(scales)), multiples);
    let first = planes(load32(b, 16));
    let second = planes(load32(b, 48));
    let mut all = alone(first[0]);
    for j in 0..4 {
        let at = j as i32 * 2;
        let table = _mm256_setr_epi32(at, at, at, at, at + 1, at + 1, at + 1, at + 1);
        all[j] = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(low, table), first[j]);
        all[4 + j] = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(high, table), second[j]);
    }
    all
}
