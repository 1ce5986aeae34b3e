//! [`super::dots`] of many rows: a strip of words is widened once, into the first-level cache, for all of them.
//!
//! The sums of all rows are put down as `f64` after each strip and taken up again, which changes no bit of them.

// Indices, so that every loop unrolls and its arrays become registers.
#![allow(clippy::needless_range_loop)]

use super::{BLOCK, LANES, LINE, Line, STEPS};
use crate::AlignedBytes;
use crate::arch::x86_64::halves::{Avx2, Avx512};
use crate::simd::Doubles;
use crate::{Isa, Level};

/// Steps of a strip: 32 KB of `f64`, which leaves room beside it for coefficients and sums.
const STRIP: usize = 128;
/// Rows from which on it is faster to widen once than to widen for some rows at a time.
const FROM: usize = 6;

/// Words of a block times rows of coefficients.
#[derive(Clone, Copy)]
pub struct Strips<const BRAIN: bool> {
    pub words: *const Line,
    pub quads: usize,
    pub coefs: *const f64,
    pub coef_stride: usize,
    pub rows: usize,
    pub out: *mut f32,
    pub out_stride: usize,
}

impl<const BRAIN: bool> Strips<BRAIN> {
    /// Whether this was done; it is not where rows are few or registers are.
    ///
    /// # Safety
    /// Words, coefficients and outputs are as large as the numbers say.
    pub unsafe fn run(self, isa: Isa) -> bool {
        if self.rows < FROM {
            return false;
        }
        // SAFETY: `isa` proves that the processor has the instruction set, and the caller says that the numbers fit the pointers.
        unsafe {
            match isa.vectors() {
                Level::Avx2 => self.avx2(),
                Level::Avx512 => self.avx512(),
                _ => return false,
            }
        }
        true
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(self) {
        // SAFETY: this function has the features, and its caller says that the numbers fit the pointers.
        unsafe { self.all::<Avx2, 1>() }
    }

    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn avx512(self) {
        // SAFETY: this function has the features, and its caller says that the numbers fit the pointers.
        unsafe { self.all::<Avx512, 4>() }
    }

    /// All strips, rows in even turns of up to six, `L` lines at a time.
    #[inline(always)]
    unsafe fn all<S: Doubles, const L: usize>(self) {
        let mut scratch = AlignedBytes::scratch((STRIP + self.rows) * LANES * 8);
        let (strip, sums) = scratch.split_at_mut(STRIP * LANES * 8);
        let (strip, sums) = (
            strip.as_mut_ptr().cast::<f64>(),
            sums.as_mut_ptr().cast::<f64>(),
        );
        let turns = self.rows.div_ceil(6);
        let mut quad = 0;
        while quad < self.quads {
            let quads = (self.quads - quad).min(STRIP / STEPS);
            // SAFETY: the quads are among those of the words and no more than a strip's; rows of a turn are among those of
            // the call.
            unsafe {
                self.widen::<S>(quad, quads, strip);
                let mut row = 0;
                for turn in 0..turns {
                    let rows = (self.rows - row).div_ceil(turns - turn);
                    let at = (row, quad, quads);
                    match rows {
                        3 => self.turn::<S, L, 3>(at, strip, sums),
                        4 => self.turn::<S, L, 4>(at, strip, sums),
                        5 => self.turn::<S, L, 5>(at, strip, sums),
                        _ => self.turn::<S, L, 6>(at, strip, sums),
                    }
                    row += rows;
                }
            }
            quad += quads;
        }
    }

    /// Some quads as `[step][lane]`.
    #[inline(always)]
    unsafe fn widen<S: Doubles>(self, quad: usize, quads: usize, strip: *mut f64) {
        for q in 0..quads {
            for line in 0..BLOCK {
                // SAFETY: the caller has the words and room for their steps.
                unsafe {
                    let words = S::words(self.words.add((quad + q) * BLOCK + line));
                    let to = strip.add(q * STEPS * LANES + line * LINE);
                    S::store(to, S::field::<0, BRAIN>(words));
                    S::store(to.add(LANES), S::field::<1, BRAIN>(words));
                    S::store(to.add(2 * LANES), S::field::<2, BRAIN>(words));
                    S::store(to.add(3 * LANES), S::field::<3, BRAIN>(words));
                }
            }
        }
    }

    /// A strip times `R` rows of coefficients.
    #[inline(always)]
    unsafe fn turn<S: Doubles, const L: usize, const R: usize>(
        self,
        (row, quad, quads): (usize, usize, usize),
        strip: *const f64,
        sums: *mut f64,
    ) {
        for line in (0..BLOCK).step_by(L) {
            // SAFETY: lines of the strip, rows of coefficients, sums and outputs, as the caller says.
            unsafe {
                let at = |r: usize, l: usize| sums.add((row + r) * LANES + (line + l) * LINE);
                let mut acc = [[S::zero(); L]; R];
                if quad > 0 {
                    for r in 0..R {
                        for l in 0..L {
                            acc[r][l] = S::load(at(r, l));
                        }
                    }
                }
                let coefs = self.coefs.add(row * self.coef_stride + STEPS * quad);
                // The words of the next strip, as many lines as this one has steps, or what is there at the end.
                let next = self.words.wrapping_add((quad + quads) * BLOCK);
                for step in 0..STEPS * quads {
                    if line == 0 {
                        S::prefetch(next.wrapping_add(step));
                    }
                    let from = strip.add(step * LANES + line * LINE);
                    let mut w = [S::zero(); L];
                    for l in 0..L {
                        w[l] = S::load(from.add(l * LINE));
                    }
                    for r in 0..R {
                        let c = coefs.add(r * self.coef_stride + step);
                        for l in 0..L {
                            acc[r][l] = S::add(acc[r][l], w[l], c);
                        }
                    }
                }
                let last = quad + quads == self.quads;
                for r in 0..R {
                    for l in 0..L {
                        if last {
                            let out = self.out.add((row + r) * self.out_stride);
                            S::store_f32(out.add((line + l) * LINE), acc[r][l]);
                        } else {
                            S::store(at(r, l), acc[r][l]);
                        }
                    }
                }
            }
        }
    }
}
