//! Operations that few models have as launches: several residual streams, matrices of heads, gates of other functions.

use trine_cuda::program::{self as gpu, ProgramError, Span};

use super::tape::{Tape, missing};
use crate::math::{EXP2_32, LOG_16};
use crate::ops::activation::HeadGate;
use crate::ops::attention::AttendCompressed;
use crate::ops::streams::Streams;
use crate::program::{Op, Stack, Value};

impl<'a> Tape<'a> {
    /// Records such an operation.
    ///
    /// # Errors
    /// Its name, where no kernel does it; sizes that a GPU does not have.
    pub(super) fn between(&mut self, at: usize) -> Result<(), ProgramError> {
        let operation = &self.program.operations()[at];
        let (inputs, outputs) = (&operation.inputs, &operation.outputs);
        match &operation.op {
            Op::HeadGate(HeadGate::Softplus) => {
                let (x, gates) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.softplus_gate(x, gates, [&EXP2_32, &LOG_16])?;
                self.set(outputs[0], x);
            }
            Op::DivideRow(row) => {
                let x = self.own(at)?;
                self.recorder.divide_row(x, row)?;
                self.set(outputs[0], x);
            }
            Op::MultiplyAdd(row) => {
                let (x, y) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.multiply_add(x, y, row)?;
                self.set(outputs[0], x);
            }
            Op::Fill(row) => {
                let y = self.recorder.fill(self.rows(inputs[0])?, row)?;
                self.set(outputs[0], y);
            }
            Op::ScaleByPosition(factor) => {
                let x = self.own(at)?;
                let factors = self.factors(*factor)?;
                self.recorder.scale_rows(x, factors)?;
                self.set(outputs[0], x);
            }
            Op::AsLong(width) => {
                let (x, y) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.as_long(x, y, *width)?;
                self.set(outputs[0], x);
            }
            Op::Cutoff(factor) => {
                let x = self.own(at)?;
                self.recorder.cutoff(x, *factor);
                self.set(outputs[0], x);
            }
            Op::ProductsByHead(stack) => {
                let y = self.product_by_head(stack, self.rows(inputs[0])?)?;
                self.set(outputs[0], y);
            }
            Op::SumStreams(count) => {
                let y = self.recorder.sum_streams(self.rows(inputs[0])?, self.rows(inputs[1])?, *count)?;
                self.set(outputs[0], y);
            }
            Op::ReadStreams(streams) => self.read_streams(streams, [inputs[0], inputs[1]], outputs)?,
            Op::WriteStreams { count, mixed } => {
                let (x, y) = (self.own(at)?, [self.rows(inputs[1])?, self.rows(inputs[2])?]);
                self.recorder.write_streams(x, y, *count, *mixed)?;
                self.set(outputs[0], x);
            }
            Op::Blend(scores) => {
                let streams = inputs.iter().map(|&x| self.rows(x)).collect::<Result<Vec<_>, _>>()?;
                let weights = self.recorder.sums_beside(streams[0], streams.len())?;
                for (i, &x) in streams.iter().enumerate() {
                    let normed = self.norm(scores, x)?;
                    self.recorder.sum_row(normed, weights, i)?;
                }
                self.recorder.soft_max(weights, &EXP2_32);
                let y = self.recorder.blend(&streams, weights)?;
                self.set(outputs[0], y);
            }
            Op::Turn(kind, turn) => {
                let x = self.own(at)?;
                let rotation = self.turn(*kind, *turn)?;
                self.recorder.rotate(x, rotation, turn.head)?;
                self.set(outputs[0], x);
            }
            Op::AttendCompressed(rule) => {
                let [q, keys, compressed] = [0, 1, 2].map(|i| self.rows(inputs[i]));
                let y = self.attend_compressed(rule, [q?, keys?, compressed?])?;
                self.set(outputs[0], y);
            }
            Op::RootedDots(width) => {
                let y = self.recorder.rooted_dots(self.rows(inputs[0])?, self.rows(inputs[1])?, *width)?;
                self.set(outputs[0], y);
            }
            Op::EmbedNgrams(rule, table, _) => {
                let (multipliers, heads) = (&rule.multipliers[..], &rule.heads[..]);
                let rule = gpu::Ngrams { multipliers, heads, end: rule.end };
                let y = self.recorder.embed_ngrams(self.stored(*table)?, &rule)?;
                self.set(outputs[0], y);
            }
            other => return missing(format!("the operation {}", other.name())),
        }
        Ok(())
    }

    /// Products of the rows of heads with their matrices.
    fn product_by_head(&mut self, stack: &'a Stack, x: Span) -> Result<Span, ProgramError> {
        let Stack { matrices, observed: _, scales, biases, adapters } = stack;
        if scales.is_some() || biases.is_some() || adapters.iter().any(|all| !all.is_empty()) {
            return missing("factors, biases and adapters of heads");
        }
        let matrices = (0..matrices.len()).map(|head| self.stored(stack.matrix(head)));
        let matrices = matrices.collect::<Result<Vec<_>, _>>()?;
        self.recorder.product_by_head(&matrices, x)
    }

    /// Attention to the last positions and to compressed keys.
    fn attend_compressed(
        &mut self,
        rule: &'a AttendCompressed,
        [queries, keys, compressed]: [Span; 3],
    ) -> Result<Span, ProgramError> {
        let AttendCompressed { cache: _, heads, size, scale, window, ratio, sinks } = rule;
        if window.chunked {
            return missing("compressed keys beside windows that do not move");
        }
        let of = gpu::Heads { queries: *heads, keys: 1, key_size: *size, value_size: *size };
        let cells = self.recorder.store([keys, compressed], of)?;
        let sinks = (!sinks.is_empty()).then_some((&sinks[..], &EXP2_32));
        self.recorder.attend_compressed(queries, cells, [window.size, *ratio], *scale, sinks)
    }

    fn read_streams(
        &mut self,
        streams: &'a Streams,
        [x, numbers]: [Value; 2],
        outputs: &[Value],
    ) -> Result<(), ProgramError> {
        let Streams { count, eps, magnitude, offset, mixing, scales, bases } = streams;
        let streams = gpu::Streams {
            count: *count,
            eps: *eps,
            magnitude: *magnitude,
            offset: *offset,
            mixing: mixing.map(|mixing| (mixing.rounds, mixing.eps)),
            scales,
            bases,
            powers: &EXP2_32,
        };
        let (read, written) = self.recorder.read_streams(self.rows(x)?, self.rows(numbers)?, &streams)?;
        self.set(outputs[0], read);
        if let (Some(written), Some(&output)) = (written, outputs.get(1)) {
            self.set(output, written);
        }
        Ok(())
    }
}
