//! Recurrences as launches.

use super::calls::{Pass, int, memory};
use super::recurrent::{Recurrent, Tables};
use super::{Operand, ProgramError, fixed};
use crate::ptx::RECURRENT;

/// Threads of a block, where a column or a channel belongs to each, or a head to all.
const THREADS: usize = 128;

impl Pass<'_> {
    /// The last arguments of kernels over sequences: where states are, and the rows of the pass.
    fn of_sequences(&self, state: usize) -> [Operand; 6] {
        [
            memory(fixed::STATES),
            memory(fixed::SLOTS),
            memory(fixed::PLACES),
            int(self.program.state()),
            int(state),
            int(self.tokens),
        ]
    }

    /// Adds a launch over sequences with a thread for each of `columns`.
    fn by_column(
        &mut self,
        kernel: &str,
        columns: usize,
        mut operands: Vec<Operand>,
        state: usize,
    ) -> Result<(), ProgramError> {
        operands.extend(self.of_sequences(state));
        let blocks = [columns.div_ceil(THREADS), self.tokens];
        self.launch((RECURRENT, kernel), blocks, (THREADS, 0), operands)
    }

    /// Adds a launch over sequences with a block of threads for each of `heads`, which share so many floats.
    fn by_head(
        &mut self,
        kernel: &str,
        [heads, shared]: [usize; 2],
        mut operands: Vec<Operand>,
        state: usize,
    ) -> Result<(), ProgramError> {
        operands.extend(self.of_sequences(state));
        let blocks = [heads, self.tokens];
        self.launch((RECURRENT, kernel), blocks, (THREADS, 4 * shared), operands)
    }

    pub(super) fn recurrent(&mut self, recurrent: &Recurrent) -> Result<(), ProgramError> {
        let columns = |pass: &Self, value: usize| pass.value(value).columns;
        match *recurrent {
            Recurrent::Convolve { x, weights, bias, kernel, distance, state, to } => {
                let n = columns(self, x);
                // Nothing is read of a bias that is not there.
                let operands = vec![
                    self.at(x),
                    memory(weights),
                    memory(bias.unwrap_or(weights)),
                    self.at(to),
                    int(bias.is_some().into()),
                    int(n),
                    int(kernel),
                    int(distance),
                ];
                self.by_column("convolve", n, operands, state)?;
                self.keep_rows(x, (kernel - 1) * distance, state)
            }
            Recurrent::Ngrams { rule, end, longest, state, to } => {
                let (heads, kept) = (columns(self, to), longest - 1);
                let mut operands = vec![memory(fixed::TOKENS), memory(rule[0]), memory(rule[1]), self.at(to)];
                operands.extend([Operand::U32(end), int(heads / kept), int(heads)]);
                self.by_column("ngram_rows", heads, operands, state)?;
                self.by_column("keep_tokens", 1, vec![memory(fixed::TOKENS), int(kept)], state)
            }
            Recurrent::Compress { inputs, places, powers, size, ratio, overlap, state, to } => {
                let [values, scores] = inputs.map(|value| self.at(value));
                let (width, kept) = (columns(self, inputs[0]), if overlap { 2 * ratio } else { ratio });
                let mut operands = vec![values, scores, memory(places), memory(powers), self.at(to)];
                operands.extend([size, ratio, overlap.into()].map(int));
                self.by_column("compress", size, operands, state)?;
                let mut operands = vec![values, scores, memory(places)];
                operands.extend([width, ratio, kept].map(int));
                self.by_column("keep_blocks", width, operands, state)
            }
            Recurrent::Shift { x, state, to } => {
                let n = columns(self, x);
                self.by_column("shift", n, vec![self.at(x), self.at(to), int(n)], state)?;
                self.keep_rows(x, 1, state)
            }
            Recurrent::Decay { x, factors, tables: Tables { powers, logarithms }, bound, of_head } => {
                let mut operands = vec![self.at(x), memory(factors), memory(powers), memory(logarithms)];
                let heads = columns(self, x) / of_head;
                operands.extend([int(bound.is_some().into()), Operand::F32(bound.unwrap_or(0.0))]);
                operands.extend([of_head, heads].map(int));
                self.each((RECURRENT, "decay"), x, operands)
            }
            Recurrent::Scan { x, steps, vectors, rates, tables, by_number, lanes, groups, state, to } => {
                let n = columns(self, x);
                let Tables { powers, logarithms } = tables;
                let numbers = columns(self, vectors[0]) / groups;
                let mut operands = [x, steps, vectors[0], vectors[1]].map(|value| self.at(value)).to_vec();
                operands.extend([memory(rates), self.at(to), memory(powers), memory(logarithms)]);
                operands.extend([by_number.into(), lanes, groups, numbers, n].map(int));
                self.by_column("scan", n, operands, state)
            }
            Recurrent::Delta { inputs, powers, neighbours, heads, key_heads, size, state, to } => {
                let mut operands = inputs.map(|value| self.at(value)).to_vec();
                let by_row = columns(self, inputs[3]) > columns(self, inputs[4]);
                operands.extend([self.at(to), memory(powers), Operand::F32(1.0 / (size as f32).sqrt())]);
                operands.extend([by_row.into(), neighbours.into(), heads, key_heads, size].map(int));
                self.by_head("delta", [heads, 3 * size], operands, state)
            }
            Recurrent::Wkv6 { inputs, first, powers, size, state, to } => {
                let heads = columns(self, to) / size;
                let scale = (1.0 / (size as f64).sqrt()) as f32;
                let mut operands = inputs.map(|value| self.at(value)).to_vec();
                operands.extend([memory(first.unwrap_or(powers)), self.at(to), memory(powers), Operand::F32(scale)]);
                operands.extend([first.is_some().into(), heads, size].map(int));
                self.by_head("wkv6", [heads, 4 * size], operands, state)
            }
            Recurrent::Wkv7 { inputs, factors, powers, size, state, to } => {
                let heads = columns(self, inputs[0]) / size;
                let mut operands = inputs.map(|value| self.at(value)).to_vec();
                operands.extend(factors.map(memory));
                operands.extend([self.at(to), memory(powers), int(heads), int(size)]);
                self.by_head("wkv7", [heads, 6 * size], operands, state)
            }
            Recurrent::Lightning { inputs, slopes, powers, factor, cells, size, state, to } => {
                let heads = columns(self, to) / size;
                let mut operands = inputs.map(|value| self.at(value)).to_vec();
                operands.extend([memory(slopes), self.at(to), memory(powers), Operand::F32(factor)]);
                operands.extend([cells, heads, size].map(int));
                self.by_head("lightning", [heads, cells], operands, state)
            }
        }
    }

    /// The last rows of what was seen go into the state.
    fn keep_rows(&mut self, x: usize, kept: usize, state: usize) -> Result<(), ProgramError> {
        if kept == 0 {
            return Ok(());
        }
        let n = self.value(x).columns;
        self.by_column("keep_rows", n, vec![self.at(x), int(n), int(kept)], state)
    }
}
