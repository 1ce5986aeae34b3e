//! Sums of many rows: a strip of words is widened once, into the first-level cache, for all of them.
//!
//! Sums are stored as `f64` after each strip and loaded again, which is exact.

// Indices, so that every loop unrolls and its arrays become registers.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use super::native::{Avx2, Avx512};
use super::sums::{Call, InPlace, Target, Words};
use crate::AlignedBytes;
use crate::arch::doubles::Doubles;
use crate::shared::halves::{BLOCK, LANES, LINE, Line, STEPS};
use crate::{Isa, Level};

/// Rows whose sums are kept in registers together, beside a step of the widest strip.
const ROWS: usize = 6;
/// Rows from which on it is faster to widen once than to widen for some rows at a time.
const FROM: usize = 6;
/// The same for AVX-512 and sums that go on from where they stand, of which five rows at a time are as fast up to twice
/// five.
const FROM_IN_PLACE: usize = 11;

impl<T: Target, const BRAIN: bool> Call<'_, T, BRAIN> {
    /// Returns true if this was done; it is not where rows are few or registers are.
    ///
    /// # Safety
    /// Words, coefficients and target are as large as the numbers say.
    pub unsafe fn in_strips(&self, isa: Isa) -> bool {
        // SAFETY: `isa` proves that the processor has the instruction set, and the caller says that the numbers fit the
        // pointers.
        unsafe {
            match isa.vectors() {
                Level::Avx2 if self.rows >= FROM => self.strips_avx2(),
                Level::Avx512 if self.rows >= if T::KEEPS { FROM_IN_PLACE } else { FROM } => self.strips_avx512(),
                _ => return false,
            }
        }
        true
    }

    // 16 and 32 KB of `f64`, beside which coefficients and sums find room in the first-level cache.

    /// # Safety
    /// The processor has these features; words, coefficients and target are as large as the numbers say.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn strips_avx2(&self) {
        // SAFETY: this function has the features, and its caller says that the numbers fit the pointers.
        unsafe { self.strips::<Avx2, 1, 256>() }
    }

    /// # Safety
    /// The processor has these features; words, coefficients and target are as large as the numbers say.
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn strips_avx512(&self) {
        // SAFETY: this function has the features, and its caller says that the numbers fit the pointers.
        unsafe { self.strips::<Avx512, 4, 128>() }
    }

    /// All strips, each of up to `L` lines by `LONG` steps.
    ///
    /// # Safety
    /// The processor has the instruction set; words, coefficients and target are as large as the numbers say.
    #[inline(always)]
    unsafe fn strips<S: Doubles, const L: usize, const LONG: usize>(&self) {
        let [widened, between] = [LONG * L * LINE, self.rows * LANES].map(|n| n * size_of::<f64>());
        let between = if T::KEEPS { 0 } else { between };
        let mut scratch = AlignedBytes::scratch(widened + between);
        let (strip, sums) = scratch.split_at_mut(widened);
        let sums = InPlace { acc: sums.as_mut_ptr().cast(), stride: LANES };
        // Asked for once, because an answer takes as long as some steps of a strip.
        let turns = Turns::of(self.rows);
        let seen = |row, rows| self.seen_by(row, rows);
        let seen: Vec<Range<usize>> = match self.seen {
            Some(_) => turns.iter().map(|(row, rows)| seen(row, rows)).collect(),
            None => Vec::new(),
        };
        let at = (strip.as_mut_ptr().cast::<f64>(), sums, turns, &seen[..]);
        let at_once = self.at_once.min(LONG / STEPS);
        for from in (self.from..self.to).step_by(at_once) {
            let quads = (from, self.to.min(from + at_once));
            for block in (self.line..self.line_end).step_by(BLOCK) {
                let words = self.block_of_words(block);
                let ahead = self.after(block, quads);
                for first in (0..words.stride).step_by(L) {
                    let line = block - self.line + first;
                    // SAFETY: the lines are within the block and the block within its tile; the strip has room for so
                    // many lines and steps.
                    unsafe {
                        let words = words.line_on(first);
                        let ahead = ahead.line_on(first);
                        match L.min(words.stride - first) {
                            _ if L == 1 => self.strip::<S, 1>(words, quads, line, at, ahead),
                            1 => self.strip::<S, 1>(words, quads, line, at, ahead),
                            2 => self.strip::<S, 2>(words, quads, line, at, ahead),
                            3 => self.strip::<S, 3>(words, quads, line, at, ahead),
                            _ => self.strip::<S, 4>(words, quads, line, at, ahead),
                        }
                    }
                }
            }
        }
    }

    /// `L` lines of some words times all rows, in even turns.
    ///
    /// # Safety
    /// As [`Call::strips`]; the lines from `words` on are within their block, and the strip and its sums have room for
    /// `L` lines.
    #[inline(always)]
    unsafe fn strip<S: Doubles, const L: usize>(
        &self,
        words: Words,
        (from, to): (usize, usize),
        line: usize,
        (widened, sums, turns, seen): (*mut f64, InPlace, Turns, &[Range<usize>]),
        mut ahead: Upcoming,
    ) {
        // SAFETY: words, strip and sums are there, as the caller says.
        unsafe { widen::<S, L, BRAIN>(words, (from, to), widened) };
        let next = ahead.line;
        // Each turn prefetches a part of the words that are widened next.
        let part = (to - from).div_ceil(turns.turns);
        for (turn, (row, rows)) in turns.iter().enumerate() {
            if !Self::prefetches_in_loop(L) {
                // SAFETY: the caller has the instruction set.
                unsafe { ahead.prefetch::<S, L>(part) };
            }
            let (start, end) = match seen.get(turn) {
                Some(seen) => (seen.start.max(from), seen.end.min(to)),
                None => (from, to),
            };
            if start < end {
                let strip = Strip {
                    // The words of the turn begin within the strip.
                    widened: widened.wrapping_add((start - from) * STEPS * L * LINE),
                    steps: STEPS * start..STEPS * end,
                    sums,
                    next,
                    ends: [from == self.from, to == self.to].map(|end| end || T::KEEPS),
                };
                let at = (row, line);
                // SAFETY: the steps are among those of the strip and the rows among those of the call.
                unsafe {
                    match rows {
                        3 => self.strip_turn::<S, L, 3>(strip, at),
                        4 => self.strip_turn::<S, L, 4>(strip, at),
                        5 => self.strip_turn::<S, L, 5>(strip, at),
                        _ => self.strip_turn::<S, L, 6>(strip, at),
                    }
                }
            }
        }
    }

    /// A strip times `R` rows of coefficients.
    ///
    /// # Safety
    /// As [`Call::strips`]; the strip has `L` lines, and rows `row .. row + R` and lines `line .. line + L` are among
    /// those of the call.
    #[inline(always)]
    unsafe fn strip_turn<S: Doubles, const L: usize, const R: usize>(&self, strip: Strip, (row, line): (usize, usize)) {
        let [begins, ends] = strip.ends;
        // SAFETY: lines of the strip, rows of coefficients, sums and target, as the caller says.
        unsafe {
            let mut acc = [[S::zero(); L]; R];
            for r in 0..R {
                for l in 0..L {
                    let (row, lane) = (row + r, LINE * (line + l));
                    acc[r][l] = if begins { self.target.load::<S>(row, lane) } else { strip.sums.load::<S>(row, lane) };
                }
            }
            let coefs = self.coefs.add(row * self.coef_stride + strip.steps.start);
            macro_rules! add {
                ($step:expr) => {
                    let from = strip.widened.add($step * L * LINE);
                    let mut w = [S::zero(); L];
                    for l in 0..L {
                        w[l] = S::load(from.add(l * LINE));
                    }
                    for r in 0..R {
                        let c = coefs.add(r * self.coef_stride + $step);
                        for l in 0..L {
                            acc[r][l] = S::add(acc[r][l], w[l], c);
                        }
                    }
                };
            }
            // Several steps of one line in a turn of the loop, so that sums stay in their registers; of four lines one,
            // because the compiler reads more of them at a time than there are registers left.
            for step in (0..strip.steps.len()).step_by(if L == 1 { STEPS } else { 1 }) {
                if Self::prefetches_in_loop(L) {
                    S::prefetch(strip.next.wrapping_add(step));
                }
                add!(step);
                if L == 1 {
                    add!(step + 1);
                    add!(step + 2);
                    add!(step + 3);
                }
            }
            for r in 0..R {
                for l in 0..L {
                    let (row, lane) = (row + r, LINE * (line + l));
                    if ends {
                        self.target.store::<S>(row, lane, acc[r][l]);
                    } else {
                        strip.sums.store::<S>(row, lane, acc[r][l]);
                    }
                }
            }
        }
    }

    /// True if each step of a turn prefetches a line. A strip of whole blocks of one tile has as many lines as steps,
    /// in sequence, and few rows wait less for them so; elsewhere every instruction of the loop counts.
    const fn prefetches_in_loop(lines: usize) -> bool {
        !T::KEEPS && lines == BLOCK
    }

    /// The words that follow some words of a block: those of the next block, and after the last block the words that
    /// come next.
    fn after(&self, block: usize, (from, to): (usize, usize)) -> Upcoming {
        let (block, quad) = match block + BLOCK {
            next if next < self.line_end => (next, from),
            _ => (self.line, to),
        };
        let words = self.block_of_words(block);
        let (line, left) = words.in_tile(quad, usize::MAX);
        Upcoming { line, left, words }
    }
}

/// Words to prefetch, which need not be there.
#[derive(Clone, Copy)]
struct Upcoming {
    /// A line of the first of them.
    line: *const Line,
    /// How many are left in this tile.
    left: usize,
    words: Words,
}

impl Upcoming {
    /// The same from a line of the block on.
    fn line_on(self, line: usize) -> Upcoming {
        Upcoming { line: self.line.wrapping_add(line), ..self }
    }

    /// Prefetches `L` lines of each of the first words.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn prefetch<S: Doubles, const L: usize>(&mut self, count: usize) {
        for _ in 0..count {
            for l in 0..L {
                // SAFETY: a prefetch is no access, and the caller has the instruction set.
                unsafe { S::prefetch(self.line.wrapping_add(l)) };
            }
            self.line = self.line.wrapping_add(self.words.stride);
            self.left -= 1;
            if self.left == 0 {
                self.left = self.words.quads;
                let rest = self.words.tile - self.words.quads * self.words.stride;
                self.line = self.line.wrapping_add(rest);
            }
        }
    }
}

/// Rows in even turns of up to [`ROWS`], which are three and more where there are [`FROM`].
#[derive(Clone, Copy)]
struct Turns {
    turns: usize,
    /// Rows of a turn, and how many turns have one more.
    rows: usize,
    more: usize,
}

impl Turns {
    fn of(rows: usize) -> Turns {
        let turns = rows.div_ceil(ROWS);
        Turns { turns, rows: rows / turns, more: rows % turns }
    }

    /// First row and rows of each.
    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.turns).map(move |turn| {
            let first = self.rows * turn + turn.min(self.more);
            (first, self.rows + usize::from(turn < self.more))
        })
    }
}

/// The part of a strip for a turn.
struct Strip {
    /// `[step][lane]`.
    widened: *const f64,
    /// Steps of the coefficients.
    steps: Range<usize>,
    /// Sums between strips.
    sums: InPlace,
    /// Lines to prefetch.
    next: *const Line,
    /// True if sums begin in the target, and true if they end there.
    ends: [bool; 2],
}

/// `L` lines of some words as `[step][lane]`.
///
/// # Safety
/// The processor has the instruction set; the words are readable, and `strip` has room for all of their steps of `L`
/// lines.
#[inline(always)]
unsafe fn widen<S: Doubles, const L: usize, const BRAIN: bool>(
    words: Words,
    (mut from, to): (usize, usize),
    mut strip: *mut f64,
) {
    while from < to {
        let (first, more) = words.in_tile(from, to);
        // SAFETY: the caller has the words and room for their steps.
        unsafe {
            for quad in 0..more {
                for l in 0..L {
                    let line = S::words(first.add(quad * words.stride + l));
                    let to = strip.add(l * LINE);
                    S::store(to, S::field::<0, BRAIN>(line));
                    S::store(to.add(L * LINE), S::field::<1, BRAIN>(line));
                    S::store(to.add(2 * L * LINE), S::field::<2, BRAIN>(line));
                    S::store(to.add(3 * L * LINE), S::field::<3, BRAIN>(line));
                }
                strip = strip.add(STEPS * L * LINE);
            }
        }
        from += more;
    }
}
