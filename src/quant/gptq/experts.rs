//! Sums of the inputs that a weight reads: one, or one for each of the experts of stacked matrices.
//!
//! An expert that fewer tokens went to than its input has columns has a Hessian that says nothing of most directions.
//! The tokens that it is short of are taken from the mean of all experts of its stack, which met the same states of the
//! model: its sums become `S + (K - n) M`, with `n` its own tokens and `M` the mean product of all experts' tokens. One
//! without any token has that mean alone.

use trine_formats::hessian::Reads;

use super::fault::HessianFault;
use super::source::Sums;

/// The inputs of a weight.
pub struct Inputs<'a> {
    source: &'a dyn Sums,
    /// The sums of all experts and their tokens, where one of them is short of tokens.
    all: Option<(Vec<f64>, u64)>,
    /// Width of each input.
    pub columns: usize,
}

/// The sums over the tokens of one input.
pub struct InputSums {
    /// The lower triangle, row after row.
    pub sums: Vec<f64>,
    /// The number of tokens, those taken from the mean included.
    pub tokens: u64,
    /// True if some are from the mean of all experts.
    pub is_filled: bool,
}

impl<'a> Inputs<'a> {
    /// The inputs `reads`, which have so many columns and whose sums are `source`'s.
    ///
    /// # Errors
    /// A file that became shorter; experts none of which saw a token.
    pub fn new(source: &'a dyn Sums, reads: Reads, columns: usize) -> Result<Inputs<'a>, HessianFault> {
        let is_short = |number: usize| source.tokens(number) < columns as u64;
        let mut inputs = Inputs { source, all: None, columns };
        if !(0..reads.experts).any(is_short) {
            return Ok(inputs);
        }
        let tokens = (0..reads.experts).map(|number| source.tokens(number)).sum();
        if tokens == 0 {
            return Err(HessianFault::NoTokens);
        }
        let mut all = source.sums(0)?;
        for number in 1..reads.experts {
            let own = source.sums(number)?;
            all.iter_mut().zip(&own).for_each(|(sum, own)| *sum += own);
        }
        inputs.all = Some((all, tokens));
        Ok(inputs)
    }

    /// The sums for matrix number `number` of the weight.
    ///
    /// # Errors
    /// A file that became shorter.
    pub fn of(&self, number: usize) -> Result<InputSums, HessianFault> {
        let mut sums = self.source.sums(number)?;
        let tokens = self.source.tokens(number);
        let short = (self.columns as u64).saturating_sub(tokens);
        let Some((all, of_all)) = self.all.as_ref().filter(|_| short > 0) else {
            return Ok(InputSums { sums, tokens, is_filled: false });
        };
        let share = short as f64 / *of_all as f64;
        sums.iter_mut().zip(all).for_each(|(sum, all)| *sum += share * all);
        Ok(InputSums { sums, tokens: tokens + short, is_filled: true })
    }
}
