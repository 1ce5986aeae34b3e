//! 2-bit ternary codes of 32 rows unpacked to bytes, and their products with many tokens.
//!
//! Two multipliers with a latency of five want ten sums in flight at least, and 32 rows leave room for those of eight tokens once
//! the codes need no masks: a block is unpacked once, 8 KB in the first-level cache, and all tokens go over it. Their
//! sums stay in memory from block to block.
//!
//! Unpacked, a line of 64 packed bytes, dword c of 16 rows, becomes four lines, one for each of its planes: line k of 16 rows
//! holds columns 4k .. 4k + 4 of each, which meet dword k of a token. It is also a line of a tile of AMX.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::prefetch;
use super::t2::{self, Act, BLOCK, Halves, ROWS, SCALES, UNIT, UNIT_BYTES};

/// Tokens from which on unpacking pays.
pub(super) const FROM: usize = 16;
/// Tokens that share registers.
const TOKENS: usize = 8;
/// Columns of a block.
const COLUMNS: usize = 256;
/// Bytes of 16 rows of an unpacked block.
pub(super) const HALF: usize = 16 * COLUMNS;

/// The codes of 8 chunks of 16 rows, each 128 bytes after the one before, as bytes: plane s of chunk c is
/// line 8 s + c, or from the last plane to the first. `LOWER`: weights, which are codes less 1, instead of codes.
///
/// # Safety
/// AVX-512 F and BW; eight chunks at `from`, room for 32 lines at `to`, which is aligned to 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn unpack<const LOWER: bool, const REVERSED: bool>(from: *const u8, to: *mut u8) {
    // By the low and by the high two bits of a nibble.
    let weight = |code: i32| if LOWER { code - 1 } else { code };
    let word =
        |codes: [i32; 4]| i32::from_le_bytes(codes.map(|code| weight(code).to_le_bytes()[0]));
    let low = _mm512_set1_epi32(word([0, 1, 2, 3]));
    let high = _mm512_broadcast_i32x4(_mm_setr_epi32(
        word([0; 4]),
        word([1; 4]),
        word([2; 4]),
        word([3; 4]),
    ));
    let nibble = _mm512_set1_epi8(15);
    for c in 0..8 {
        // SAFETY: eight chunks, and 32 lines.
        unsafe {
            let codes = t2::load(from.add(128 * c));
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

/// Unpacks `units` units of codes, at most two.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack_units<const REVERSED: bool>(from: *const u8, units: usize, to: *mut Bytes) {
    for half in 0..2 {
        for unit in 0..units {
            // SAFETY: the caller has the units; half a block has room for two of them.
            unsafe {
                let to = (&raw mut (*to).0[half]).cast::<u8>().add(64 * 32 * unit);
                unpack::<false, REVERSED>(from.add(unit * UNIT_BYTES + 64 * half), to);
            }
        }
    }
}

/// `sums[t] += weights * q[t]`, `lines` dwords of columns.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn multiply<const T: usize>(
    weights: *const Bytes,
    q: *const u8,
    stride: usize,
    lines: usize,
    mut sums: [Halves; T],
) -> [Halves; T] {
    let (first, second) = (
        weights.cast::<u8>(),
        weights.cast::<u8>().wrapping_add(HALF),
    );
    for k in 0..lines {
        // SAFETY: the caller has so many lines and dwords.
        unsafe {
            let w = [t2::load(first.add(64 * k)), t2::load(second.add(64 * k))];
            for (t, sums) in sums.iter_mut().enumerate() {
                let q = q.add(t * stride + 4 * k).cast::<i32>().read_unaligned();
                let q = _mm512_set1_epi32(q);
                *sums = [
                    _mm512_dpbusd_epi32(sums[0], w[0], q),
                    _mm512_dpbusd_epi32(sums[1], w[1], q),
                ];
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

/// Products of TQ2_0's blocks.
///
/// # Safety
/// AVX-512 F, BW and VNNI; lengths as [`super::check`] has them.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn blocks(group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    let stride = t2::act_bytes_q8_k(n);
    let mut weights = MaybeUninit::<Bytes>::uninit();
    out.fill(0.0);
    for (b, block) in group.chunks_exact(BLOCK).enumerate() {
        prefetch(block.as_ptr(), BLOCK, ahead);
        // SAFETY: a block has two units of codes, and its activations are there.
        unsafe {
            unpack_units::<false>(block.as_ptr().add(SCALES), 2, weights.as_mut_ptr());
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
                let sum = t2::block_step(_mm512_loadu_ps(out), *isum, dy, scales);
                _mm512_storeu_ps(out, sum);
            }
        }
    }
}

/// Products of types with one scale; rows of activations are `stride` bytes apart.
///
/// # Safety
/// AVX-512 F, BW and VNNI; lengths as [`super::check`] has them.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn rows<const REVERSED: bool>(
    group: &[u8],
    acts: &[u8],
    stride: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let mut weights = MaybeUninit::<Bytes>::uninit();
    // Integer sums have the place of the outputs until all are known.
    out.fill(0.0);
    for (b, units) in group.chunks(2 * UNIT_BYTES).enumerate() {
        prefetch(units.as_ptr(), units.len(), ahead);
        let count = units.len() / UNIT_BYTES;
        // SAFETY: units and their activations are there.
        unsafe {
            unpack_units::<REVERSED>(units.as_ptr(), count, weights.as_mut_ptr());
            let acts = acts.chunks(TOKENS * stride);
            for (acts, out) in acts.zip(out.chunks_mut(TOKENS * ROWS)) {
                let q = acts.as_ptr().add(64 + COLUMNS * b);
                let (tokens, lines) = (out.len() / ROWS, UNIT / 4 * count);
                of_tokens!(tokens, units_of(&weights, q, stride, lines, out));
            }
        }
    }
    for (act, out) in acts.chunks_exact(stride).zip(out.chunks_exact_mut(ROWS)) {
        for out in out.as_chunks_mut::<16>().0 {
            // SAFETY: 16 sums, of which the loop above has left the bits.
            unsafe {
                let sum = _mm512_loadu_si512(out.as_ptr().cast());
                _mm512_storeu_ps(out.as_mut_ptr(), t2::row_step(sum, act));
            }
        }
    }
}

/// Adds the integer sums of T tokens to those whose bits are in `out`.
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
