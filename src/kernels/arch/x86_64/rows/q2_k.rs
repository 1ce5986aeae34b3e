//! The head of a block of Q2_K, whose bytes are those of [`crate::shared::packed::k_quants::q2_k`].

use super::lanes::{Lanes, unroll};
use crate::shared::packed::k_quants::q2_k::{DMIN, SCALE, SCALES, SUMS};

/// A block's head for a register of rows.
pub(crate) struct Head<L: Lanes> {
    d: L::Floats,
    dmin: L::Floats,
    /// Line g: in the low nibbles the scales of groups 4g .. 4g + 4, above them their minima.
    pub(crate) lines: [L::Ints; 4],
}

impl<L: Lanes> Head<L> {
    /// The head of register v of a block's rows.
    ///
    /// # Safety
    /// The processor has the registers; the block is readable.
    #[inline(always)]
    pub(crate) unsafe fn new(block: *const u8, v: usize) -> Head<L> {
        // SAFETY: the caller's promise; d and dmin of sixteen rows, and four lines.
        unsafe {
            let (d, lines) = (block.add(2 * L::ROWS * v), block.add(SCALES + 4 * L::ROWS * v));
            let lines = [L::load(lines), L::load(lines.add(64)), L::load(lines.add(128)), L::load(lines.add(192))];
            Head { d: L::halves(d), dmin: L::halves(d.add(DMIN)), lines }
        }
    }

    /// `(yd * d) * scaled - (yd * dmin) * minima`, added to `chain`.
    ///
    /// # Safety
    /// The processor has the registers; a block of activations is readable at `y`.
    #[inline(always)]
    pub(crate) unsafe fn step(&self, chain: L::Floats, scaled: L::Ints, y: *const u8) -> L::Floats {
        // SAFETY: the caller's promise; the activations have sums and a scale.
        unsafe {
            let mut sums = [L::dwords(0); 2];
            // Pairs of minima, of groups (0, 2) and (1, 3) of each line.
            unroll!(G in [0 1 2 3] {
                let mins = [L::and(L::shr(self.lines[G], 4), L::words(15)), L::shr(self.lines[G], 12)];
                sums[0] = L::add_scaled_at::<{ SUMS + 8 * G }>(sums[0], mins[0], y);
                sums[1] = L::add_scaled_at::<{ SUMS + 8 * G + 4 }>(sums[1], mins[1], y);
            });
            let (minima, dy) = (L::add_dwords(sums[0], sums[1]), L::broadcast_float(y.add(SCALE)));
            let plus = L::mul(L::mul(dy, self.d), L::floats(scaled));
            L::add(chain, L::sub(plus, L::mul(L::mul(dy, self.dmin), L::floats(minima))))
        }
    }
}
