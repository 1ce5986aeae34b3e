//! Ternary codes, 32 rows interleaved, for AMX: the bytes of [`crate::shared::packed::t2`] or of [`super::t5`], unpacked to a
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
use super::t5;
use super::ternary_bytes::{COLUMNS, Trits, TwoBits};
use crate::arch::x86_64::tiles::Hardware;
use crate::proof::{AmxVbmi, Proof};
use crate::shared::packed::{Call, Layout};

use blocks::blocks;
use rows::rows;
use step::{STEP, STEPS};

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

pub(super) static TRITS: &[Layout] = &t5::layouts(AmxVbmi::NEEDS, multiply_trits, multiply_trits_of_rows, TILE);
pub(super) static TWO_BITS: &[Layout] = &t2::layouts(AmxVbmi::NEEDS, multiply_blocks, multiply_rows, TILE);

/// `$few` for fewer than `$from` tokens, tiles for more: of `$layout`'s groups, with its rows of `$columns`
/// activations.
macro_rules! products {
    ($name:ident, $from:ident, $few:expr, $layout:expr, $function:ident, $codes:expr, $columns:expr) => {
        fn $name(call: Call<'_>) {
            /// # Safety
            /// [`crate::Level::Amx`] and VBMI; lengths as [`Call::check`] has them.
            #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
            unsafe fn on_tiles(group: &[u8], acts: &[u8], n: usize, tokens: usize, ahead: usize, out: &mut [f32]) {
                // SAFETY: the caller has seen to it.
                unsafe { $function::<Hardware, _>($codes, group, acts, n, tokens, ahead, out) }
            }
            if call.tokens < $from {
                return $few(call);
            }
            let Call { group, acts, n, tokens, ahead, out, .. } = call.check(&$layout);
            // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
            unsafe { on_tiles(group, acts, $columns(n), tokens, ahead, out) }
        }
    };
}

products!(multiply_blocks, FROM, t2::multiply_tq2_0, TWO_BITS[0], blocks, TwoBits::<false>, usize::from);
products!(multiply_rows, FROM, t2::multiply_rows, TWO_BITS[3], rows, TwoBits::<true>, whole_units);
products!(multiply_trits, FROM_TRITS, t5::multiply_blocks, TRITS[0], blocks, Trits::new(), usize::from);
products!(multiply_trits_of_rows, FROM_TRITS, t5::multiply_rows, TRITS[3], rows, Trits::new(), whole_blocks);

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
    use crate::proof::Scalar;

    pub static LAYOUTS: &[Layout] = &t2::layouts(Scalar::NEEDS, multiply, multiply_whole, TILE);

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

    fn multiply(call: Call<'_>) {
        let Call { group, acts, n, tokens, out, .. } = call.check(&LAYOUTS[0]);
        // SAFETY: `check` has compared all lengths.
        unsafe { blocks::<Software, _>(Portable::<false>, group, acts, n, tokens, 0, out) }
    }

    fn multiply_whole(call: Call<'_>) {
        let Call { group, acts, n, tokens, out, .. } = call.check(&LAYOUTS[3]);
        // SAFETY: `check` has compared all lengths.
        unsafe { rows::<Software, _>(Portable::<true>, group, acts, n.next_multiple_of(UNIT), tokens, 0, out) }
    }
}
