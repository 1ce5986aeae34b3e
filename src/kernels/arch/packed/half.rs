//! Half floats and bfloats, 32 rows interleaved: the words of [`crate::shared::halves`].
//!
//! ```text
//! quad k = 0..n/4, row r = 0..32:   word at (32k + r) * 8 = columns 4k..4k + 4 of row r
//! ```
//!
//! Columns that are missing in the last word are zero on both sides: each adds +0 to a sum that starts at +0 and so
//! never is -0.
//!
//! Activations are `f64` times the scale that makes up for the widening.
//!
//! F16: products are exact, so the sum is the reference's whatever the values; weights with an infinity or a NaN, which
//! the widening would take for numbers, stay rows. The words of a group are normalized when all weights are below 64
//! and plain when not (see [`crate::shared::halves::form`]); before them stand the [`spans`] of the rows, which tell.
//!
//! BF16: the reference rounds the product to `f32`, which changes nothing as long as every product is zero
//! or lies where `f32` has all its bits. A group and a token note the least and the greatest exponent
//! of theirs, 64 bytes each before the words and the values; where the exponents add up to too little
//! or too much, that token takes a loop that does round.

use trine_formats::types::TypeId;
use trine_formats::types::num::{bf16_to_f32, f16_to_f32};

use crate::Isa;
use crate::aligned::doubles;
use crate::arch::halves::dots_of_bytes;
use crate::proof::{Proof, compiled_for};
use crate::shared::halves::{BRAIN_SCALE, Coefficients, F16Encoding, LANES, SCALE, STEPS, form, mend};
use crate::shared::packed::spans::{self, Span};
use crate::shared::packed::{Arranged, Call, Encoding, Layout, dword};

/// Bytes of a row of words.
pub(crate) const QUAD: usize = LANES * 8;
/// Tokens of a call: whole turns of six, and of the four that NEON takes at once. A strip of words is widened once for
/// all of them.
const TOKENS: usize = 60;
/// Bytes of the exponents.
const HEAD: usize = 64;

/// Operations that need an instruction set's intrinsics.
pub(crate) trait Set: Proof {
    /// Half floats as `f64` times [`SCALE`].
    fn widen(self, halves: &[[[u8; 2]; 8]], out: &mut [[[u8; 8]; 8]]);
}

/// The layout of half floats.
pub(crate) const fn f16<S: Set>() -> Layout {
    Layout {
        types: &[TypeId::F16],
        needs: S::NEEDS,
        name: "f16 x32",
        dense: false,
        rows: LANES,
        encoding: Encoding::Type(TypeId::F16),
        group_bytes: |n| spans::HEAD + n.div_ceil(STEPS) * QUAD,
        pack: pack_f16,
        acts: Arranged::F16,
        act_bytes: act_bytes_f16,
        arrange: arrange_f16::<S>,
        multiply: multiply_f16::<S>,
        tile: TOKENS,
    }
}

/// The layout of bfloats.
pub(crate) const fn bf16<S: Set>() -> Layout {
    Layout {
        types: &[TypeId::BF16],
        needs: S::NEEDS,
        name: "bf16 x32",
        dense: false,
        rows: LANES,
        encoding: Encoding::Type(TypeId::BF16),
        group_bytes: |n| HEAD + n.div_ceil(STEPS) * QUAD,
        pack: pack_bf16,
        acts: Arranged::Bf16,
        act_bytes: act_bytes_bf16,
        arrange: arrange_bf16,
        multiply: multiply_bf16::<S>,
        tile: TOKENS,
    }
}

/// Number of rows in `w`.
fn rows(w: &[u8], n: usize) -> usize {
    let rows = w.len().checked_div(2 * n).unwrap_or(0);
    assert!(w.len() == rows * 2 * n && rows <= LANES, "weights");
    rows
}

/// Up to 32 rows as words; rows that are not there repeat the last.
fn interleave(w: &[u8], n: usize, out: &mut [u8]) {
    let rows = rows(w, n);
    if rows == 0 {
        return out.fill(0);
    }
    // Eight rows at a time, a line of the result: more would share too few sets of the cache.
    for eight in 0..LANES / 8 {
        let mut row = [&w[..0]; 8];
        for (i, row) in row.iter_mut().enumerate() {
            *row = &w[(8 * eight + i).min(rows - 1) * 2 * n..][..2 * n];
        }
        for (k, quad) in out.chunks_exact_mut(QUAD).enumerate() {
            for (row, word) in row.iter().zip(quad[64 * eight..].chunks_exact_mut(8)) {
                match row[8 * k..].first_chunk::<8>() {
                    Some(four) => word.copy_from_slice(four),
                    None => {
                        let rest = &row[8 * k..];
                        word.fill(0);
                        word[..rest.len()].copy_from_slice(rest);
                    }
                }
            }
        }
    }
}

fn pack_f16(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let (head, words) = out.split_at_mut(spans::HEAD);
    interleave(w, n, words);
    // The greatest exponent plus one carries into the place of the sign.
    let numbers = words.as_chunks::<8>().0.iter().all(|word| {
        let exponents = u64::from_le_bytes(*word) & 0x7C00_7C00_7C00_7C00;
        (exponents + 0x0400_0400_0400_0400) & 0x8000_8000_8000_8000 == 0
    });
    compiled_for!(isa, store_spans(w: &[u8], n: usize, head: &mut [u8]));
    if spans::form(head) == F16Encoding::Normalized {
        compiled_for!(isa, normalize(words: &mut [u8]));
    }
    numbers
}

#[inline(always)]
fn store_spans(w: &[u8], n: usize, head: &mut [u8]) {
    let rows = w.as_chunks().0.chunks_exact(n.max(1));
    spans::store(head, rows.map(Span::of));
}

/// Half floats to their normalized form.
#[inline(always)]
fn normalize(words: &mut [u8]) {
    for half in words.as_chunks_mut().0 {
        *half = form::normalized(u16::from_le_bytes(*half)).to_le_bytes();
    }
}

fn pack_bf16(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let (head, words) = out.split_at_mut(HEAD);
    interleave(w, n, words);
    compiled_for!(isa, exponents(w: &[u8]) -> Exponents).store(head);
    true
}

/// Bytes of a row of activations without exponents.
pub(crate) const fn act_bytes_f16(n: usize) -> usize {
    (n.next_multiple_of(STEPS) * 8).next_multiple_of(64)
}

pub(crate) fn arrange_f16<S: Set>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), 2 * n, "activation row");
    let (halves, values) = (act.as_chunks::<2>().0, out.as_chunks_mut::<8>().0);
    values[n..].fill([0; 8]);
    let (eights, rest) = halves.as_chunks();
    let (wide, wide_rest) = values[..n].as_chunks_mut();
    S::of(isa).widen(eights, wide);
    for (half, value) in rest.iter().zip(wide_rest) {
        let x = f64::from(f16_to_f32(u16::from_le_bytes(*half)));
        *value = (x * SCALE).to_le_bytes();
    }
}

/// Bytes of a row of bfloats' activations.
fn act_bytes_bf16(n: usize) -> usize {
    HEAD + act_bytes_f16(n)
}

fn arrange_bf16(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), 2 * n, "activation row");
    let (head, values) = out.split_at_mut(HEAD);
    compiled_for!(isa, exponents(act: &[u8]) -> Exponents).store(head);
    let (halves, values) = (act.as_chunks::<2>().0, values.as_chunks_mut::<8>().0);
    values[n..].fill([0; 8]);
    compiled_for!(isa, widen_brain(halves: &[[u8; 2]], values: &mut [[u8; 8]]));
}

/// Bfloats as `f64` times [`BRAIN_SCALE`].
#[inline(always)]
fn widen_brain(halves: &[[u8; 2]], out: &mut [[u8; 8]]) {
    for (half, value) in halves.iter().zip(out) {
        let x = f64::from(bf16_to_f32(u16::from_le_bytes(*half)));
        *value = (x * BRAIN_SCALE).to_le_bytes();
    }
}

/// Exponents of the bfloats that are not zero; where there are none, such that no product is out of range.
#[derive(Clone, Copy)]
struct Exponents {
    least: i32,
    greatest: i32,
}

/// Exponents of bfloats in memory.
#[inline(always)]
fn exponents(values: &[u8]) -> Exponents {
    // Magnitudes are in the order of their bits; that of zero, less one, is the greatest of all.
    let (mut least, mut greatest) = (u16::MAX, 0);
    for half in values.as_chunks::<2>().0 {
        let magnitude = u16::from_le_bytes(*half) & 0x7FFF;
        least = least.min(magnitude.wrapping_sub(1));
        greatest = greatest.max(magnitude);
    }
    if greatest == 0 {
        return Exponents { least: 1000, greatest: -1000 };
    }
    // Subnormal numbers have the exponent of the least normal one; infinities and NaN are too much even for zeros.
    let exponent = |magnitude: u16| i32::from(magnitude >> 7).max(1) - 127;
    Exponents {
        least: exponent(least.wrapping_add(1)),
        greatest: match exponent(greatest) {
            128 => 10_000,
            e => e,
        },
    }
}

impl Exponents {
    fn store(self, head: &mut [u8]) {
        head.fill(0);
        head[..4].copy_from_slice(&self.least.to_le_bytes());
        head[4..8].copy_from_slice(&self.greatest.to_le_bytes());
    }

    fn load(head: &[u8]) -> Exponents {
        Exponents { least: i32::from_le_bytes(dword(head, 0)), greatest: i32::from_le_bytes(dword(head, 1)) }
    }

    /// True if all products are exact in `f32`: the last bit of the least, 2^(-7 - 7) of its exponents, is no less than
    /// 2^-149, and the greatest, below 2^(1 + 1) of its exponents, is below 2^128.
    fn exact(self, other: Exponents) -> bool {
        self.least + other.least >= -135 && self.greatest + other.greatest <= 126
    }
}

/// `f64` of arranged rows, whose `head` bytes come first.
fn coefficients(acts: &[u8], head: usize, act_bytes: usize) -> Coefficients<'_> {
    let rows = acts.len() / act_bytes;
    Coefficients { data: doubles(&acts[head..]), stride: act_bytes / 8, rows }
}

fn multiply_f16<S: Set>(call: Call<'_>) {
    let Call { isa, group, acts, n, tokens, ahead, out } = call.check(const { &f16::<S>() });
    if tokens > 0 {
        products_f16(isa, group, acts, act_bytes_f16(n), n, ahead, out);
    }
}

/// The products of a group and some rows of activations, which begin with what [`arrange_f16`] makes and are
/// `act_bytes` long.
pub(crate) fn products_f16(
    isa: Isa,
    group: &[u8],
    acts: &[u8],
    act_bytes: usize,
    n: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let coefs = coefficients(acts, 0, act_bytes);
    let (head, words) = group.split_at(spans::HEAD);
    dots_of_bytes::<false>(isa, words, n.div_ceil(STEPS), coefs, ahead, out, LANES);
    if spans::form(head) == F16Encoding::Plain {
        mend(out);
    }
}

fn multiply_bf16<S: Set>(call: Call<'_>) {
    let Call { isa, group, acts, n, tokens, ahead, out } = call.check(const { &bf16::<S>() });
    let act_bytes = act_bytes_bf16(n);
    let (head, words) = group.split_at(HEAD);
    let weights = Exponents::load(head);
    let exact = |t: usize| weights.exact(Exponents::load(&acts[t * act_bytes..]));
    let mut t = 0;
    while t < tokens {
        // Tokens that are alike go together.
        let fits = exact(t);
        let end = (t..tokens).find(|&t| exact(t) != fits).unwrap_or(tokens);
        let coefs = coefficients(&acts[t * act_bytes..end * act_bytes], HEAD, act_bytes);
        let out = &mut out[t * LANES..end * LANES];
        if fits {
            dots_of_bytes::<true>(isa, words, n.div_ceil(STEPS), coefs, ahead, out, LANES);
        } else {
            for (r, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
                let x = &coefs.data[r * coefs.stride..][..n.next_multiple_of(STEPS)];
                compiled_for!(isa, rounded(words: &[u8], x: &[f64], out: &mut [f32; LANES]));
            }
        }
        t = end;
    }
}

/// The products of one token, each rounded to `f32`.
#[inline(always)]
fn rounded(words: &[u8], x: &[f64], out: &mut [f32; LANES]) {
    let mut sums = [0f64; LANES];
    for (quad, x) in words.as_chunks::<QUAD>().0.iter().zip(x.as_chunks::<STEPS>().0) {
        let words = quad.as_chunks::<8>().0;
        for (k, x) in x.iter().enumerate() {
            let x = (x / BRAIN_SCALE) as f32;
            for (sum, word) in sums.iter_mut().zip(words) {
                let half = (u64::from_le_bytes(*word) >> (16 * k)) as u16;
                *sum += f64::from(bf16_to_f32(half) * x);
            }
        }
    }
    *out = sums.map(|sum| sum as f32);
}
