//! Ternary codes, 32 rows interleaved, for AMX: the bytes of [`crate::packed::t2`] or of [`super::t5`], unpacked to a
//! byte per weight.
//!
//! A line of 64 packed bytes is a dword of 16 rows; one of its planes, a byte per weight, is a line of a tile of
//! weights. Activations are tiles of 16 tokens and 64 columns as they lie in memory, and the sums of 16 tokens and 16
//! rows come out. Two by two such tiles share their loads.
//!
//! Types with scales go through the blocks one by one, all tokens over each: 8 KB of unpacked weights stay in the
//! first-level cache. While the tiles of one step are multiplied, the float chains of the step before advance and a
//! part of the next block is unpacked, all of which the processor does beside the products. Types without scales are
//! unpacked row by row, and their sums stay in the tiles from end to end.

use super::t2::{self, UNIT};
use super::ternary_bytes::{COLUMNS, Trits, TwoBits};
use super::{check, t5};
use crate::arch::x86_64::tiles::{self, Hardware};
use crate::packed::Layout;

use blocks::blocks;
use rows::rows;

mod blocks;
mod machine;
mod rows;
pub(super) mod step;

/// Tokens from which on tiles are faster than [`t2`]'s vectors: a product of tiles takes as long for one token as for
/// 16.
const FROM: usize = 6;
/// The same beside [`t5`], whose vectors unpack digits for three tokens and more.
const FROM_TRITS: usize = 2;
/// Tokens of a call: those whose sums stay in the first-level cache.
const TILE: usize = 256;
/// Columns of a tile, and tiles of a block.
const STEP: usize = tiles::ROW;
const STEPS: usize = COLUMNS / STEP;

pub(super) static TQ2_0: Layout = t2::with_scales(t2::pack_tq2_0, multiply_blocks, TILE);
/// TQ1_0 as codes of two bits.
pub(super) static TQ1_0: Layout = t2::with_scales(t2::pack_tq1_0, multiply_blocks, TILE);
pub(super) static I2_S: Layout = t2::i2_s(multiply_rows, TILE);
pub(super) static TL: Layout = t2::tl(multiply_rows, TILE);

/// The layouts of five digits to a byte.
macro_rules! trits {
    ($($name:ident $layout:ident $multiply:ident;)*) => {$(
        pub(super) static $name: Layout = Layout {
            multiply: $multiply,
            tile: TILE,
            ..t5::$layout
        };
    )*};
}

trits! {
    TQ1_0_TRITS TQ1_0 multiply_trits;
    TQ2_0_TRITS TQ2_0 multiply_trits;
    I2_S_TRITS I2_S multiply_trits_of_rows;
    TL_TRITS TL multiply_trits_of_rows;
}

/// `$few` for fewer than `$from` tokens, tiles for more: of `$layout`'s groups, with its rows of `$columns`
/// activations.
macro_rules! products {
    ($name:ident, $from:ident, $few:expr, $layout:expr, $function:ident, $codes:expr, $columns:expr) => {
        fn $name(group: &[u8], acts: &[u8], n: usize, tokens: usize, ahead: usize, out: &mut [f32]) {
            /// # Safety
            /// [`crate::Level::Amx`] and VBMI; lengths as [`check`] has them.
            #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
            unsafe fn on_tiles(group: &[u8], acts: &[u8], n: usize, tokens: usize, ahead: usize, out: &mut [f32]) {
                // SAFETY: the caller has seen to it.
                unsafe { $function::<Hardware, _>($codes, group, acts, n, tokens, ahead, out) }
            }
            if tokens < $from {
                return $few(group, acts, n, tokens, ahead, out);
            }
            check(&$layout, group, acts, n, tokens, out);
            // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions; `check` has compared
            // all lengths.
            unsafe { on_tiles(group, acts, $columns(n), tokens, ahead, out) }
        }
    };
}

products!(multiply_blocks, FROM, t2::multiply_tq2_0, TQ2_0, blocks, TwoBits::<false>, usize::from);
products!(multiply_rows, FROM, t2::multiply_rows, TL, rows, TwoBits::<true>, whole_units);
products!(multiply_trits, FROM_TRITS, t5::multiply_blocks, t5::TQ1_0, blocks, Trits::new(), usize::from);
products!(multiply_trits_of_rows, FROM_TRITS, t5::multiply_rows, t5::TL, rows, Trits::new(), whole_blocks);

/// Columns of units with those of `n` weights.
fn whole_units(n: usize) -> usize {
    n.next_multiple_of(UNIT)
}

/// Columns of blocks with those of `n` weights.
fn whole_blocks(n: usize) -> usize {
    n.next_multiple_of(COLUMNS)
}

/// The same with tiles in memory and vectors in portable Rust, on any processor.
#[cfg(test)]
pub(super) mod software {
    use super::super::ternary_bytes::Codes;
    use super::*;
    use crate::arch::x86_64::tiles::Software;

    pub static TQ2_0: Layout = t2::with_scales(t2::pack_tq2_0, multiply, TILE);
    pub static TQ1_0: Layout = t2::with_scales(t2::pack_tq1_0, multiply, TILE);
    pub static I2_S: Layout = t2::i2_s(multiply_whole, TILE);
    pub static TL: Layout = t2::tl(multiply_whole, TILE);

    /// [`TwoBits`] in portable Rust.
    struct Portable<const REVERSED: bool>;

    impl<const REVERSED: bool> Codes for Portable<REVERSED> {
        const UNIT: usize = UNIT;
        const BYTES: usize = t2::UNIT_BYTES;

        unsafe fn unpack<const LOWER: bool>(&self, unit: *const u8, half: usize, _: usize, to: *mut u8) {
            for c in 0..8 {
                // SAFETY: eight chunks of two halves.
                let codes = unsafe { unit.add(128 * c + 64 * half).cast::<[u8; 64]>().read() };
                for s in 0..4 {
                    let line = 8 * if REVERSED { 3 - s } else { s } + c;
                    let weights = codes.map(|code| (code >> (2 * s) & 3).wrapping_sub(u8::from(LOWER)));
                    // SAFETY: 32 lines.
                    unsafe { to.add(64 * line).cast::<[u8; 64]>().write(weights) };
                }
            }
        }
    }

    fn multiply(group: &[u8], acts: &[u8], n: usize, tokens: usize, _: usize, out: &mut [f32]) {
        check(&TQ2_0, group, acts, n, tokens, out);
        // SAFETY: `check` has compared all lengths.
        unsafe { blocks::<Software, _>(Portable::<false>, group, acts, n, tokens, 0, out) }
    }

    fn multiply_whole(group: &[u8], acts: &[u8], n: usize, tokens: usize, _: usize, out: &mut [f32]) {
        check(&TL, group, acts, n, tokens, out);
        // SAFETY: `check` has compared all lengths.
        unsafe { rows::<Software, _>(Portable::<true>, group, acts, n.next_multiple_of(UNIT), tokens, 0, out) }
    }
}
