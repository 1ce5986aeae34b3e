//! Products by looking up tables of sums: the bytes of [`crate::shared::packed::lookup`], rows side by side in vectors of
//! bytes.
//!
//! A token at a time: with the next one the group is in the cache. Eight entries are added up in bytes, low and high
//! ones apart, then joined to words, and those of some octets to 32 bits; all of it is exact.

use trine_formats::types::num::f16_at;

use crate::proof::{Needs, Proof};
use crate::shared::packed::lookup::{
    COLUMNS, COMPLEMENT, EIGHT, Elut, HEAD, TABLE, block_bytes, block_head, layouts, octet_bytes, octets, row_head,
};
use crate::shared::packed::{Call, Layout};

/// Most rows of a group.
pub(crate) const MOST: usize = 64;

/// Vectors of an instruction set, a byte for each row of a group.
pub(crate) trait Bytes: Proof {
    /// Rows of a group, bytes of a vector.
    const ROWS: usize;
    /// A byte of each row.
    type Vector: Copy;
    /// A word of each row, in any order.
    type Words: Copy;

    /// # Safety
    /// The processor has the instruction set; so has it for all functions here. [`Bytes::ROWS`] bytes are readable.
    unsafe fn load(p: *const u8) -> Self::Vector;
    /// A table of 16 bytes for all rows.
    ///
    /// # Safety
    /// As [`Bytes::load`], of 16 bytes.
    unsafe fn table(p: *const u8) -> Self::Vector;
    /// The low four bits of all bytes, then the high ones.
    ///
    /// # Safety
    /// As [`Bytes::load`].
    unsafe fn nibbles(v: Self::Vector) -> [Self::Vector; 2];
    /// Bytes 0 and, for the `signs` whose highest bit is set, 0xFF.
    ///
    /// # Safety
    /// As [`Bytes::load`].
    unsafe fn negative(signs: Self::Vector) -> Self::Vector;
    /// `table[index] ^ flip`.
    ///
    /// # Safety
    /// As [`Bytes::load`].
    unsafe fn find(table: Self::Vector, index: Self::Vector, flip: Option<Self::Vector>) -> Self::Vector;
    /// # Safety
    /// As [`Bytes::load`].
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `words + factor * (low + 32 high)`; `factor` is 1 or 2.
    ///
    /// # Safety
    /// As [`Bytes::load`].
    unsafe fn join(words: Self::Words, low: Self::Vector, high: Self::Vector, factor: i8) -> Self::Words;
    /// Words of 0.
    ///
    /// # Safety
    /// As [`Bytes::load`].
    unsafe fn zero() -> Self::Words;
    /// Adds the words to the sums of their rows.
    ///
    /// # Safety
    /// As [`Bytes::load`].
    unsafe fn spill(words: Self::Words, sums: &mut [i32; MOST]);
    /// Prefetches the lines of `bytes` bytes `ahead` bytes behind `p`; an `ahead` of 0: nothing.
    fn prefetch(p: *const u8, bytes: usize, ahead: usize);
}

/// The layouts of a method for the rows of `S`; `blocks` and `rows` are [`multiply_blocks`] and [`multiply_rows`],
/// compiled for it.
pub(crate) const fn table<S: Bytes, M: Elut, const R: usize>(blocks: fn(Call<'_>), rows: fn(Call<'_>)) -> [Layout; 5] {
    const { assert!(R == S::ROWS && R <= MOST) };
    let needs: Needs = S::NEEDS;
    layouts::<M, R>(needs, blocks, rows)
}

/// Adds `count` octets at `w`, whose tables are at `tables`.
///
/// # Safety
/// The processor has the instruction set; octets and tables are readable.
#[inline(always)]
unsafe fn add<S: Bytes, M: Elut>(w: *const u8, tables: *const u8, count: usize, ahead: usize, sums: &mut [i32; MOST]) {
    // Eight entries of 382, with a sign 33 more, or of 255 once and twice.
    let most = if M::PLANES == 1 { 9 } else { 5 };
    let bytes = octet_bytes::<M>(S::ROWS);
    for first in (0..count).step_by(most) {
        // SAFETY: the caller has all octets and their tables.
        unsafe {
            let mut words = S::zero();
            for o in first..count.min(first + most) {
                let (w, tables) = (w.add(o * bytes), tables.add(o * EIGHT * TABLE));
                S::prefetch(w, bytes, ahead);
                for plane in 0..M::PLANES {
                    let mut signs = M::SIGNED.then(|| S::load(w.add(4 * M::PLANES * S::ROWS)));
                    let mut sum = None;
                    for pair in 0..4 {
                        let indices = S::nibbles(S::load(w.add((4 * plane + pair) * S::ROWS)));
                        for (i, index) in indices.into_iter().enumerate() {
                            let table = tables.add((2 * pair + i) * TABLE);
                            let flip = signs.map(|signs| S::negative(signs));
                            let low = S::find(S::table(table), index, flip);
                            let high = S::find(S::table(table.add(TABLE / 2)), index, flip);
                            signs = signs.map(|signs| S::add(signs, signs));
                            sum = Some(match sum {
                                Some((lows, highs)) => (S::add(lows, low), S::add(highs, high)),
                                None => (low, high),
                            });
                        }
                    }
                    if let Some((low, high)) = sum {
                        words = S::join(words, low, high, 1 << plane);
                    }
                }
            }
            S::spill(words, sums);
        }
    }
}

/// Types with block scales.
///
/// # Safety
/// The processor has the instruction set. Lengths are checked against `layout`, which is one of [`table`].
#[inline(always)]
pub(crate) unsafe fn multiply_blocks<S: Bytes, M: Elut>(call: Call<'_>, layout: &'static Layout) {
    let Call { group, acts, n, mut ahead, out, .. } = call.check(layout);
    let tables = octets::<M>(COLUMNS) * EIGHT * TABLE;
    for (act, out) in acts.chunks_exact((layout.act_bytes)(n)).zip(out.chunks_exact_mut(S::ROWS)) {
        let ahead = std::mem::take(&mut ahead);
        let (heads, all) = act.split_at((8 * (n / COLUMNS)).next_multiple_of(HEAD));
        out.fill(0.0);
        for (b, block) in group.chunks_exact(block_bytes::<M>(S::ROWS)).enumerate() {
            let head = heads[8 * b..].first_chunk::<8>().map_or([0; 8], |head| *head);
            let [d, offset] = [0, 4].map(|i| [head[i], head[i + 1], head[i + 2], head[i + 3]]);
            let mut sums = [i32::from_le_bytes(offset); MOST];
            let (own, codes) = block.split_at(block_head::<M>(S::ROWS));
            S::prefetch(own.as_ptr(), own.len(), ahead);
            // SAFETY: a block has its octets behind its head, and `check` has seen the tables of all blocks.
            unsafe { add::<S, M>(codes.as_ptr(), all[b * tables..].as_ptr(), octets::<M>(COLUMNS), ahead, &mut sums) };
            if M::SIGNED {
                for (sum, count) in sums.iter_mut().zip(&own[2 * S::ROWS..]) {
                    *sum += COMPLEMENT * i32::from(*count);
                }
            }
            let d = f32::from_le_bytes(d);
            for (row, (out, sum)) in out.iter_mut().zip(&sums).enumerate() {
                *out += *sum as f32 * (d * f16_at(own, 2 * row));
            }
        }
    }
}

/// Types with one scale.
///
/// # Safety
/// As [`multiply_blocks`].
#[inline(always)]
pub(crate) unsafe fn multiply_rows<S: Bytes, M: Elut>(call: Call<'_>, layout: &'static Layout) {
    let Call { group, acts, n, mut ahead, out, .. } = call.check(layout);
    let (counts, codes) = group.split_at(row_head::<M>(S::ROWS));
    for (act, out) in acts.chunks_exact((layout.act_bytes)(n)).zip(out.chunks_exact_mut(S::ROWS)) {
        let ahead = std::mem::take(&mut ahead);
        let (head, tables) = act.split_at(HEAD);
        let word = |i: usize| [head[i], head[i + 1], head[i + 2], head[i + 3]];
        let mut sums = [i32::from_le_bytes(word(8)); MOST];
        // SAFETY: `check` has seen the group's octets and their tables.
        unsafe { add::<S, M>(codes.as_ptr(), tables.as_ptr(), octets::<M>(n), ahead, &mut sums) };
        for (sum, count) in sums.iter_mut().zip(counts.as_chunks().0) {
            *sum += COMPLEMENT * i32::from_le_bytes(*count);
        }
        let (a, s) = (f32::from_le_bytes(word(0)), i32::from_le_bytes(word(4)));
        for (out, sum) in out.iter_mut().zip(&sums) {
            *out = (*sum as f32 - s as f32) / a;
        }
    }
}

/// The layouts of all methods for an instruction set whose vectors are `$set`, `$rows` bytes long.
macro_rules! lookups {
    ($set:ident, $rows:literal, $features:literal, $($layouts:ident: $method:ident;)*) => { $(
        pub(in crate::arch) static $layouts: &[Layout] = {
            use $crate::arch::packed::lookup::{multiply_blocks, multiply_rows};

            fn blocks(call: Call<'_>) {
                #[target_feature(enable = $features)]
                fn run(call: Call<'_>) {
                    // SAFETY: this function has the instructions.
                    unsafe { multiply_blocks::<$set, $method>(call, &$layouts[0]) }
                }
                let _proof = $set::of(call.isa);
                // SAFETY: `_proof` proves these instructions.
                unsafe { run(call) }
            }

            fn rows(call: Call<'_>) {
                #[target_feature(enable = $features)]
                fn run(call: Call<'_>) {
                    // SAFETY: this function has the instructions.
                    unsafe { multiply_rows::<$set, $method>(call, &$layouts[3]) }
                }
                let _proof = $set::of(call.isa);
                // SAFETY: `_proof` proves these instructions.
                unsafe { run(call) }
            }

            &$crate::arch::packed::lookup::table::<$set, $method, $rows>(blocks, rows)
        };
    )* };
}
pub(crate) use lookups;
