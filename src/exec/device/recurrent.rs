//! Recurrences over the positions of sequences as launches, and what stands around them.

use trine_cuda::program::{self as gpu, ProgramError, Span};

use super::tape::{Tape, missing};
use crate::math::{EXP2_32, LOG_16};
use crate::ops::lightning::BLOCK;
use crate::ops::scan::Rates;
use crate::program::{Op, Operation};

/// The tables of the exponential and of the logarithm.
const TABLES: [&[u64; 32]; 2] = [&EXP2_32, &LOG_16];

/// True if an operation is one of those here that leave their inputs as they are.
pub fn is_fresh(op: &Op) -> bool {
    matches!(
        op,
        Op::Convolve(..)
            | Op::Delta(..)
            | Op::Scan(..)
            | Op::Shift(_)
            | Op::Compress(..)
            | Op::Lightning(..)
            | Op::Wkv6(..)
            | Op::GatedLinear(..)
            | Op::Wkv7(..)
    )
}

impl<'a> Tape<'a> {
    fn all<const N: usize>(&self, operation: &Operation) -> Result<[Span; N], ProgramError> {
        let spans = operation.inputs.iter().map(|&input| self.rows(input)).collect::<Result<Vec<_>, _>>()?;
        spans.try_into().or_else(|_| missing(format!("the inputs of {}", operation.op.name())))
    }

    /// Records a recurrence that begins with the state of each sequence and leaves the next one.
    pub fn recurrent(&mut self, operation: &'a Operation) -> Result<Span, ProgramError> {
        match &operation.op {
            Op::Convolve(rule, _) => {
                let [x] = self.all(operation)?;
                let (weights, bias, distance) = (&rule.weights[..], rule.bias.as_deref(), rule.distance);
                self.recorder.convolve(x, &gpu::Convolution { weights, bias, distance })
            }
            Op::Shift(_) => {
                let [x] = self.all(operation)?;
                self.recorder.shift(x)
            }
            Op::Compress(rule, _) => {
                let crate::ops::compress::Compress { size, ratio, overlap, places } = &**rule;
                let rule = gpu::Compress { size: *size, ratio: *ratio, overlap: *overlap, places, powers: &EXP2_32 };
                self.recorder.compress(self.all(operation)?, &rule)
            }
            Op::Scan(rule, _) => {
                let (rates, by_number) = match &rule.rates {
                    Rates::Block(rates) => (rates, false),
                    Rates::State(rates) => (rates, true),
                };
                let groups = rule.groups();
                let scan = gpu::Scan { rates, by_number, lanes: rule.lanes, groups, tables: TABLES };
                self.recorder.scan(self.all(operation)?, &scan)
            }
            Op::Delta(rule, _) => {
                let crate::ops::delta::Delta { heads, key_heads, neighbours, size } = *rule;
                let rule = gpu::Delta { heads, key_heads, neighbours, size, powers: &EXP2_32 };
                self.recorder.delta(self.all(operation)?, &rule)
            }
            Op::Lightning(rule, _) => {
                let (size, slopes, factor) = (rule.size, &rule.slopes[..], rule.factor);
                let rule = gpu::Lightning { size, slopes, factor, block: BLOCK, powers: &EXP2_32 };
                self.recorder.lightning(self.all(operation)?, &rule)
            }
            Op::Wkv6(rule, _) => {
                let rule = gpu::Wkv6 { size: rule.size, first: Some(&rule.first), powers: &EXP2_32 };
                self.recorder.wkv6(self.all(operation)?, &rule)
            }
            Op::GatedLinear(rule, _) => {
                let rule = gpu::Wkv6 { size: rule.size, first: None, powers: &EXP2_32 };
                self.recorder.wkv6(self.all(operation)?, &rule)
            }
            Op::Wkv7(rule, _) => {
                let factors = [&rule.removal[..], &rule.replacement, &rule.bonus];
                let rule = gpu::Wkv7 { size: rule.size, factors, powers: &EXP2_32 };
                self.recorder.wkv7(self.all(operation)?, &rule)
            }
            other => missing(format!("the operation {}", other.name())),
        }
    }

    /// The decays of a delta rule, where their numbers are.
    pub fn decay(&mut self, x: Span, rule: &'a crate::ops::delta::Decay) -> Result<(), ProgramError> {
        let crate::ops::delta::Decay { factors, of_head, bound } = rule;
        self.recorder.decay(x, &gpu::Decay { factors, of_head: *of_head, bound: *bound, tables: TABLES })
    }
}
