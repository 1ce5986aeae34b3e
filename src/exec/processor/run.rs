//! Passes over a program: its body, and the logits of some rows.

use std::ops::Range;

use super::pass::Pass;
use super::positions::Positions;
use super::values::Values;
use super::weights::{Cancelled, PassOptions, Processor};
use crate::cancel::CancelToken;
use crate::kernels::Floats;
use crate::kv;
use crate::ops::rows::copy;
use crate::program::{Program, Value};

/// Rows whose logits are computed together: enough to share the reading of the output matrix, few enough that a
/// vocabulary of 262144 takes 32 MB.
const LOGITS_AT_ONCE: usize = 32;

impl Processor {
    /// Carries out all operations of `program` before number `end` over one pass, whose `tokens` are those of the rows
    /// of `parts`; the values `wanted`, and those that the program keeps. Keys and values are stored; the sequences' lengths are the caller's to advance.
    ///
    /// # Errors
    /// The pass was cancelled.
    pub fn run(
        &self,
        program: &Program,
        (end, wanted): (usize, &[Value]),
        tokens: &[u32],
        parts: &mut [kv::SequenceRows<'_>],
        options: &PassOptions,
    ) -> Result<(Vec<Floats>, Vec<Floats>), Cancelled> {
        let positions = Positions::new(parts, self.ropes.of(options.n_ctx));
        let mut pass =
            Pass { processor: self, program, options, tokens, positions, parts, values: Values::new(program.values()) };
        pass.run(0..program.start().end.min(end));
        for block in program.blocks() {
            if options.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                return Err(Cancelled);
            }
            pass.run(block.start.min(end)..block.end.min(end));
        }
        let behind = program.blocks().last().map_or(end, |block| block.end);
        pass.run(behind.min(end)..end);
        let kept = program.kept().iter().map(|&value| copy(pass.values.get(value))).collect();
        Ok((wanted.iter().map(|&value| pass.values.take(value)).collect(), kept))
    }

    /// Carries out some operations of `program` over one pass, whose `tokens` are those of the rows of `parts`: from the
    /// values that enter to the values `wanted`, which later operations read. Keys and values are stored; the sequences'
    /// lengths are the caller's to advance.
    pub fn run_part(
        &self,
        program: &Program,
        operations: Range<usize>,
        (entering, wanted): (&[(Value, Floats)], &[Value]),
        tokens: &[u32],
        parts: &mut [kv::SequenceRows<'_>],
        options: &PassOptions,
    ) -> Vec<Floats> {
        let positions = Positions::new(parts, self.ropes.of(options.n_ctx));
        let mut values = Values::new(program.values());
        entering.iter().for_each(|(value, rows)| values.set(*value, copy(rows)));
        let mut pass = Pass { processor: self, program, options, tokens, positions, parts, values };
        pass.run(operations);
        wanted.iter().map(|&value| pass.values.take(value)).collect()
    }

    /// The hidden states of rows of the residual stream.
    pub fn hidden(&self, program: &Program, rows: &[f32], options: &PassOptions) -> Floats {
        let made = program.operations().iter().position(|o| o.outputs.contains(&program.hidden()));
        self.head(program, rows, options, made.map_or(0, |at| at + 1), program.hidden())
    }

    /// Calls `sink` with the number and the logits of every row of the residual stream in `rows`, in order.
    pub fn logits(&self, program: &Program, rows: &[f32], options: &PassOptions, sink: &mut dyn FnMut(usize, &[f32])) {
        let n = program.shape(program.taken()).columns;
        let end = program.head().end;
        for (block, rows) in rows.chunks(LOGITS_AT_ONCE * n).enumerate() {
            let logits = self.head(program, rows, options, end, program.logits());
            for (i, row) in logits.chunks_exact(logits.len() / (rows.len() / n)).enumerate() {
                sink(block * LOGITS_AT_ONCE + i, row);
            }
        }
    }

    /// The value `wanted` of the operations behind the taking of rows, before number `end`.
    fn head(&self, program: &Program, rows: &[f32], options: &PassOptions, end: usize, wanted: Value) -> Floats {
        let mut values = Values::new(program.values());
        values.set(program.taken(), copy(rows));
        let positions = Positions::none(self.ropes.of(options.n_ctx));
        let mut pass = Pass { processor: self, program, options, tokens: &[], positions, parts: &mut [], values };
        pass.run(program.head().start + 1..end);
        pass.values.take(wanted)
    }
}
