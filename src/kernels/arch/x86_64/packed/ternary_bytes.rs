//! Ternary codes of 32 rows unpacked to bytes, and their products with several tokens: the bytes of
//! [`crate::shared::packed::t2`] or of [`super::t5`].
//!
//! Two multipliers with a latency of five want ten sums in flight at least, and 32 rows leave room for those of eight
//! tokens once the codes need no masks: a block is unpacked once, 8 KB in the first-level cache, and all tokens go over
//! it. Their sums stay in memory from block to block.
//!
//! Unpacked, a line of 64 packed bytes, a dword of 16 rows, becomes one line for each of its planes: line k of 16 rows
//! holds columns 4k .. 4k + 4 of each, which meet dword k of a token. It is also a line of a tile of AMX.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::PrefetchDistance;
use super::ternary_sums::{Halves, block_step, load, row_step};
use super::trits::{self, DIGITS, Lookup};
use crate::shared::packed::t2::{Act, ROWS, SCALES, UNIT, UNIT_BYTES, act_bytes_q8_k};

/// Tokens that share registers.
const TOKENS: usize = 8;
/// Columns of a block.
pub(super) const COLUMNS: usize = 256;
/// Bytes of 16 rows of an unpacked block.
pub(super) const HALF: usize = 16 * COLUMNS;

/// How codes of 32 rows are packed.
pub(super) trait Codes {
    /// Columns of a unit: a block has one or two.
    const UNIT: usize;
    /// Packed bytes of a unit.
    const BYTES: usize;
    /// Bytes of a block and its scales.
    const BLOCK: usize = SCALES + COLUMNS / Self::UNIT * Self::BYTES;

    /// Unpacks 16 rows of a unit, the first or the second half: line k gets columns 4k .. 4k + 4 of every row. `LOWER`:
    /// weights, which are codes less 1, instead of codes. Prefetches the lines that lie `ahead` bytes behind.
    ///
    /// # Safety
    /// AVX-512 F and BW, and what the codes were made with; a whole unit, room for `UNIT / 4` lines at `to`, which is
    /// aligned to 64.
    unsafe fn unpack<const LOWER: bool>(&self, unit: *const u8, half: usize, ahead: usize, to: *mut u8);
}

/// Codes of two bits, whose planes lie as in TQ2_0 or the other way round.
pub(super) struct TwoBits<const REVERSED: bool>;

/// Five digits to a byte.
pub(super) struct Trits(Lookup);

impl Trits {
    /// With the tables of the digits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn new() -> Trits {
        Trits(Lookup::new())
    }
}

impl<const REVERSED: bool> Codes for TwoBits<REVERSED> {
    const UNIT: usize = UNIT;
    const BYTES: usize = UNIT_BYTES;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn unpack<const LOWER: bool>(&self, unit: *const u8, half: usize, ahead: usize, to: *mut u8) {
        // SAFETY: the caller's unit has eight chunks of two halves, and 32 lines have room.
        unsafe { unpack::<LOWER, REVERSED>(unit.add(64 * half), ahead, to) }
    }
}

impl Codes for Trits {
    const UNIT: usize = COLUMNS;
    const BYTES: usize = DIGITS;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn unpack<const LOWER: bool>(&self, unit: *const u8, half: usize, ahead: usize, to: *mut u8) {
        // SAFETY: the caller's block has 13 chunks of two halves, and 64 lines have room.
        unsafe { trits::unpack::<LOWER>(self.0, unit.add(64 * half), ahead, to) }
    }
}

/// 8 chunks of 16 rows, each 128 bytes after the one before: plane s of chunk c is line 8 s + c, or from the last plane
/// to the first.
///
/// # Safety
/// AVX-512 F and BW; eight chunks at `from`, room for 32 lines at `to`, which is aligned to 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack<const LOWER: bool, const REVERSED: bool>(from: *const u8, ahead: usize, to: *mut u8) {
    // By the low and by the high two bits of a nibble.
    let weight = |code: i32| if LOWER { code - 1 } else { code };
    let word = |codes: [i32; 4]| i32::from_le_bytes(codes.map(|code| weight(code).to_le_bytes()[0]));
    let low = _mm512_set1_epi32(word([0, 1, 2, 3]));
    let high = _mm512_broadcast_i32x4(_mm_setr_epi32(word([0; 4]), word([1; 4]), word([2; 4]), word([3; 4])));
    let nibble = _mm512_set1_epi8(15);
    for c in 0..8 {
        // SAFETY: eight chunks, and 32 lines.
        unsafe {
            let codes = load(from.add(128 * c));
            ahead.line(from.wrapping_add(128 * c));
            let first = _mm512_and_si512(codes, nibble);
            let second = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), nibble);
            let planes = [
                _mm512_shuffle_epi8(low, first),
                _mm512_shuffle_epi8(high, first),
                _mm512_shuffle_epi8(low, second),
                _mm512_shuffle_epi8(high, second),
            ];
            for (s, plane) in planes.into_iter().enumerate() {
                let line = 8 * if REVERSED { 3 - s } else { s } + c;
                _mm512_store_si512(to.add(64 * line).cast(), plane);
            }
        }
    }
}

/// An unpacked block: the lines of the first 16 rows, then those of the others.
#[repr(C, align(64))]
struct Bytes([[u8; HALF]; 2]);

/// Unpacks `units` units.
///
/// # Safety
/// The processor has the instructions of `C`; `units` units, two at most, are readable at `from`, and `to` is writable.
#[inline(always)]
unsafe fn unpack_units<C: Codes>(codes: &C, from: *const u8, units: usize, ahead: usize, to: *mut Bytes) {
    for half in 0..2 {
        for unit in 0..units {
            // SAFETY: the caller has the units, of which half a block has no more.
            unsafe {
                let to = (&raw mut (*to).0[half]).cast::<u8>().add(16 * C::UNIT * unit);
                codes.unpack::<false>(from.add(unit * C::BYTES), half, ahead, to);
            }
        }
    }
}

/// `sums[t] += weights * q[t]`, `lines` dwords of columns.
///
/// # Safety
/// The processor has these features; `weights` has `lines` unpacked dwords of columns, and `T` tokens have as many
/// dwords of activations at `q`, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn multiply<const T: usize>(
    weights: *const Bytes,
    q: *const u8,
    stride: usize,
    lines: usize,
    mut sums: [Halves; T],
) -> [Halves; T] {
    let (first, second) = (weights.cast::<u8>(), weights.cast::<u8>().wrapping_add(HALF));
    for k in 0..lines {
        // SAFETY: the caller has `lines` lines of weights, and as many dwords of each token.
        unsafe {
            let w = [load(first.add(64 * k)), load(second.add(64 * k))];
            for (t, sums) in sums.iter_mut().enumerate() {
                let q = q.add(t * stride + 4 * k).cast::<i32>().read_unaligned();
                let q = _mm512_set1_epi32(q);
                *sums = [_mm512_dpbusd_epi32(sums[0], w[0], q), _mm512_dpbusd_epi32(sums[1], w[1], q)];
            }
        }
    }
    sums
}

/// Calls `$tile::<T>($arguments)` for the `$tokens` tokens of a tile, of which there are 1 to 8.
macro_rules! of_tokens {
    ($tokens:expr, $tile:ident($($argument:expr),*)) => {
        match $tokens {
            1 => $tile::<1>($($argument),*),
            2 => $tile::<2>($($argument),*),
            3 => $tile::<3>($($argument),*),
            4 => $tile::<4>($($argument),*),
            5 => $tile::<5>($($argument),*),
            6 => $tile::<6>($($argument),*),
            7 => $tile::<7>($($argument),*),
            _ => $tile::<TOKENS>($($argument),*),
        }
    };
}

/// Products of blocks with scales.
///
/// # Safety
/// AVX-512 F, BW and VNNI, and what the codes were made with; lengths as [`super::check`] has them.
#[inline(always)]
pub(super) unsafe fn blocks<C: Codes>(codes: &C, group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    let stride = act_bytes_q8_k(n);
    let mut weights = MaybeUninit::<Bytes>::uninit();
    out.fill(0.0);
    for (b, block) in group.chunks_exact(C::BLOCK).enumerate() {
        ahead.line(block.as_ptr());
        // SAFETY: a block has its units of codes, and its activations are there.
        unsafe {
            let units = COLUMNS / C::UNIT;
            unpack_units(codes, block.as_ptr().add(SCALES), units, ahead, weights.as_mut_ptr());
            let acts = acts.chunks(TOKENS * stride);
            for (acts, out) in acts.zip(out.chunks_mut(TOKENS * ROWS)) {
                let first = Act::new(&acts[..stride], n);
                let tokens = out.len() / ROWS;
                of_tokens!(tokens, block_of(&weights, block, first, b, stride, out));
            }
        }
    }
}

/// Block b of T tokens, the first of which is `act`.
///
/// # Safety
/// The processor has these features; `weights` are the unpacked codes of block `b`, which starts with its scales, `T`
/// tokens have its activations, scale and sum, `stride` bytes apart, and `out` has 32 sums of each.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn block_of<const T: usize>(
    weights: &MaybeUninit<Bytes>,
    block: &[u8],
    act: Act,
    b: usize,
    stride: usize,
    out: &mut [f32],
) {
    // SAFETY: the caller has unpacked the block, and its T tokens have activations, scales and sums of it.
    unsafe {
        let sum = |t: usize| act.sums.byte_add(t * stride).add(b).read_unaligned();
        let start = std::array::from_fn(|t| [_mm512_set1_epi32(-sum(t)); 2]);
        let q = act.q.add(COLUMNS * b);
        let isums = multiply::<T>(weights.as_ptr(), q, stride, COLUMNS / 4, start);
        for (t, (isums, out)) in isums.iter().zip(out.chunks_exact_mut(ROWS)).enumerate() {
            let dy = _mm512_set1_ps(act.scales.byte_add(t * stride).add(b).read_unaligned());
            for (h, isum) in isums.iter().enumerate() {
                let out = out.as_mut_ptr().add(16 * h);
                let scales = block.as_ptr().add(SCALES / 2 * h);
                let sum = block_step(_mm512_loadu_ps(out), *isum, dy, scales);
                _mm512_storeu_ps(out, sum);
            }
        }
    }
}

/// Products of types with one scale; rows of activations are `stride` bytes apart.
///
/// # Safety
/// AVX-512 F, BW and VNNI, and what the codes were made with; lengths as [`super::check`] has them.
#[inline(always)]
pub(super) unsafe fn rows<C: Codes>(
    codes: &C,
    group: &[u8],
    acts: &[u8],
    stride: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let mut weights = MaybeUninit::<Bytes>::uninit();
    // Integer sums have the place of the outputs until all are known.
    out.fill(0.0);
    for (b, units) in group.chunks(COLUMNS / C::UNIT * C::BYTES).enumerate() {
        let count = units.len() / C::BYTES;
        // SAFETY: units and their activations are there.
        unsafe {
            unpack_units(codes, units.as_ptr(), count, ahead, weights.as_mut_ptr());
            let acts = acts.chunks(TOKENS * stride);
            for (acts, out) in acts.zip(out.chunks_mut(TOKENS * ROWS)) {
                let q = acts.as_ptr().add(64 + COLUMNS * b);
                let (tokens, lines) = (out.len() / ROWS, C::UNIT / 4 * count);
                of_tokens!(tokens, units_of(&weights, q, stride, lines, out));
            }
        }
    }
    for (act, out) in acts.chunks_exact(stride).zip(out.chunks_exact_mut(ROWS)) {
        // SAFETY: 32 sums, of which the loop above has left the bits.
        unsafe { finish(act, out) };
    }
}

/// The outputs of a token, in the place of the bits of its integer sums.
#[inline]
#[target_feature(enable = "avx512f")]
fn finish(act: &[u8], out: &mut [f32]) {
    for out in out.as_chunks_mut::<16>().0 {
        // SAFETY: 16 sums.
        unsafe {
            let sum = _mm512_loadu_si512(out.as_ptr().cast());
            _mm512_storeu_ps(out.as_mut_ptr(), row_step(sum, act));
        }
    }
}

/// Adds the integer sums of T tokens to those whose bits are in `out`.
///
/// # Safety
/// The processor has these features; `weights` has `lines` unpacked dwords of columns, `T` tokens have as many dwords
/// of activations at `q`, `stride` bytes apart, and `out` has 32 sums of each.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn units_of<const T: usize>(
    weights: &MaybeUninit<Bytes>,
    q: *const u8,
    stride: usize,
    lines: usize,
    out: &mut [f32],
) {
    // SAFETY: the caller has unpacked the units, and T tokens have activations of them and 32 sums each.
    unsafe {
        let out = out.as_mut_ptr();
        let at = |t: usize, h: usize| out.add(t * ROWS + 16 * h);
        let start = std::array::from_fn(|t| [0, 1].map(|h| _mm512_loadu_si512(at(t, h).cast())));
        let sums = multiply::<T>(weights.as_ptr(), q, stride, lines, start);
        for (t, sums) in sums.into_iter().enumerate() {
            for (h, sum) in sums.into_iter().enumerate() {
                _mm512_storeu_si512(at(t, h).cast(), sum);
            }
        }
    }
}
