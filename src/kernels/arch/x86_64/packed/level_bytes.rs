//! The types of [`super::levels`] by AVX-512: sixteen rows are the lanes.
//!
//! Levels are raised by 128, which makes them bytes without a sign for `dpbusd`. What that adds to the integer of 32
//! weights with one scale is where it starts, negated. Where each 16 have a scale, or groups are raised, sums of
//! activations are multiplied by what they are to be corrected by, two at once.
//!
//! A unit is unpacked once, to eight registers, and all tokens run over it. What they have of a block stays in the
//! first-level cache, and since no token waits for another the processor runs several at once by itself.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::super::grouped::GroupStep;
use super::ik_levels::layouts_of_ik_levels;
use super::level_lookup::Lookup;
use super::levels::{self, Levels, RAISED, UNITS, layouts_of_levels};
use super::zmm::Zmm;
use super::{PrefetchDistance, with_prefetch};
use crate::Isa;
use crate::arch::x86_64::prefetch;
use crate::arch::x86_64::rows::chains::Acts;
use crate::arch::x86_64::rows::lanes::{Lanes, unroll};
use crate::proof::{Needs, Proof, Vbmi};
use crate::shared::packed::k_quants::{BLOCK, Q8_K, ROWS};
use crate::shared::packed::{Call, Layout, Multiply};

/// Tokens whose integers are kept side by side.
const TILE: usize = 32;
/// Arranged activations of a block: the quants, the sums of each 16 of them, negated, i16, what the integers of each 32
/// start at, i32, and the scale.
pub(super) const ACT: usize = 384;
const SUMS: usize = BLOCK;
const STARTS: usize = SUMS + 32;
pub(super) const SCALE: usize = STARTS + 32;

/// The layout of a type with a product that runs best with up to `tile` tokens.
pub(super) const fn layout<C: Levels>(needs: Needs, multiply: Multiply, tile: usize) -> Layout {
    levels::layout::<C, true>(needs, (act_bytes, arrange), multiply, tile)
}

const fn by_vectors<C: Levels>() -> Layout {
    layout::<C>(Vbmi::NEEDS, multiply::<C>, TILE)
}

pub(super) static LAYOUTS: &[Layout] = &layouts_of_levels!(by_vectors);
/// Layouts of the types of ik_llama.cpp.
pub(super) static OF_IK: &[Layout] = &layouts_of_ik_levels!(by_vectors);

pub(super) fn act_bytes(n: usize) -> usize {
    levels::act_bytes(n, ACT)
}

fn arrange(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let _vbmi = Vbmi::of(isa);
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        // SAFETY: `_vbmi` proves these instructions.
        unsafe { arrange_block(act, out) };
    }
}

/// The sums come from the quants themselves: whatever the stored ones are, the products are those of the definition.
#[target_feature(enable = "avx512f,avx512bw")]
fn arrange_block(act: &[u8; Q8_K], out: &mut [u8; ACT]) {
    let quants = &act[info::Q8_K.at(Part::Codes)..][..BLOCK];
    out[..BLOCK].copy_from_slice(quants);
    let mut negated = [0; 16];
    for (negated, q) in negated.iter_mut().zip(quants.as_chunks::<16>().0) {
        *negated = -q.iter().map(|q| i16::from(q.cast_signed())).sum::<i16>();
    }
    for (out, negated) in out[SUMS..STARTS].as_chunks_mut().0.iter_mut().zip(negated) {
        *out = negated.to_le_bytes();
    }
    for (out, [a, b]) in out[STARTS..SCALE].as_chunks_mut().0.iter_mut().zip(negated.as_chunks().0) {
        *out = (i32::from(RAISED) * i32::from(a + b)).to_le_bytes();
    }
    out[SCALE..][..4].copy_from_slice(&act[info::Q8_K.at(Part::Scale)..][..4]);
}

/// The scale of unit `j` of a block whose units have one each.
///
/// # Safety
/// The block's scales and what lies before them are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn scale_of_unit<C: Levels>(block: *const u8, j: usize) -> __m512i {
    // Read three bytes further to the front, byte 0 of a dword is its highest.
    // SAFETY: the lines are there, and more than three bytes before the first.
    let dwords = unsafe { Zmm::load(block.wrapping_add(C::SCALES + 64 * (j / 4) + j % 4).wrapping_sub(3)) };
    _mm512_srai_epi32::<24>(dwords)
}

/// True if sums of activations are multiplied by corrections; otherwise integers have starts.
const fn corrected<C: Levels>() -> bool {
    C::OF_16 || C::RAISED != 0
}

/// The bytes of the scales of both halves of a unit as the upper bytes of words: of four units, or of two with two each.
const fn upper_bytes(of_16: bool) -> [[u8; 16]; 4] {
    let mut orders = [[0x80; 16]; 4];
    let mut j = 0;
    while j < 4 {
        let mut row = 0;
        while row < 4 {
            let [first, second] = if of_16 { [2 * (j % 2), 2 * (j % 2) + 1] } else { [j; 2] };
            orders[j][4 * row + 1] = (4 * row + first) as u8;
            orders[j][4 * row + 3] = (4 * row + second) as u8;
            row += 1;
        }
        j += 1;
    }
    orders
}

/// The scales of the two halves of unit `j` of a block, and what their sums of activations, negated, are multiplied by.
///
/// # Safety
/// The block's scales are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn corrections<C: Levels>(block: *const u8, j: usize) -> ([__m512i; 2], __m512i) {
    let orders = const { &upper_bytes(C::OF_16) };
    // SAFETY: the caller's block has this line; an order has 16 bytes.
    let (line, order) = unsafe {
        let line = Zmm::load(block.add(C::SCALES + 64 * (C::SCALE_LINES * j / UNITS)));
        (line, _mm512_broadcast_i32x4(_mm_loadu_si128(orders[j % 4].as_ptr().cast())))
    };
    let words = _mm512_shuffle_epi8(line, order);
    let (scales, correction) = if C::RAISED == 0 {
        (_mm512_srai_epi16::<8>(words), _mm512_srai_epi16::<1>(words))
    } else {
        let scales = match C::ODD {
            true => _mm512_or_si512(_mm512_srai_epi16::<8>(words), _mm512_set1_epi16(1)),
            false => _mm512_srai_epi16::<9>(words),
        };
        let raised = _mm512_test_epi16_mask(words, _mm512_set1_epi16(0x0100));
        let excess = i16::from(RAISED);
        let (plain, less) = (_mm512_set1_epi16(excess), _mm512_set1_epi16(excess - C::RAISED));
        (scales, _mm512_mullo_epi16(scales, _mm512_mask_mov_epi16(plain, raised, less)))
    };
    let second = _mm512_srai_epi32::<16>(scales);
    let first = match C::OF_16 {
        true => _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(scales)),
        false => second,
    };
    ([first, second], correction)
}

/// A unit, unpacked.
struct Unit {
    levels: [__m512i; 8],
    scales: [__m512i; 2],
    /// Factors of the negated sums of the activations of both halves.
    correction: __m512i,
}

impl Unit {
    /// # Safety
    /// The block and what lies before it are readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn new<C: Levels>(lookup: Lookup, block: *const u8, j: usize) -> Unit {
        // SAFETY: as the caller says.
        unsafe {
            let levels = lookup.unit::<C>(block.add(C::CODES + 64 * C::UNIT_LINES * j));
            if !corrected::<C>() {
                let scale = scale_of_unit::<C>(block, j);
                return Unit { levels, scales: [scale; 2], correction: _mm512_setzero_si512() };
            }
            let (scales, correction) = corrections::<C>(block, j);
            Unit { levels, scales, correction }
        }
    }

    /// `start` plus the products of the weights from dword `FIRST` to before `END` with the activations at `q`.
    ///
    /// # Safety
    /// The processor has these instructions (the functions of tokens are inlined always, and so without the features'
    /// attribute, which forbids that); the activations of the unit are readable.
    #[inline(always)]
    unsafe fn dot<const FIRST: usize, const END: usize>(
        &self,
        start: __m512i,
        q: *const u8,
        prefetch: impl Fn(usize),
    ) -> __m512i {
        // SAFETY: as the caller says.
        unsafe {
            let mut sum = start;
            unroll!(K in [0 1 2 3 4 5 6 7] {
                if (FIRST..END).contains(&K) {
                    prefetch(K);
                    sum = _mm512_dpbusd_epi32(sum, self.levels[K], Zmm::broadcast(q.add(4 * K)));
                }
            });
            sum
        }
    }

    /// `isum` plus the unit's products times their scales.
    ///
    /// # Safety
    /// `y` is a block of arranged activations, of which this is unit `j`.
    #[inline(always)]
    unsafe fn add<C: Levels>(&self, isum: __m512i, y: *const u8, j: usize, prefetch: impl Fn(usize) + Copy) -> __m512i {
        // SAFETY: as the caller says.
        unsafe {
            let q = y.add(32 * j);
            if !corrected::<C>() {
                let sum = self.dot::<0, 8>(Zmm::broadcast(y.add(STARTS + 4 * j)), q, prefetch);
                return _mm512_add_epi32(isum, _mm512_mullo_epi32(sum, self.scales[0]));
            }
            let zero = _mm512_setzero_si512();
            let isum = Zmm::add_scaled_at::<0>(isum, self.correction, y.add(SUMS + 4 * j));
            if C::OF_16 {
                let first = _mm512_mullo_epi32(self.dot::<0, 4>(zero, q, prefetch), self.scales[0]);
                let second = _mm512_mullo_epi32(self.dot::<4, 8>(zero, q, prefetch), self.scales[1]);
                _mm512_add_epi32(isum, _mm512_add_epi32(first, second))
            } else {
                let sum = self.dot::<0, 8>(zero, q, prefetch);
                _mm512_add_epi32(isum, _mm512_mullo_epi32(sum, self.scales[0]))
            }
        }
    }

    /// `sum + (d * scale) * isum` of the unit's integer.
    ///
    /// # Safety
    /// As [`Unit::add`].
    #[inline(always)]
    unsafe fn each(&self, sum: __m512, d: __m512, y: *const u8, j: usize, prefetch: impl Fn(usize)) -> __m512 {
        // SAFETY: as the caller says.
        unsafe {
            let isum = self.dot::<0, 8>(Zmm::broadcast(y.add(STARTS + 4 * j)), y.add(32 * j), prefetch);
            Zmm::step(sum, _mm512_mul_ps(d, _mm512_cvtepi32_ps(self.scales[0])), isum)
        }
    }
}

/// The scales that rows have for a block: their own, with which a group begins, or that of the block.
///
/// # Safety
/// The processor has AVX-512; the group at `w` and its block are readable.
#[inline(always)]
unsafe fn scales_of_rows<C: Levels>(w: *const u8, block: *const u8) -> __m512 {
    // SAFETY: sixteen floats, or as many half floats.
    unsafe {
        match C::HEAD {
            0 => Zmm::halves(block),
            _ => Zmm::load_floats(w.cast()),
        }
    }
}

pub(super) fn multiply<C: Levels>(call: Call<'_>) {
    let Call { group, acts, n, ahead, out, .. } = call.check(const { &by_vectors::<C>() });
    let stride = act_bytes(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let acts = Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride };
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths, and no portion has more than `TILE` tokens.
        unsafe {
            match out.len() / ROWS {
                1 => with_prefetch!(ahead => one::<C>(group.as_ptr(), acts, ahead, out)),
                _ => many::<C>(group.as_ptr(), acts, ahead, out),
            }
        }
    }
}

/// The products of a group with one token.
///
/// # Safety
/// The processor has these instructions; the group and the token's activations are readable, `out` has 16 floats.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
unsafe fn one<C: Levels>(w: *const u8, acts: Acts, ahead: impl PrefetchDistance, out: &mut [f32]) {
    let lookup = Lookup::new::<C, RAISED>();
    let mut sum = _mm512_setzero_ps();
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of the activations too, as the caller says.
        unsafe {
            let (block, y) = (w.add(C::GROUP_HEAD + C::BYTES_OF_GROUP * b), acts.at.add(ACT * b));
            let dy = _mm512_castsi512_ps(Zmm::broadcast(y.add(SCALE)));
            let d = _mm512_mul_ps(scales_of_rows::<C>(w, block), dy);
            let mut isum = _mm512_setzero_si512();
            for j in 0..UNITS {
                let unit = Unit::new::<C>(lookup, block, j);
                let from = block.wrapping_add(C::BYTES_OF_GROUP / UNITS * j);
                let prefetch = |k| ahead.share(from, const { C::BYTES_OF_GROUP.div_ceil(UNITS) }, k, 8);
                match C::STEP {
                    GroupStep::Each => sum = unit.each(sum, d, y, j, prefetch),
                    _ => isum = unit.add::<C>(isum, y, j, prefetch),
                }
            }
            if C::STEP != GroupStep::Each {
                sum = Zmm::step(sum, d, isum);
            }
        }
    }
    // SAFETY: sixteen floats.
    unsafe { put::<C>(sum, out.as_mut_ptr()) }
}

/// The products of a group with up to [`TILE`] tokens.
///
/// # Safety
/// The processor has these instructions; the group and the activations of as many tokens as there is room for in `out`
/// are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
unsafe fn many<C: Levels>(w: *const u8, acts: Acts, ahead: usize, out: &mut [f32]) {
    let lookup = Lookup::new::<C, RAISED>();
    let tokens = out.len() / ROWS;
    out.fill(0.0);
    let out = out.as_mut_ptr();
    // The integers of a block, or the bits of the product of its scales.
    let mut of_block = [_mm512_setzero_si512(); TILE];
    let of_block = &mut of_block[..tokens];
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of all activations too, as the caller says; `out` has 16 floats for each token.
        unsafe {
            let (block, y) = (w.add(C::GROUP_HEAD + C::BYTES_OF_GROUP * b), acts.at.add(ACT * b));
            let d = scales_of_rows::<C>(w, block);
            let product = |t: usize| {
                let dy = Zmm::broadcast(y.add(acts.stride * t + SCALE));
                _mm512_mul_ps(d, _mm512_castsi512_ps(dy))
            };
            for (t, of_block) in of_block.iter_mut().enumerate() {
                *of_block = match C::STEP {
                    GroupStep::Each => _mm512_castps_si512(product(t)),
                    _ => _mm512_setzero_si512(),
                };
            }
            for j in 0..UNITS {
                let from = block.wrapping_add(C::BYTES_OF_GROUP / UNITS * j);
                let bytes = const { C::BYTES_OF_GROUP.div_ceil(UNITS) };
                ahead.share(from, bytes, 0, 2);
                let unit = Unit::new::<C>(lookup, block, j);
                ahead.share(from, bytes, 1, 2);
                for (t, of_block) in of_block.iter_mut().enumerate() {
                    let y = y.add(acts.stride * t);
                    // The rows of many tokens lie too far apart for the processor to do that by itself.
                    if j < ACT / 64 {
                        prefetch::line_to_first(y.wrapping_add(ACT + 64 * j));
                    }
                    match C::STEP {
                        GroupStep::Each => {
                            let (d, out) = (_mm512_castsi512_ps(*of_block), out.add(ROWS * t));
                            _mm512_storeu_ps(out, unit.each(_mm512_loadu_ps(out), d, y, j, |_| ()));
                        }
                        _ => *of_block = unit.add::<C>(*of_block, y, j, |_| ()),
                    }
                }
            }
            if C::STEP != GroupStep::Each {
                for (t, isum) in of_block.iter().enumerate() {
                    let out = out.add(ROWS * t);
                    _mm512_storeu_ps(out, Zmm::step(_mm512_loadu_ps(out), product(t), *isum));
                }
            }
        }
    }
    for t in 0..tokens {
        // SAFETY: sixteen floats of each token.
        unsafe { put::<C>(_mm512_loadu_ps(out.add(ROWS * t)), out.add(ROWS * t)) }
    }
}

/// Writes the outputs whose sums are known but for the type's last factor.
///
/// # Safety
/// `out` has room for 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn put<C: Levels>(sums: __m512, out: *mut f32) {
    // SAFETY: as the caller says.
    unsafe { _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_set1_ps(C::LAST), sums)) }
}
