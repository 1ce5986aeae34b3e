//! The types of [`super::lanes`]: their blocks to permuted byte codes.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::act::I32x8;
use super::codes::{load16, load32, u32_at};

/// One unpacked block.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Permuted codes: a weight is `code - OFFSET`.
    pub codes: [__m256i; 8],
    /// Dword J: scales 2J and 2J + 1 as i16.
    pub scales: __m256i,
    /// Dword J: minimum J twice as i16.
    pub mins: __m256i,
}

/// How a type's blocks become permuted byte codes.
pub(super) trait LaneCodes {
    const BYTES: usize;
    /// Difference of a code and its weight; at most 64.
    const OFFSET: i32;
    /// True if blocks have minima (and an f16 scale for them).
    const MINS: bool;
    /// Byte offset of the f16 scale.
    const SCALE_AT: usize;

    /// Always inlined, and so without the features' attribute, which forbids that: a call would hand 17 vectors over in
    /// memory, which was seen to halve the speed of a product.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn unpack(block: &[u8]) -> Block;
}

/// Dword l of the result: bytes l, l + 8, l + 16, l + 24.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn permute(v: __m256i) -> __m256i {
    static HALVES: I32x8 = I32x8([0, 2, 4, 6, 1, 3, 5, 7]);
    // The compiler must not know the indices: it would merge the two shuffles into four instructions.
    // SAFETY: a vector is 32 bytes, aligned to 32, and `HALVES` is one.
    let halves = unsafe { std::ptr::read_volatile((&raw const HALVES).cast::<__m256i>()) };
    let columns = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(v, halves), _mm256_broadcastsi128_si256(columns))
}

/// Eight bytes, each twice as i16.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn twice(bytes: u64) -> __m256i {
    let v = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes.cast_signed()));
    _mm256_or_si256(v, _mm256_slli_epi32::<16>(v))
}

#[inline]
fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Where Q4_K and Q5_K have their header: the minima's scale, and scales and minima of the groups.
pub(super) const DMIN: usize = info::Q4_K.at(Part::Min);

const HEADER_SCALES: usize = info::Q4_K.at(Part::GroupScales);

const _: () = assert!(info::Q5_K.at(Part::Min) == DMIN && info::Q5_K.at(Part::GroupScales) == HEADER_SCALES);

/// The eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K.
#[inline(always)]
fn scales_and_mins(b: &[u8]) -> (u64, u64) {
    let at = HEADER_SCALES;
    let (a, b, c) = (u32_at(b, at), u32_at(b, at + 4), u32_at(b, at + 8));
    let upper = |v: u32| (v >> 6 & 0x0303_0303) << 4;
    let scales = join(a & 0x3F3F_3F3F, c & 0x0F0F_0F0F | upper(a));
    let mins = join(b & 0x3F3F_3F3F, c >> 4 & 0x0F0F_0F0F | upper(b));
    (scales, mins)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn low_nibbles(v: __m256i) -> __m256i {
    _mm256_and_si256(v, _mm256_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn high_nibbles(v: __m256i) -> __m256i {
    low_nibbles(_mm256_srli_epi16::<4>(v))
}

pub(super) struct Q4K;

pub(super) struct Q5K;

pub(super) struct Q6K;

pub(super) struct Q3K;

impl LaneCodes for Q4K {
    const BYTES: usize = info::Q4_K.bytes;
    const OFFSET: i32 = 0;
    const MINS: bool = true;
    const SCALE_AT: usize = info::Q4_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let (scales, mins) = scales_and_mins(b);
            let mut codes = [_mm256_setzero_si256(); 8];
            for p in 0..4 {
                let q = permute(load32(b, const { info::Q4_K.at(Part::Codes) } + 32 * p));
                codes[2 * p] = low_nibbles(q);
                codes[2 * p + 1] = high_nibbles(q);
            }
            Block { codes, scales: twice(scales), mins: twice(mins) }
        }
    }
}

impl LaneCodes for Q5K {
    const BYTES: usize = info::Q5_K.bytes;
    const OFFSET: i32 = 0;
    const MINS: bool = true;
    const SCALE_AT: usize = info::Q5_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let (scales, mins) = scales_and_mins(b);
            let mut fifth = permute(load32(b, const { info::Q5_K.at(Part::HighBits) }));
            let mut codes = [_mm256_setzero_si256(); 8];
            for p in 0..4 {
                let q = permute(load32(b, const { info::Q5_K.at(Part::Codes) } + 32 * p));
                // Bits 2p and 2p + 1 are the fifth bits of groups 2p and 2p + 1; they are bits 0 and 1 by now.
                let first = _mm256_and_si256(_mm256_slli_epi16::<4>(fifth), _mm256_set1_epi8(16));
                let second = _mm256_and_si256(_mm256_slli_epi16::<3>(fifth), _mm256_set1_epi8(16));
                codes[2 * p] = _mm256_or_si256(low_nibbles(q), first);
                codes[2 * p + 1] = _mm256_or_si256(high_nibbles(q), second);
                fifth = _mm256_srli_epi16::<2>(fifth);
            }
            Block { codes, scales: twice(scales), mins: twice(mins) }
        }
    }
}

impl LaneCodes for Q6K {
    const BYTES: usize = info::Q6_K.bytes;
    const OFFSET: i32 = 32;
    const MINS: bool = false;
    const SCALE_AT: usize = info::Q6_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let upper = _mm256_set1_epi8(0x30);
            let mut codes = [_mm256_setzero_si256(); 8];
            for half in 0..2 {
                let first = permute(load32(b, 64 * half));
                let second = permute(load32(b, 64 * half + 32));
                let h = permute(load32(b, const { info::Q6_K.at(Part::HighBits) } + 32 * half));
                let bits = [_mm256_slli_epi16::<4>(h), _mm256_slli_epi16::<2>(h), h, _mm256_srli_epi16::<2>(h)];
                let low = [low_nibbles(first), low_nibbles(second), high_nibbles(first), high_nibbles(second)];
                for (j, (low, bits)) in low.into_iter().zip(bits).enumerate() {
                    codes[4 * half + j] = _mm256_or_si256(low, _mm256_and_si256(bits, upper));
                }
            }
            let scales = _mm256_cvtepi8_epi16(load16(b, const { info::Q6_K.at(Part::GroupScales) }));
            Block { codes, scales, mins: _mm256_setzero_si256() }
        }
    }
}

impl LaneCodes for Q3K {
    const BYTES: usize = info::Q3_K.bytes;
    const OFFSET: i32 = 4;
    const MINS: bool = false;
    const SCALE_AT: usize = info::Q3_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let (three, four) = (_mm256_set1_epi8(3), _mm256_set1_epi8(4));
            let h = permute(load32(b, 0));
            // Bit J of a byte is the third bit of group J.
            let third = [
                _mm256_slli_epi16::<2>(h),
                _mm256_slli_epi16::<1>(h),
                h,
                _mm256_srli_epi16::<1>(h),
                _mm256_srli_epi16::<2>(h),
                _mm256_srli_epi16::<3>(h),
                _mm256_srli_epi16::<4>(h),
                _mm256_srli_epi16::<5>(h),
            ];
            const CODES: usize = info::Q3_K.at(Part::Codes);
            let (q0, q1) = (permute(load32(b, CODES)), permute(load32(b, CODES + 32)));
            let low = [
                q0,
                _mm256_srli_epi16::<2>(q0),
                _mm256_srli_epi16::<4>(q0),
                _mm256_srli_epi16::<6>(q0),
                q1,
                _mm256_srli_epi16::<2>(q1),
                _mm256_srli_epi16::<4>(q1),
                _mm256_srli_epi16::<6>(q1),
            ];
            let mut codes = [_mm256_setzero_si256(); 8];
            for (code, (low, third)) in codes.iter_mut().zip(low.into_iter().zip(third)) {
                *code = _mm256_or_si256(_mm256_and_si256(low, three), _mm256_and_si256(third, four));
            }
            // 16 scales of 6 bits: four low bits in two dwords of nibbles, two high bits in the third.
            const SCALES: usize = info::Q3_K.at(Part::GroupScales);
            let (s0, s1, s2) = (u32_at(b, SCALES), u32_at(b, SCALES + 4), u32_at(b, SCALES + 8));
            let scale = |low: u32, high: u32| (low & 0x0F0F_0F0F) | (high & 0x0303_0303) << 4;
            let first = join(scale(s0, s2), scale(s1, s2 >> 2));
            let second = join(scale(s0 >> 4, s2 >> 4), scale(s1 >> 4, s2 >> 6));
            let bytes = _mm_set_epi64x(second.cast_signed(), first.cast_signed());
            let scales = _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), _mm256_set1_epi16(32));
            Block { codes, scales, mins: _mm256_setzero_si256() }
        }
    }
}
