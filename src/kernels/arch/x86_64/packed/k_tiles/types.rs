//! What the tiles need to know of a type.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::super::k16::{self, CodesOf16, pair_scales};
use super::super::lanes::{CHAINS, Token, broadcast, scales};
use super::super::q4_k::{self, CodesOf32};
use super::limbs::limbs;
use super::{LIMB, PART};
use crate::arch::x86_64::tiles;
use crate::packed::Layout;

/// A type's blocks, as this kernel needs them.
///
/// # Safety
/// of all functions: AVX-512 F, BW and VNNI; the group `w` has block b; `y` is a token's arranged activations of it.
pub(super) trait Limbs {
    /// The layout with vectors alone, whose bytes and activations these are.
    const VECTORS: Layout;
    /// Tokens from which on tiles are faster than vectors.
    const FROM: usize;
    /// Bytes of a block of the arranged activations; dword s of l is at 32l + 4s.
    const ACT: usize;
    /// What the head of a block says.
    type Head;

    /// The head of block b.
    unsafe fn head(w: *const u8, b: usize) -> Self::Head;
    /// What a token does once in a block: takes away its minima and notes its product of scales.
    unsafe fn start(head: &Self::Head, token: &mut Token, y: *const u8);
    /// Writes the parts of block b: for each, the eight lines of the upper limbs, then those of the lower.
    unsafe fn expand(w: *const u8, b: usize, to: *mut u8);
}

/// Types with scales of 32 elements.
pub(super) struct Of32<C>(PhantomData<C>);
/// Types with scales of 16 elements.
pub(super) struct Of16<C>(PhantomData<C>);

impl<C: CodesOf32> Limbs for Of32<C> {
    const VECTORS: Layout = q4_k::layout::<C>();
    const FROM: usize = 48;
    const ACT: usize = q4_k::ACT;
    type Head = q4_k::Header;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn head(w: *const u8, b: usize) -> q4_k::Header {
        // SAFETY: the caller's group has the block.
        unsafe { q4_k::header::<C>(w.add(q4_k::bytes::<C>() * b)) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn start(head: &q4_k::Header, token: &mut Token, y: *const u8) {
        // SAFETY: the caller's activations have a scale and sums.
        unsafe {
            let dy = _mm512_castsi512_ps(broadcast(y.add(q4_k::SCALE)));
            token.minus = q4_k::subtract_mins(token.minus, head, y, dy);
            token.d = _mm512_mul_ps(head.d, dy);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn expand(w: *const u8, b: usize, to: *mut u8) {
        // The scale of the even and of the odd unit of a pair in both halves of a dword.
        let first = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
        let second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
        // Odd codes come as a power of two times what they are, no bit of which a byte loses.
        let shift = _mm_cvtsi32_si128(16 - C::SHIFT as i32);
        // SAFETY: the caller's group has the block, whose header and parts these are; there is room for its expansion.
        unsafe {
            let block = w.add(q4_k::bytes::<C>() * b);
            let mut scales = [[first, second]; 4];
            for (both, pair) in scales.iter_mut().zip(q4_k::header::<C>(block).scales) {
                *both = [_mm512_shuffle_epi8(pair, first), _mm512_shuffle_epi8(pair, second)];
            }
            for l in 0..CHAINS {
                let codes = C::unpack(block.add(q4_k::CODES + C::PART * l));
                let to = to.add(PART * l);
                for (p, ([even, odd], [of_even, of_odd])) in codes.into_iter().zip(scales).enumerate() {
                    put(even, 0, of_even, to.add(2 * tiles::ROW * p));
                    let odd = _mm512_srl_epi16(odd, shift);
                    put(odd, 0, of_odd, to.add((2 * p + 1) * tiles::ROW));
                }
            }
        }
    }
}

impl<C: CodesOf16> Limbs for Of16<C> {
    const VECTORS: Layout = k16::layout::<C>();
    /// Where vectors expand nothing they are slow.
    const FROM: usize = if C::EXPANDED.is_some() { 32 } else { 16 };
    const ACT: usize = C::ACT;
    type Head = __m512;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn head(w: *const u8, b: usize) -> __m512 {
        // SAFETY: the caller's group has the block.
        unsafe { scales(w.add(k16::at::<C>(b).0)) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn start(d: &__m512, token: &mut Token, y: *const u8) {
        // SAFETY: the caller's activations have a scale.
        let dy = unsafe { _mm512_castsi512_ps(broadcast(y.add(k16::SCALE))) };
        token.d = _mm512_mul_ps(*d, dy);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn expand(w: *const u8, b: usize, to: *mut u8) {
        // SAFETY: the caller's group has the block, whose scales and parts these are; there is room for its expansion.
        unsafe {
            let block = w.add(k16::at::<C>(b).1);
            let scales = pair_scales(C::scales(block));
            for l in 0..CHAINS {
                let codes = C::unpack(block.add(C::CODES + 64 * C::PART_LINES * l));
                for (j, (codes, scales)) in codes.into_iter().zip(scales).enumerate() {
                    let codes = match j < C::LOW {
                        true => codes,
                        // These too come as a power of two times what they are.
                        false => _mm512_srl_epi16(codes, k16::times::<C>()),
                    };
                    put(codes, C::OFFSET, scales, to.add(PART * l + tiles::ROW * j));
                }
            }
        }
    }
}

/// Writes the limbs of a line.
///
/// # Safety
/// There is room for a line of each limb, aligned as all lines are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn put(codes: __m512i, offset: i16, scales: __m512i, to: *mut u8) {
    let (high, low) = limbs(codes, offset, scales);
    // SAFETY: as the caller says.
    unsafe {
        _mm512_store_si512(to.cast(), high);
        _mm512_store_si512(to.add(LIMB).cast(), low);
    }
}
