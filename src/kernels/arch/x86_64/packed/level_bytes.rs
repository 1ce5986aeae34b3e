//! The types of [`super::levels`] by AVX-512: sixteen rows are the lanes.
//!
//! VBMI looks a byte up by its low six bits, in which a code stands among bits of its neighbours: tables that repeat
//! what does not depend on those need neither masks nor most of the shifts. Levels are raised by 128, which makes them
//! bytes without a sign for `dpbusd`; the integer of a group starts at what that adds to it, negated.
//!
//! A unit is unpacked once, to eight registers, and all tokens run over it. What they have of a block stays in the
//! first-level cache, and since no token waits for another the processor runs several at once by itself.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::super::grouped::GroupStep;
use super::levels::{self, Levels, UNITS, layouts_of_levels};
use super::zmm::Zmm;
use super::{PrefetchDistance, with_prefetch};
use crate::Isa;
use crate::arch::x86_64::rows::chains::Acts;
use crate::arch::x86_64::rows::lanes::{Lanes, unroll};
use crate::proof::{Needs, Proof, Vbmi};
use crate::shared::packed::k_quants::{BLOCK, Q8_K, ROWS};
use crate::shared::packed::{Call, Layout, Multiply};

/// Tokens whose integers are kept side by side.
const TILE: usize = 32;
/// Offset of raised levels.
const RAISED: u8 = 128;
/// Arranged activations of a block: the quants, what the integers of each 16 of them start at, i32, the same of each
/// 32, and the scale.
pub(super) const ACT: usize = 384;
const STARTS_OF_16: usize = BLOCK;
const STARTS_OF_32: usize = STARTS_OF_16 + 64;
pub(super) const SCALE: usize = STARTS_OF_32 + 32;

/// The layout of a type with a product that runs best with up to `tile` tokens.
pub(super) const fn layout<C: Levels>(needs: Needs, multiply: Multiply, tile: usize) -> Layout {
    levels::layout::<C>(needs, (act_bytes, arrange), multiply, tile)
}

const fn by_vectors<C: Levels>() -> Layout {
    layout::<C>(Vbmi::NEEDS, multiply::<C>, TILE)
}

pub(super) static LAYOUTS: &[Layout] = &layouts_of_levels!(by_vectors);

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
    let mut starts = [0; 16];
    for (start, q) in starts.iter_mut().zip(quants.as_chunks::<16>().0) {
        let sum: i32 = q.iter().map(|q| i32::from(q.cast_signed())).sum();
        *start = -i32::from(RAISED) * sum;
    }
    let (of_16, rest) = out[STARTS_OF_16..].split_at_mut(STARTS_OF_32 - STARTS_OF_16);
    for (out, start) in of_16.as_chunks_mut().0.iter_mut().zip(starts) {
        *out = start.to_le_bytes();
    }
    for (out, [a, b]) in rest.as_chunks_mut().0.iter_mut().zip(starts.as_chunks().0) {
        *out = (a + b).to_le_bytes();
    }
    out[SCALE..][..4].copy_from_slice(&act[info::Q8_K.at(Part::Scale)..][..4]);
}

/// Levels of all bytes whose code begins at bit 0, 3 and 2, each raised by `raise`; codes of four bits begin at bit 0.
const fn tables<C: Levels>(raise: u8) -> [[u8; 64]; 3] {
    let (values, count) = C::VALUES;
    let mask = if C::UNIT_LINES == 4 { 15 } else { 7 };
    let mut tables = [[0; 64]; 3];
    let mut i = 0;
    while i < 64 {
        let mut t = 0;
        while t < 3 {
            let code = i >> [0, 3, 2][t] & mask;
            // Codes that are no level stand for nothing; the packing writes none.
            if code < count {
                tables[t][i] = values[code].cast_unsigned().wrapping_add(raise);
            }
            t += 1;
        }
        i += 1;
    }
    tables
}

/// The levels by their codes.
#[derive(Clone, Copy)]
pub(super) struct Lookup([__m512i; 3]);

impl Lookup {
    /// Raised by `RAISE`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn new<C: Levels, const RAISE: u8>() -> Lookup {
        let tables = const { &tables::<C>(RAISE) };
        // SAFETY: a table has 64 bytes.
        let [a, b, c] = tables.each_ref().map(|table| unsafe { Zmm::load(table.as_ptr()) });
        Lookup([a, b, c])
    }

    /// The levels of a unit, a dword of four weights of each row after the other.
    ///
    /// # Safety
    /// The lines of the unit are readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi")]
    pub(super) unsafe fn unit<C: Levels>(self, unit: *const u8) -> [__m512i; 8] {
        let [at_0, at_3, at_2] = self.0;
        // SAFETY: the caller's unit has these lines.
        let line = |i: usize| unsafe { Zmm::load(unit.add(64 * i)) };
        // The bits above the lowest six are ignored, so that bits of the next byte may come in there.
        if C::UNIT_LINES == 4 {
            let [a, b, c, d] = [line(0), line(1), line(2), line(3)];
            [
                _mm512_permutexvar_epi8(a, at_0),
                _mm512_permutexvar_epi8(b, at_0),
                _mm512_permutexvar_epi8(c, at_0),
                _mm512_permutexvar_epi8(d, at_0),
                _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(a), at_0),
                _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(b), at_0),
                _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(c), at_0),
                _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(d), at_0),
            ]
        } else {
            let [a, b, c] = [line(0), line(1), line(2)];
            // Bits of the mask from the first, the others from the second.
            let select = |mask: u8, first, second| {
                let mask = _mm512_set1_epi8(mask.cast_signed());
                _mm512_ternarylogic_epi32::<0xCA>(mask, first, second)
            };
            let left = select(0xC0, a, _mm512_srli_epi16::<2>(b));
            let left = select(0xF0, left, _mm512_srli_epi16::<4>(c));
            [
                _mm512_permutexvar_epi8(a, at_0),
                _mm512_permutexvar_epi8(b, at_0),
                _mm512_permutexvar_epi8(c, at_0),
                _mm512_permutexvar_epi8(a, at_3),
                _mm512_permutexvar_epi8(b, at_3),
                _mm512_permutexvar_epi8(c, at_3),
                _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(left), at_3),
                _mm512_permutexvar_epi8(left, at_2),
            ]
        }
    }
}

/// The scales of the two halves of unit `j` of a block.
///
/// # Safety
/// The block's scales and what lies before them are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn scales_of_unit<C: Levels>(block: *const u8, j: usize) -> [__m512i; 2] {
    let scale = |line: usize, byte: usize| {
        // Read three bytes further to the front, byte 0 of a dword is its highest.
        // SAFETY: the lines are there, and more than three bytes before the first.
        let dwords = unsafe { Zmm::load(block.add(C::SCALES + 64 * line + byte - 3)) };
        _mm512_srai_epi32::<24>(dwords)
    };
    if C::OF_16 { [scale(j / 2, 2 * (j % 2)), scale(j / 2, 2 * (j % 2) + 1)] } else { [scale(j / 4, j % 4); 2] }
}

/// A unit, unpacked.
struct Unit {
    levels: [__m512i; 8],
    scales: [__m512i; 2],
}

impl Unit {
    /// # Safety
    /// The block is readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi")]
    unsafe fn new<C: Levels>(lookup: Lookup, block: *const u8, j: usize) -> Unit {
        // SAFETY: as the caller says.
        unsafe {
            Unit {
                levels: lookup.unit::<C>(block.add(C::CODES + 64 * C::UNIT_LINES * j)),
                scales: scales_of_unit::<C>(block, j),
            }
        }
    }

    /// `start` plus the products of the weights from dword `FIRST` to before `END` with the activations at `q`.
    ///
    /// # Safety
    /// The processor has these instructions (the functions of tokens are inlined always, and so without the features'
    /// attribute, which forbids that); the start and the activations of the unit are readable.
    #[inline(always)]
    unsafe fn dot<const FIRST: usize, const END: usize>(
        &self,
        start: *const u8,
        q: *const u8,
        prefetch: impl Fn(usize),
    ) -> __m512i {
        // SAFETY: as the caller says.
        unsafe {
            let mut sum = Zmm::broadcast(start);
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
            if C::OF_16 {
                let starts = y.add(STARTS_OF_16 + 8 * j);
                let first = _mm512_mullo_epi32(self.dot::<0, 4>(starts, q, prefetch), self.scales[0]);
                let second = _mm512_mullo_epi32(self.dot::<4, 8>(starts.add(4), q, prefetch), self.scales[1]);
                _mm512_add_epi32(isum, _mm512_add_epi32(first, second))
            } else {
                let sum = self.dot::<0, 8>(y.add(STARTS_OF_32 + 4 * j), q, prefetch);
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
            let isum = self.dot::<0, 8>(y.add(STARTS_OF_32 + 4 * j), y.add(32 * j), prefetch);
            Zmm::step(sum, _mm512_mul_ps(d, _mm512_cvtepi32_ps(self.scales[0])), isum)
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
            let (block, y) = (w.add(C::BYTES_OF_GROUP * b), acts.at.add(ACT * b));
            let dy = _mm512_castsi512_ps(Zmm::broadcast(y.add(SCALE)));
            let d = _mm512_mul_ps(Zmm::halves(block), dy);
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
            let (block, y) = (w.add(C::BYTES_OF_GROUP * b), acts.at.add(ACT * b));
            let d = Zmm::halves(block);
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
