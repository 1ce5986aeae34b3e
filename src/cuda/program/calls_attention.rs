//! Attention to launches. Over a long cache blocks of threads share the cells of a head: three launches in the place of
//! one, with the same bits.

use super::calls::{OF_HEADS, Pass, at_once, int, memory};
use super::memory::size;
use super::operation::Attend;
use super::{Caches, Limits, Operand, ProgramError, fixed};
use crate::ptx::ATTENTION;

/// The order of sums is proven not to show for fewer cells than this (`src/cuda/kernels/attention.cu`).
const TOO_LONG: usize = 1 << 24;
/// Cells of a part, at least.
const PART: usize = 128;
/// Blocks of threads that keep a multiprocessor busy.
const OF_MULTIPROCESSOR: usize = 8;
/// Blocks of threads of a launch that shares cells, at most.
const MOST_SHARED: usize = 2048;

impl Caches {
    /// Parts of the cells of each of `rows` heads of tokens, which see `window` cells, or all where that is 0: a power of
    /// two, 1 where a block of threads has them all.
    pub(super) fn parts(self, rows: usize, window: usize) -> usize {
        let cells = if window == 0 { self.longest } else { self.longest.min(window) };
        if !(Caches::LONG..TOO_LONG).contains(&cells) {
            return 1;
        }
        let blocks = MOST_SHARED.min(OF_MULTIPROCESSOR * self.multiprocessors);
        let parts = (cells / PART).min(blocks / rows);
        parts.checked_ilog2().map_or(1, |power| 1 << power)
    }
}

impl Attend {
    /// Bytes of the scores of a token.
    fn scores(&self, limits: &Limits) -> Result<usize, ProgramError> {
        size(&[self.heads, limits.context, 4], "scores")
    }

    /// True if some pass shares the cells of a head among blocks of threads.
    fn is_shared(&self, limits: &Limits) -> bool {
        Caches::new(limits.context.min(TOO_LONG - 1), MOST_SHARED).parts(self.heads, self.window) > 1
    }

    /// Bytes of memory that its launches need beside values, at most.
    pub(super) fn work(&self, limits: &Limits) -> Result<usize, ProgramError> {
        if !self.is_halves() && limits.context >= TOO_LONG {
            let what = format!("a context of {} positions with keys or values that are no half floats", limits.context);
            return Err(ProgramError::TooLarge(what));
        }
        let row = self.scores(limits)?;
        let tokens = at_once(row).min(limits.tokens);
        let shared = if self.is_shared(limits) { self.places(MOST_SHARED / 2, 2)[4] } else { 0 };
        let apart = if self.is_halves() { 0 } else { self.places(self.heads * tokens, 1)[4] };
        Ok(row * tokens + shared.max(apart))
    }

    /// The tickets that its launches need, at most.
    pub(super) fn tickets(&self, limits: &Limits) -> usize {
        let shared = if self.is_shared(limits) { MOST_SHARED } else { 0 };
        match self.is_halves() {
            true => shared,
            // exponentials are launched by themselves for one part too
            false => shared.max(self.heads * limits.tokens),
        }
    }

    /// Where the memory of launches that share cells holds: sums of values, with the largest of these; totals of
    /// exponentials; the largest scores; the inverses of totals; scores. One part has no sums.
    pub(super) fn places(&self, rows: usize, parts: usize) -> [usize; 5] {
        let sums = if parts == 1 { 0 } else { 16 * rows * parts * self.value_size };
        let totals = sums + 8 * rows * parts;
        let largest = totals + 4 * rows * parts;
        [0, sums, totals, largest, largest + 4 * rows]
    }
}

impl Pass<'_> {
    /// Attention of all tokens, in as many launches as the scores' memory wants.
    pub(super) fn attend(&mut self, a: &Attend) -> Result<(), ProgramError> {
        let at_once = at_once(a.scores(&self.program.limits)?);
        for first in (0..self.tokens).step_by(at_once) {
            let tokens = at_once.min(self.tokens - first);
            let parts = self.caches.parts(a.heads * tokens, a.window);
            match parts {
                _ if !a.is_halves() => self.attend_cells(a, (first, tokens), parts)?,
                1 => self.attend_whole_rows(a, first, tokens)?,
                _ => self.attend_parts(a, (first, tokens), parts)?,
            }
        }
        Ok(())
    }

    /// One launch, in which a block of threads has a head of a token.
    fn attend_whole_rows(&mut self, a: &Attend, first: usize, tokens: usize) -> Result<(), ProgramError> {
        let ([rules, factor, cap, slopes], [sinks, powers]) = self.rules(a);
        let operands = vec![
            self.at(a.queries),
            memory(a.keys),
            memory(a.values),
            memory(fixed::PLACES),
            memory(fixed::TABLES),
            memory(fixed::WORK),
            self.at(a.to),
            Operand::F32(a.scale),
            int(a.window),
            int(a.chunked.into()),
            int(a.heads),
            int(a.kv_heads),
            int(a.key_size),
            int(a.value_size),
            int(self.program.limits.context),
            int(self.program.limits.row()),
            self.shift(),
            int(first),
            rules,
            factor,
            cap,
            slopes,
            sinks,
            powers,
        ];
        self.launch((ATTENTION, "attend"), [a.heads, tokens], (OF_HEADS, 4 * a.key_size), operands)
    }

    /// Three launches, in which blocks of threads have parts of a head of a token.
    fn attend_parts(&mut self, a: &Attend, (first, tokens): (usize, usize), parts: usize) -> Result<(), ProgramError> {
        let ([rules, factor, cap, slopes], [sinks, powers]) = self.rules(a);
        let [sums, totals, largest, inverses, scores] =
            a.places(a.heads * tokens, parts).map(|at| Operand::Memory(fixed::WORK, at));
        let [places, tables, tickets] = [fixed::PLACES, fixed::TABLES, fixed::TICKETS].map(memory);
        let [window, chunked, heads, kv_heads] = [a.window, a.chunked.into(), a.heads, a.kv_heads].map(int);
        let [key_size, value_size, first] = [a.key_size, a.value_size, first].map(int);
        let Limits { context, .. } = self.program.limits;
        let [context, row] = [context, self.program.limits.row()].map(int);
        let shift = self.shift();
        let (queries, to) = (self.at(a.queries), self.at(a.to));
        let scored = vec![
            queries,
            memory(a.keys),
            places,
            tables,
            scores,
            largest,
            Operand::F32(a.scale),
            window,
            chunked,
            heads,
            kv_heads,
            key_size,
            context,
            row,
            shift,
            first,
            rules,
            factor,
            cap,
            slopes,
        ];
        let added = vec![
            places, scores, largest, totals, inverses, tickets, window, chunked, heads, context, first, rules, sinks,
            powers,
        ];
        let weighed = vec![
            memory(a.values),
            places,
            tables,
            scores,
            inverses,
            sums,
            tickets,
            to,
            window,
            chunked,
            heads,
            kv_heads,
            value_size,
            context,
            row,
            shift,
            first,
        ];
        for (kernel, shared, operands) in [
            ("attend_scores", 4 * a.key_size, scored),
            ("attend_exponentials", 0, added),
            ("attend_values", 0, weighed),
        ] {
            let blocks = [a.heads, tokens, parts];
            self.launch_deep((ATTENTION, kernel), blocks, (OF_HEADS, shared), operands)?;
        }
        Ok(())
    }

    /// Rules of scores: their bits, factor and cap, and slopes; sinks and the table of the exponential.
    pub(super) fn rules(&self, a: &Attend) -> ([Operand; 4], [Operand; 2]) {
        let bits = [a.cap.is_some(), a.slopes.is_some(), a.sinks.is_some(), a.is_added()];
        let rules = bits.iter().enumerate().map(|(i, &there)| usize::from(there) << i).sum();
        let [factor, cap] = a.caps().map(Operand::F32);
        // Nothing is read of a rule that is not there.
        let other = self.at(a.queries);
        ([int(rules), factor, cap, a.slopes.map_or(other, memory)], a.sinks.map_or([other; 2], |of| of.map(memory)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::Form;
    use super::*;

    #[test]
    fn long_caches_have_parts_that_keep_all_multiprocessors_busy() {
        let parts = |cells, multiprocessors, rows, window| Caches::new(cells, multiprocessors).parts(rows, window);
        // 32 heads over 8192 cells: 1024 blocks of 256 cells.
        assert_eq!(parts(8192, 132, 32, 0), 32);
        // As many for every length up to twice that, and no part has fewer cells than a block has threads.
        assert_eq!((parts(8191, 132, 32, 0), parts(16383, 132, 32, 0), parts(16384, 132, 32, 0)), (32, 32, 32));
        assert_eq!((parts(1023, 132, 32, 0), parts(1024, 132, 32, 0), parts(2048, 132, 32, 0)), (1, 8, 16));
        // Few heads, small devices, many tokens, windows.
        assert_eq!((parts(1 << 17, 132, 1, 0), parts(8192, 28, 32, 0), parts(8192, 0, 32, 0)), (1024, 4, 1));
        assert_eq!((parts(8192, 132, 32 * 16, 0), parts(8192, 132, 32 * 64, 0)), (2, 1));
        assert_eq!((parts(1 << 17, 132, 32, 1024), parts(1 << 17, 132, 32, 1000)), (8, 1));
        assert_eq!((parts(1 << 23, 132, 32, 0), parts(1 << 24, 132, 32, 0)), (32, 1));
    }

    #[test]
    fn parts_have_the_memory_that_was_counted() {
        for (heads, value_size, context) in [(32, 128, 8192), (1, 16, 1 << 20), (128, 512, 1024), (1500, 2, 2000)] {
            let a = Attend {
                queries: 0,
                keys: 0,
                values: 0,
                heads,
                kv_heads: 1,
                key_size: 2,
                value_size,
                scale: 1.0,
                window: 0,
                chunked: false,
                forms: [Form::HALF; 2],
                cap: None,
                slopes: None,
                sinks: None,
                powers: None,
                to: 0,
            };
            let limits = Limits { tokens: 64, wanted: 1, context, page: 1, pages: 1, slots: 1 };
            let row = a.scores(&limits).expect("scores");
            for multiprocessors in [1, 16, 132, 500] {
                for tokens in 1..=at_once(row).min(limits.tokens) {
                    for longest in [context, context / 2, 1024] {
                        let rows = heads * tokens;
                        let parts = Caches::new(longest, multiprocessors).parts(rows, 0);
                        let needed = a.places(rows, parts)[4] + row * tokens;
                        let work = a.work(&limits).expect("work");
                        assert!(parts == 1 || needed <= work && rows <= a.tickets(&limits), "{rows}, {parts} parts");
                    }
                }
            }
        }
    }
}
