//! Weights as indices of tables of sums, for kernels that look products up instead of multiplying.
//!
//! Some columns of a row, a *tuple*, can have few values together, so that few sums of products with the activations
//! of these columns are possible: they are tabled once for each token, and a row adds up entries. A table has 16
//! entries, which is how many a byte shuffle finds. The methods of bitnet.cpp and T-MAC are [`Elut`]s:
//!
//! | method | digits | columns of a tuple | entries | bits per weight |
//! |---|---|---|---|---|
//! | [`Tl1`] | base 3 | 2 | 9 | 2 |
//! | [`Tl2`], sign apart | base 3 | 3 | 14 of 27, those that are not negative | 5/3 |
//! | [`Quaternary`] | base 4 | 2 | 16 | 2 |
//! | [`Bitwise`], two planes | base 2 | 4 | 16 | 2 |
//!
//! Entries are exact: centred, none is above 382 in magnitude, and two byte tables hold `entry = low + 32 high` with
//! -16 <= low < 16 and |high| <= 12, so that eight entries of each can be added up in signed bytes.
//!
//! Eight tuples are an octet. A group of rows is stored so, `R` rows side by side:
//!
//! ```text
//! head                                         see below
//! octet o, plane p, pair i = 0..4:   [R]       index of tuple 2i in the low four bits, of 2i + 1 in the high ones
//!          with signs apart:         [R]       bit 7 - k: tuple k is negative
//! ```
//!
//! Types with scales have octets for blocks of 256 columns, each behind a head of its own: `[R]` f16 scales, and with
//! signs `[R]` counts of negative tuples. The others have one head, with signs `[R]` i32 counts. They are needed because
//! a negative entry is found as the complement of both bytes, which is 33 less than its negation.
//!
//! Activation rows: a head of `[blocks]` (f32 scale, i32 offset), or `a`, `S` and the offset, filled up to whole lines;
//! then the tables, low bytes and high bytes of one tuple after the other. The offset makes up for the centres of
//! entries.

use trine_formats::types::{Part, TypeId, info, stq1_0, tq1_0};

use super::{Arranged, Encoding, Layout, Method, Multiply};
use crate::Isa;
use crate::proof::{Needs, compiled_for};
use crate::shared::ternary::{self, Quantizer};

/// Columns of a block of the types with scales.
pub(crate) const COLUMNS: usize = 256;
/// Tuples of an octet.
pub(crate) const EIGHT: usize = 8;
/// Entries of a table.
const ENTRIES: usize = 16;
/// Bytes of the tables of a tuple.
pub(crate) const TABLE: usize = 2 * ENTRIES;
/// Difference between the complement of both bytes of an entry and its negation.
pub(crate) const COMPLEMENT: i32 = 33;
/// Bytes of the head of an activation row without block scales.
pub(crate) const HEAD: usize = 64;
/// Bytes of a Q8_K block.
const Q8_K: usize = info::Q8_K.bytes;
/// Most columns of a tuple.
const MOST: usize = 4;

/// An element-wise or bit-wise table: which columns share one, and in which digits their codes are written.
pub(crate) trait Elut {
    /// Name of the layouts.
    const NAME: &'static str;
    /// Base of the digits.
    const BASE: u8;
    /// Columns of a tuple.
    const TUPLE: usize;
    /// Digits of a code, each of which has an index of its own.
    const PLANES: usize = 1;
    /// True if the sign of a tuple stands apart from its index; the base is 3.
    const SIGNED: bool = false;
    /// Columns of an octet.
    const OCTET: usize = EIGHT * Self::TUPLE;
    /// Twice the factors of the columns' activations in each entry.
    const FACTORS: [[i16; ENTRIES]; MOST] = factors(Self::BASE, Self::TUPLE, Self::SIGNED);
}

/// Pairs of ternary weights.
pub(crate) struct Tl1;
/// Triples of ternary weights.
pub(crate) struct Tl2;
/// Pairs of codes of two bits, of any meaning.
pub(crate) struct Quaternary;
/// Bits of four codes.
pub(crate) struct Bitwise;

impl Elut for Tl1 {
    const NAME: &'static str = "TL1";
    const BASE: u8 = 3;
    const TUPLE: usize = 2;
}

impl Elut for Tl2 {
    const NAME: &'static str = "TL2";
    const BASE: u8 = 3;
    const TUPLE: usize = 3;
    const SIGNED: bool = true;
}

impl Elut for Quaternary {
    const NAME: &'static str = "ELUT 4^2";
    const BASE: u8 = 4;
    const TUPLE: usize = 2;
}

impl Elut for Bitwise {
    const NAME: &'static str = "bits";
    const BASE: u8 = 2;
    const TUPLE: usize = 4;
    const PLANES: usize = 2;
}

/// Digits of an entry less half of the greatest digit, all doubled; 0 where there is no such entry or column.
const fn factors(base: u8, tuple: usize, signed: bool) -> [[i16; ENTRIES]; MOST] {
    let base = base as i16;
    let mut out = [[0; ENTRIES]; MOST];
    let mut entries = 1;
    let mut c = 0;
    while c < tuple {
        entries *= base;
        c += 1;
    }
    // With signs, entry 0 is the tuple of zeros, in the middle of all.
    let first = if signed { entries / 2 } else { 0 };
    let mut i = 0;
    while i < ENTRIES {
        let (mut rest, mut c) = (first + i as i16, tuple);
        while c > 0 && first + (i as i16) < entries {
            c -= 1;
            out[c][i] = 2 * (rest % base) - (base - 1);
            rest /= base;
        }
        i += 1;
    }
    out
}

/// Octets of `columns` columns.
pub(crate) const fn octets<M: Elut>(columns: usize) -> usize {
    columns.div_ceil(M::OCTET)
}

/// Bytes of an octet of `rows` rows.
pub(crate) const fn octet_bytes<M: Elut>(rows: usize) -> usize {
    rows * (4 * M::PLANES + M::SIGNED as usize)
}

/// Bytes of the head of a block with scales.
pub(crate) const fn block_head<M: Elut>(rows: usize) -> usize {
    rows * (2 + M::SIGNED as usize)
}

/// Bytes of a block with scales.
pub(crate) const fn block_bytes<M: Elut>(rows: usize) -> usize {
    block_head::<M>(rows) + octets::<M>(COLUMNS) * octet_bytes::<M>(rows)
}

/// Bytes of the head of rows without scales.
pub(crate) const fn row_head<M: Elut>(rows: usize) -> usize {
    if M::SIGNED { 4 * rows } else { 0 }
}

/// Layouts of all ternary types by one method, `R` rows to a group.
pub(crate) const fn layouts<M: Elut, const R: usize>(needs: Needs, blocks: Multiply, rows: Multiply) -> [Layout; 5] {
    [
        Layout { types: &[TypeId::TQ2_0], pack: pack_tq2_0::<M, R>, ..with_scales::<M, R>(needs, blocks) },
        Layout { types: &[TypeId::TQ1_0], pack: pack_tq1_0::<M, R>, ..with_scales::<M, R>(needs, blocks) },
        Layout {
            types: &[TypeId::STQ1_0, TypeId::STQ1_0_43],
            pack: pack_stq1_0::<M, R>,
            ..with_scales::<M, R>(needs, blocks)
        },
        Layout { types: &[TypeId::I2_S], ..whole_rows::<M, R>(needs, rows, Quantizer::Floored) },
        Layout { types: &[TypeId::TL1, TypeId::TL2], ..whole_rows::<M, R>(needs, rows, Quantizer::Exact) },
    ]
}

const fn with_scales<M: Elut, const R: usize>(needs: Needs, multiply: Multiply) -> Layout {
    let encoding = Encoding::Type(TypeId::Q8_K);
    Layout {
        types: &[],
        needs,
        name: M::NAME,
        dense: false,
        rows: R,
        encoding,
        group_bytes: |n| n / COLUMNS * block_bytes::<M>(R),
        pack: pack_tq2_0::<M, R>,
        acts: tables_of::<M>(encoding),
        act_bytes: |n| (8 * (n / COLUMNS)).next_multiple_of(HEAD) + n / COLUMNS * octets::<M>(COLUMNS) * EIGHT * TABLE,
        arrange: arrange_q8_k::<M>,
        multiply,
        tile: 16,
    }
}

const fn tables_of<M: Elut>(encoding: Encoding) -> Arranged {
    let method = if M::PLANES == 1 { Method::Lookup } else { Method::Bitwise };
    Arranged::Tables { name: M::NAME, method, encoding }
}

const fn whole_rows<M: Elut, const R: usize>(needs: Needs, multiply: Multiply, quantizer: Quantizer) -> Layout {
    let encoding = Encoding::Int8(quantizer);
    Layout {
        encoding,
        group_bytes: |n| row_head::<M>(R) + octets::<M>(n) * octet_bytes::<M>(R),
        pack: pack_rows::<M, R>,
        acts: tables_of::<M>(encoding),
        act_bytes: |n| HEAD + octets::<M>(n) * EIGHT * TABLE,
        arrange: arrange_int8::<M>,
        ..with_scales::<M, R>(needs, multiply)
    }
}

/// Index and sign of a tuple for the digits of a plane; `None` where a code has more digits than there are planes.
fn index<M: Elut>(codes: &[u8], plane: usize) -> Option<(u8, bool)> {
    let digit = |code: &u8| (code / M::BASE.pow(plane as u32)) % M::BASE;
    if codes.iter().any(|&code| u32::from(code) >= u32::from(M::BASE).pow(M::PLANES as u32)) {
        return None;
    }
    let all = codes.iter().fold(0, |all, code| all * M::BASE + digit(code));
    if !M::SIGNED {
        return Some((all, false));
    }
    let middle = M::BASE.pow(M::TUPLE as u32) / 2;
    Some((all.abs_diff(middle), all < middle))
}

/// Stores the codes of one row of octets whose group starts at `out`; the number of negative tuples, or `None` where
/// the method has no room for a code.
fn store<M: Elut, const R: usize>(codes: &[u8], row: usize, out: &mut [u8]) -> Option<u32> {
    let mut negative = 0;
    for (codes, out) in codes.chunks(M::OCTET).zip(out.chunks_exact_mut(octet_bytes::<M>(R))) {
        out.iter_mut().skip(row).step_by(R).for_each(|byte| *byte = 0);
        for (k, tuple) in codes.chunks(M::TUPLE).enumerate() {
            // Columns behind the last meet activations of 0; code 1 is no weight.
            let mut whole = [1; MOST];
            whole[..tuple.len()].copy_from_slice(tuple);
            for plane in 0..M::PLANES {
                let (index, sign) = index::<M>(&whole[..M::TUPLE], plane)?;
                out[(4 * plane + k / 2) * R + row] |= index << (4 * (k % 2));
                if M::SIGNED {
                    out[4 * M::PLANES * R + row] |= u8::from(sign) << (7 - k);
                    negative += u32::from(sign);
                }
            }
        }
    }
    Some(negative)
}

fn pack_tq2_0<M: Elut, const R: usize>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    pack_blocks::<M, R, { info::TQ2_0.bytes }>(w, n, out, |block| *block)
}

fn pack_tq1_0<M: Elut, const R: usize>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    pack_blocks::<M, R, { info::TQ1_0.bytes }>(w, n, out, tq1_0::to_tq2_0)
}

fn pack_stq1_0<M: Elut, const R: usize>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    pack_blocks::<M, R, { info::STQ1_0.bytes }>(w, n, out, stq1_0::to_tq2_0::<false>)
}

/// Rows of 256-blocks, which `as_tq2_0` brings into the form of TQ2_0.
fn pack_blocks<M: Elut, const R: usize, const BYTES: usize>(
    w: &[u8],
    n: usize,
    out: &mut [u8],
    as_tq2_0: impl Fn(&[u8; BYTES]) -> [u8; info::TQ2_0.bytes],
) -> bool {
    let row_bytes = n / COLUMNS * BYTES;
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= R, "weights");
    if rows == 0 {
        return true;
    }
    let w = w.as_chunks::<BYTES>().0;
    out.chunks_exact_mut(block_bytes::<M>(R)).enumerate().all(|(b, out)| {
        let (head, octets) = out.split_at_mut(block_head::<M>(R));
        // Rows that are not there repeat the last; nobody looks at their outputs.
        (0..R).all(|row| {
            let block = as_tq2_0(&w[row.min(rows - 1) * (n / COLUMNS) + b]);
            head[2 * row..][..2].copy_from_slice(&block[64..]);
            let codes: [u8; COLUMNS] =
                std::array::from_fn(|e| block[32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4)) & 3);
            let negative = store::<M, R>(&codes, row, octets);
            if let (Some(count), true) = (negative, M::SIGNED) {
                // At most 86 triples.
                head[2 * R + row] = count as u8;
            }
            negative.is_some()
        })
    })
}

/// Rows without block scales.
fn pack_rows<M: Elut, const R: usize>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = ternary::row_bytes(n);
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= R, "weights");
    if rows == 0 {
        return true;
    }
    let (head, octets) = out.split_at_mut(row_head::<M>(R));
    (0..R).all(|row| {
        let bytes = &w[row.min(rows - 1) * row_bytes..][..row_bytes];
        let code = |e: usize| bytes[32 * (e / 128) + e % 32] >> (6 - 2 * (e / 32 % 4)) & 3;
        let codes: Vec<u8> = (0..n).map(code).collect();
        let negative = store::<M, R>(&codes, row, octets);
        if let (Some(count), true) = (negative, M::SIGNED) {
            head[4 * row..][..4].copy_from_slice(&count.to_le_bytes());
        }
        negative.is_some()
    })
}

/// The tables of as many tuples as `out` has room for; activations behind the last are 0. Returns what the sums of
/// entries lack of those of codes times activations.
fn tables<M: Elut>(isa: Isa, q: &[u8], out: &mut [u8]) -> i32 {
    let (factors, base, tuple) = (&M::FACTORS, i32::from(M::BASE), M::TUPLE);
    let offset = compiled_for!(isa, fill(factors: &Factors, base: i32, tuple: usize, q: &[u8], out: &mut [u8]) -> i32);
    let planes = (0..M::PLANES).map(|p| base.pow(p as u32));
    planes.sum::<i32>() * offset
}

/// [`Elut::FACTORS`].
type Factors = [[i16; ENTRIES]; MOST];

/// [`tables`] of one plane.
#[inline(always)]
fn fill(factors: &Factors, base: i32, tuple: usize, q: &[u8], out: &mut [u8]) -> i32 {
    let mut offset = 0;
    let mut tuples = q.chunks(tuple);
    for out in out.as_chunks_mut::<TABLE>().0 {
        let mut y = [0i16; MOST];
        let mut sum = 0;
        for (y, q) in y.iter_mut().zip(tuples.next().unwrap_or_default()) {
            *y = i16::from(q.cast_signed());
            sum += i32::from(*y);
        }
        offset += ((base - 1) * sum + 1) >> 1;
        for i in 0..ENTRIES {
            let twice = factors[0][i] * y[0] + factors[1][i] * y[1] + factors[2][i] * y[2] + factors[3][i] * y[3];
            let entry = twice >> 1;
            let low = ((entry + 16) & 31) - 16;
            out[i] = low as u8;
            out[ENTRIES + i] = ((entry - low) >> 5) as u8;
        }
    }
    offset
}

fn arrange_q8_k<M: Elut>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    let blocks = n / COLUMNS;
    assert_eq!(act.len(), blocks * Q8_K, "activation row");
    let (heads, all) = out.split_at_mut((8 * blocks).next_multiple_of(HEAD));
    let all = all.chunks_exact_mut(octets::<M>(COLUMNS) * EIGHT * TABLE);
    for ((act, out), head) in act.chunks_exact(Q8_K).zip(all).zip(heads.chunks_exact_mut(8)) {
        let q = &act[info::Q8_K.at(Part::Codes)..info::Q8_K.at(Part::Sums)];
        let sum: i32 = q.iter().map(|q| i32::from(q.cast_signed())).sum();
        let offset = tables::<M>(isa, q, out) - sum;
        head[..4].copy_from_slice(&act[..4]);
        head[4..].copy_from_slice(&offset.to_le_bytes());
    }
}

fn arrange_int8<M: Elut>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), ternary::act_bytes(n), "activation row");
    let (head, all) = out.split_at_mut(HEAD);
    head[..ternary::HEAD].copy_from_slice(&act[..ternary::HEAD]);
    let offset = tables::<M>(isa, &act[ternary::HEAD..][..n], all);
    head[ternary::HEAD..][..4].copy_from_slice(&offset.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tuple of codes is found at its index, with its sign and to the last unit, for activations at the ends of
    /// their range; entries stay small enough for eight of them to be added up in bytes.
    fn all_tuples<M: Elut>() {
        let n = u32::from(M::BASE).pow(M::PLANES as u32);
        for q in [[127i8; MOST], [-127; MOST], [127, -127, 127, -127], [1, 0, -3, 126], [-127, 5, 64, 1]] {
            let q = &q[..M::TUPLE];
            let mut table = [0; TABLE];
            let bytes: Vec<u8> = q.iter().map(|q| q.cast_unsigned()).collect();
            let offset = tables::<M>(Isa::detect(), &bytes, &mut table);
            let at = |i: usize| i32::from(table[i].cast_signed());
            assert!((0..ENTRIES).all(|i| (-16..16).contains(&at(i)) && at(ENTRIES + i).abs() <= 12), "{}", M::NAME);
            for all in 0..n.pow(M::TUPLE as u32) {
                let codes: Vec<u8> = (0..M::TUPLE as u32).map(|c| (all / n.pow(c) % n) as u8).collect();
                let expected: i32 = codes.iter().zip(q).map(|(&c, &q)| i32::from(c) * i32::from(q)).sum();
                let mut sum = offset;
                for plane in 0..M::PLANES {
                    let (i, sign) = index::<M>(&codes, plane).expect("a code of the method");
                    let (low, high) = (at(usize::from(i)), at(ENTRIES + usize::from(i)));
                    let entry = if sign { !low + 32 * !high + COMPLEMENT } else { low + 32 * high };
                    sum += i32::from(M::BASE).pow(plane as u32) * entry;
                }
                assert_eq!(sum, expected, "{} {codes:?} {q:?}", M::NAME);
            }
        }
        assert_eq!(index::<M>(&[3; MOST][..M::TUPLE], 0).is_some(), n == 4, "code 3 has no room in base 3");
    }

    #[test]
    fn tables_hold_the_sum_of_every_tuple() {
        all_tuples::<Tl1>();
        all_tuples::<Tl2>();
        all_tuples::<Quaternary>();
        all_tuples::<Bitwise>();
    }
}
