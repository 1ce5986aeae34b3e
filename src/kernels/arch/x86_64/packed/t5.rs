//! Five ternary digits to a byte, 32 rows interleaved: 1.69 bits per weight.
//!
//! A block is 256 columns: the 32 f16 scales where the type has them (64 bytes), then 13 chunks of 2 halves of
//! 64 bytes; in chunk c, half n, row 16n + i owns dword i. All four bytes of a dword are consecutive columns,
//! and digit t of chunk c belongs to the activation dword that TQ1_0 gives it:
//! c + 8t for c < 8, 40 + (c - 8) + 4t for c < 12, 60 + t for c = 12 (four digits only).
//!
//! A byte is `A + 32 j`, A < 32, j < 8, made so that two table lookups and a few masks give all digits at
//! places where products can be summed without shifts. With a0..a2 the first three digits, b0, b1 the last
//! two and `PAIRS[j]` the eight pairs other than (2, 2):
//!
//! ```text
//! A < 27         A = a0 + 3 a1 + 9 a2        (b0, b1) = PAIRS[j]
//! A = 28 + a0    (a1, a2) = PAIRS[j]         (b0, b1) = (2, 2)
//! A = 31         a0 = j, all others 2
//! ```
//!
//! Whatever is larger than the cache is read faster this way than with two bits, by one thread a little,
//! by two a fifth; it takes 1.5 times the instructions of the 2-bit kernel, so what stays in the
//! cache does not. For several tokens a block is unpacked to bytes first ([`super::ternary_bytes`]).

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::mem::take;
use std::sync::LazyLock;

use trine_formats::types::TypeId;
use trine_formats::types::info;

use super::t2::{self, Act, ROWS, SCALES, UNIT_BYTES};
use super::ternary_bytes::{self, Trits};
use super::ternary_sums::{Halves, PLANES, block_step, join, load, mask, row_step, store};
use super::trits::{CHUNKS, DIGITS, Lookup, digits, dword_of, either, encode, pair};
use super::{PrefetchDistance, dword, with_prefetch};
use crate::proof::{Needs, Proof, Vbmi};
use crate::shared::packed::{Arranged, Call, Layout, Multiply};
use crate::shared::ternary::Quantizer;
use crate::{AlignedBytes, Isa};

/// Tokens from which on a block is unpacked to bytes, which takes as long as one token's product.
const FROM: usize = 3;
/// Tokens of a call: unpacked digits are used for all of them, whose sums stay in the first-level cache.
const TILE: usize = 128;
/// Columns of a block.
const COLUMNS: usize = 256;
/// Bytes of a block with scales.
const BLOCK: usize = SCALES + DIGITS;
/// Bytes of a TQ1_0 block of one row: 52 of digits, then the scale.
const TQ1_0_ROW: usize = info::TQ1_0.bytes;

/// The layouts of all ternary types: those with scales are multiplied by `blocks`, the others by `rows`.
pub(super) const fn layouts(needs: Needs, blocks: Multiply, rows: Multiply, tile: usize) -> [Layout; 4] {
    [
        Layout { types: &[TypeId::TQ1_0], pack: pack_tq1_0, ..with_scales(needs, blocks, tile) },
        Layout { types: &[TypeId::TQ2_0], pack: pack_tq2_0, ..with_scales(needs, blocks, tile) },
        Layout { types: &[TypeId::I2_S], ..whole_rows(needs, Quantizer::Floored, rows, tile) },
        Layout { types: &[TypeId::TL1, TypeId::TL2], ..whole_rows(needs, Quantizer::Exact, rows, tile) },
    ]
}

const fn with_scales(needs: Needs, multiply: Multiply, tile: usize) -> Layout {
    Layout {
        name: "5 trits x32",
        dense: true,
        group_bytes: |n| n / COLUMNS * BLOCK,
        ..t2::with_scales(needs, multiply, tile)
    }
}

const fn whole_rows(needs: Needs, quantizer: Quantizer, multiply: Multiply, tile: usize) -> Layout {
    Layout {
        name: "5 trits x32",
        dense: true,
        group_bytes: |n| n.div_ceil(COLUMNS) * DIGITS,
        pack: pack_rows,
        acts: Arranged::Int8 { quantizer, columns: COLUMNS },
        act_bytes: act_bytes_int8,
        ..t2::whole_rows(needs, quantizer, multiply, tile)
    }
}

pub(super) static LAYOUTS: &[Layout] = &layouts(Vbmi::NEEDS, multiply_blocks, multiply_rows, TILE);

/// Bytes of an arranged row of int8 activations.
fn act_bytes_int8(n: usize) -> usize {
    64 + n.next_multiple_of(COLUMNS)
}

/// TQ1_0's bytes, any of the 256, in this code. Digit t of a byte is `(3 (b 3^t mod 256)) / 256`.
static FROM_TQ1_0: LazyLock<[u8; 256]> = LazyLock::new(|| {
    std::array::from_fn(|b| {
        let mut power = b as u8;
        encode(std::array::from_fn(|_| {
            let digit = ((u16::from(power) * 3) >> 8) as u8;
            power = power.wrapping_mul(3);
            digit
        }))
    })
});

fn pack_tq1_0(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = n / COLUMNS * TQ1_0_ROW;
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    let map = &*FROM_TQ1_0;
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(BLOCK).enumerate() {
        let (scales, chunks) = out.split_at_mut(SCALES);
        for row in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let block = &w[row.min(rows - 1) * row_bytes + b * TQ1_0_ROW..][..TQ1_0_ROW];
            scales[2 * row..][..2].copy_from_slice(&block[52..]);
            for c in 0..CHUNKS {
                let to = ((2 * c + row / 16) * 16 + row % 16) * 4;
                let digits = dword(block, c).map(|b| map[usize::from(b)]);
                chunks[to..to + 4].copy_from_slice(&digits);
            }
        }
    }
    true
}

thread_local! {
    /// A group in the 2-bit layout.
    static EXPANDED: RefCell<AlignedBytes> = RefCell::default();
}

/// Gives `f` this thread's scratch of `len` bytes.
fn with_expanded<R>(len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    EXPANDED.with_borrow_mut(|bytes| {
        if bytes.len() < len {
            *bytes = AlignedBytes::new(len);
        }
        f(&mut bytes[..len])
    })
}

/// True if all codes are 0, 1 or 2.
fn ternary(codes: &[u8]) -> bool {
    codes.iter().fold(0, |any, b| any | (b & b >> 1)) & 0x55 == 0
}

fn pack_tq2_0(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let _vbmi = Vbmi::of(isa);
    with_expanded(n / COLUMNS * t2::BLOCK, |two_bit| {
        t2::pack_tq2_0(isa, w, n, two_bit);
        for (from, to) in two_bit.chunks_exact(t2::BLOCK).zip(out.chunks_exact_mut(BLOCK)) {
            to[..SCALES].copy_from_slice(&from[..SCALES]);
            if !ternary(&from[SCALES..]) {
                return false;
            }
            // SAFETY: `_vbmi` proves these instructions. A block has two units of codes and 13 chunks of digits.
            unsafe { from_two_bit::<false>(&from[SCALES..], &mut to[SCALES..]) }
        }
        true
    })
}

fn pack_rows(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let _vbmi = Vbmi::of(isa);
    let blocks = n.div_ceil(COLUMNS);
    with_expanded(blocks * 2 * UNIT_BYTES, |two_bit| {
        // Code 1 is the weight 0; its activations are 0 too.
        two_bit.fill(0x55);
        let units = n.div_ceil(t2::UNIT) * UNIT_BYTES;
        t2::pack_rows(isa, w, n, &mut two_bit[..units]);
        if !ternary(two_bit) {
            return false;
        }
        for (from, to) in two_bit.chunks_exact(2 * UNIT_BYTES).zip(out.chunks_exact_mut(DIGITS)) {
            // SAFETY: `_vbmi` proves these instructions. A block has two units of codes and 13 chunks of digits.
            unsafe { from_two_bit::<true>(from, to) }
        }
        true
    })
}

/// Plane of the 2-bit layout that holds activation dword k: unit, plane, chunk.
const fn place(k: usize) -> (usize, usize, usize) {
    (k / 32, k % 32 / 8, k % 8)
}

/// Recodes one block of the 2-bit layout.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn from_two_bit<const REVERSED: bool>(from: &[u8], to: &mut [u8]) {
    assert!(from.len() == 2 * UNIT_BYTES && to.len() == DIGITS);
    let mut last = [0u8; 64];
    let mut middle = [0u8; 64];
    for (b, byte) in last.iter_mut().enumerate().take(8) {
        // Base 3 of the last pair to 32 j; 8 is (2, 2).
        *byte = 32 * pair(b as u8 % 3, b as u8 / 3).unwrap_or(0);
    }
    for (a, byte) in middle.iter_mut().enumerate().take(27) {
        let a = a as u8;
        *byte = encode([a % 3, a / 3 % 3, a / 9, 2, 2]);
    }
    // SAFETY: 64 bytes each.
    let (last, middle) = unsafe { (load(last.as_ptr()), load(middle.as_ptr())) };
    let three = _mm512_set1_epi8(3);
    for c in 0..CHUNKS {
        for h in 0..2 {
            let mut d = [_mm512_setzero_si512(); 5];
            for (t, d) in d.iter_mut().enumerate().take(digits(c)) {
                let (unit, plane, chunk) = place(dword_of(c, t));
                // SAFETY: two units of 1024 bytes.
                let w = unsafe { load(from.as_ptr().add(unit * UNIT_BYTES + 128 * chunk + 64 * h)) };
                let shift = 2 * if REVERSED { 3 - plane } else { plane };
                let shifted = _mm512_srl_epi16(w, _mm_cvtsi32_si128(shift as i32));
                *d = _mm512_and_si512(shifted, three);
            }
            let thrice = |v: __m512i| _mm512_add_epi8(v, _mm512_add_epi8(v, v));
            let a = _mm512_add_epi8(d[0], thrice(_mm512_add_epi8(d[1], thrice(d[2]))));
            let b = _mm512_add_epi8(d[3], thrice(d[4]));
            let plain = _mm512_add_epi8(a, _mm512_permutexvar_epi8(b, last));
            let both_two = _mm512_cmpeq_epi8_mask(b, _mm512_set1_epi8(8));
            let byte = _mm512_mask_permutexvar_epi8(plain, both_two, a, middle);
            // SAFETY: chunk c, half h lies in `to`.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().add(128 * c + 64 * h).cast(), byte) }
        }
    }
}

/// Adds one block to the accumulators of weight 1, 4, 16 and 64.
///
/// # Safety
/// The processor has these features; `w` points at the chunks of a block, and `q` at its 256 activations.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
unsafe fn block(lookup: Lookup, w: *const u8, q: *const u8, ahead: impl PrefetchDistance, acc: &mut [Halves; PLANES]) {
    for c in 0..CHUNKS {
        let chunk = w.wrapping_add(128 * c);
        // SAFETY: 13 chunks of 128 bytes.
        let w = unsafe { [load(chunk), load(chunk.add(64))] };
        for h in 0..2 {
            ahead.line(chunk.wrapping_add(64 * h));
            let [f, g] = lookup.digits(w[h]);
            // Place of the digit within its byte, and the accumulator of that weight.
            let planes = [
                (0, _mm512_and_si512(f, mask(0))),
                (1, either(f, g, mask(1))),
                (2, either(f, g, mask(2))),
                (0, _mm512_and_si512(g, mask(0))),
                (3, _mm512_and_si512(g, mask(3))),
            ];
            for (t, (weight, plane)) in planes.into_iter().enumerate().take(digits(c)) {
                // SAFETY: 64 dwords of activations.
                let q = unsafe { q.cast::<i32>().add(dword_of(c, t)).read_unaligned() };
                acc[weight][h] = _mm512_dpbusd_epi32(acc[weight][h], plane, _mm512_set1_epi32(q));
            }
        }
    }
}

pub(super) fn multiply_blocks(call: Call<'_>) {
    let Call { group, acts, n, tokens, mut ahead, out, .. } = call.check(&LAYOUTS[0]);
    if tokens >= FROM {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        return unsafe { blocks_unpacked(group, acts, n, ahead, out) };
    }
    let act = t2::act_bytes_q8_k(n);
    for (act, out) in acts.chunks(act).zip(out.chunks_mut(ROWS)) {
        // From the second token on, the group is in the cache.
        let ahead = take(&mut ahead);
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe { with_prefetch!(ahead => blocks_once(group, act, n, ahead, out)) }
    }
}

pub(super) fn multiply_rows(call: Call<'_>) {
    let Call { group, acts, n, tokens, mut ahead, out, .. } = call.check(&LAYOUTS[3]);
    if tokens >= FROM {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        return unsafe { rows_unpacked(group, acts, ahead, act_bytes_int8(n), out) };
    }
    for (act, out) in acts.chunks(act_bytes_int8(n)).zip(out.chunks_mut(ROWS)) {
        let ahead = take(&mut ahead);
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe { with_prefetch!(ahead => row_once(group, act, ahead, out)) }
    }
}

/// # Safety
/// These instructions; lengths as [`Call::check`] has them.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
unsafe fn blocks_unpacked(group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    // SAFETY: the caller has seen to it.
    unsafe { ternary_bytes::blocks(&Trits::new(), group, acts, n, ahead, out) }
}

/// # Safety
/// These instructions; lengths as [`Call::check`] has them.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
unsafe fn rows_unpacked(group: &[u8], acts: &[u8], ahead: usize, stride: usize, out: &mut [f32]) {
    // SAFETY: the caller has seen to it.
    unsafe { ternary_bytes::rows(&Trits::new(), group, acts, stride, ahead, out) }
}

/// # Safety
/// The processor has these features; the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
unsafe fn blocks_once(group: &[u8], act: &[u8], n: usize, ahead: impl PrefetchDistance, out: &mut [f32]) {
    let lookup = Lookup::new();
    let act = Act::new(act, n);
    let mut sums = [_mm512_setzero_ps(); 2];
    for (b, from) in group.chunks_exact(BLOCK).enumerate() {
        ahead.line(from.as_ptr());
        let mut acc = [[_mm512_setzero_si512(); 2]; PLANES];
        // SAFETY: block b of the group and of the activations are there, as `check` saw.
        unsafe {
            acc[0] = [_mm512_set1_epi32(-act.sums.add(b).read_unaligned()); 2];
            block(lookup, from.as_ptr().add(SCALES), act.q.add(COLUMNS * b), ahead, &mut acc);
            let dy = _mm512_set1_ps(act.scales.add(b).read_unaligned());
            for (h, sum) in sums.iter_mut().enumerate() {
                let scales = from.as_ptr().add(32 * h);
                *sum = block_step(*sum, join(&acc, h), dy, scales);
            }
        }
    }
    store(&[sums], out);
}

/// # Safety
/// The processor has these features; the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
unsafe fn row_once(group: &[u8], act: &[u8], ahead: impl PrefetchDistance, out: &mut [f32]) {
    let lookup = Lookup::new();
    let mut acc = [[_mm512_setzero_si512(); 2]; PLANES];
    for (b, from) in group.chunks_exact(DIGITS).enumerate() {
        // SAFETY: `from` is a whole block of 13 chunks, and `check` has seen 256 activations for each after the first
        // 64 bytes.
        unsafe { block(lookup, from.as_ptr(), act.as_ptr().add(64 + COLUMNS * b), ahead, &mut acc) };
    }
    let sums = [row_step(join(&acc, 0), act), row_step(join(&acc, 1), act)];
    store(&[sums], out);
}
