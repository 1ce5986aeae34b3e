//! Properties of a type for tiles.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::super::zmm::Zmm;
use super::limbs::limbs;
use crate::arch::x86_64::rows::chains::Token;
use crate::arch::x86_64::rows::k16::{self, CodesOf16, Head, Set16};
use crate::arch::x86_64::rows::k32::{self, CodesOf32, Header, part};
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::arch::x86_64::tiles;
use crate::proof::Avx512;
use crate::shared::packed::Layout;
use crate::shared::packed::k_quants::CHAINS;
use crate::shared::packed::k_quants::of_16;
use crate::shared::packed::k_quants::of_32::bytes;

/// Bytes of a limb of a part, of a part and of a block, expanded.
pub(super) const LIMB: usize = 8 * tiles::ROW;
pub(super) const PART: usize = 2 * LIMB;

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
    /// The head of a block.
    type Head;

    /// The head of block b.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW and VNNI; `w` points at a group that has block `b`.
    unsafe fn head(w: *const u8, b: usize) -> Self::Head;
    /// Starts a block of a token: takes away its minima and notes its product of scales.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW and VNNI; `y` points at the arranged activations of the block.
    unsafe fn start(head: &Self::Head, token: &mut Token<Zmm>, y: *const u8);
    /// Writes the parts of block b: for each, the eight lines of the upper limbs, then those of the lower.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW and VNNI; `w` points at a group that has block `b`, and `to` has room for all
    /// limbs of a block.
    unsafe fn expand(w: *const u8, b: usize, to: *mut u8);
}

/// Types with scales of 32 elements.
pub(super) struct Of32<C>(PhantomData<C>);
/// Types with scales of 16 elements.
pub(super) struct Of16<C>(PhantomData<C>);

impl<C: CodesOf32> Limbs for Of32<C> {
    const VECTORS: Layout = k32::layout::<Avx512, C>();
    const FROM: usize = 48;
    const ACT: usize = k32::ACT;
    type Head = Header<Zmm>;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn head(w: *const u8, b: usize) -> Header<Zmm> {
        // SAFETY: the caller's group has the block.
        unsafe { Header::new::<C>(w.add(bytes::<C>() * b), 0) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn start(head: &Header<Zmm>, token: &mut Token<Zmm>, y: *const u8) {
        // SAFETY: the caller's activations have a scale and sums.
        unsafe { head.start(&mut token.minus, &mut token.d, y) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn expand(w: *const u8, b: usize, to: *mut u8) {
        // Odd codes come as a power of two times what they are, no bit of which a byte loses.
        let shift = _mm_cvtsi32_si128(16 - C::SHIFT as i32);
        // SAFETY: the caller's group has the block, whose header and parts these are; there is room for its expansion.
        unsafe {
            let block = w.add(bytes::<C>() * b);
            let scales = Header::<Zmm>::new::<C>(block, 0).scales;
            for l in 0..CHAINS {
                let codes = C::unpack::<Zmm, true>(part::<Zmm, C>(block, 0, l));
                for (j, (codes, scales)) in codes.into_iter().zip(scales).enumerate() {
                    let codes = if j % 2 == 0 { codes } else { _mm512_srl_epi16(codes, shift) };
                    put(codes, 0, scales, to.add(PART * l + tiles::ROW * j));
                }
            }
        }
    }
}

impl<C: CodesOf16> Limbs for Of16<C>
where
    Avx512: Set16<C>,
{
    const VECTORS: Layout = k16::layout::<Avx512, C>();
    /// Where vectors expand nothing they are slow.
    const FROM: usize = if <Avx512 as Set16<C>>::EXPANDED_FROM < usize::MAX { 32 } else { 16 };
    const ACT: usize = C::ACT;
    type Head = __m512;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn head(w: *const u8, b: usize) -> __m512 {
        // SAFETY: the caller's group has the block.
        unsafe { Zmm::halves(w.add(of_16::at::<C>(b).0)) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn start(d: &__m512, token: &mut Token<Zmm>, y: *const u8) {
        // SAFETY: the caller's activations have a scale.
        let dy = unsafe { _mm512_castsi512_ps(Zmm::broadcast(y.add(k16::SCALE))) };
        token.d = _mm512_mul_ps(*d, dy);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn expand(w: *const u8, b: usize, to: *mut u8) {
        // SAFETY: the caller's group has the block, whose scales and parts these are; there is room for its expansion.
        unsafe {
            let head = Head::<Zmm>::new::<C>(w, b, 0);
            let times = _mm_cvtsi32_si128(const { k16::times::<C>().cast_signed() });
            for l in 0..CHAINS {
                for (j, (codes, scales)) in head.part::<C>(l).into_iter().zip(head.scales).enumerate() {
                    let codes = match j < C::LOW {
                        true => codes,
                        // These too come as a power of two times what they are.
                        false => _mm512_srl_epi16(codes, times),
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
