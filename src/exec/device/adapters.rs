//! Adapters of matrices as launches: two small products beside that of the matrix, and their sum with it. The factor is
//! a number that passes are told, as every pass may have others.

use trine_cuda::program::{Chosen, Matrix, ProgramError, Span};

use super::added::Added;
use super::tape::{Tape, missing};
use crate::program::{LowRank, MatrixId};

impl<'a> Tape<'a> {
    /// The number of a factor.
    fn factor(&mut self, adapter: LowRank, rank: usize) -> usize {
        let added = Added::new(adapter, rank);
        if let Some(there) = self.factors.iter().position(|other| other.is_like(&added)) {
            return there;
        }
        self.factors.push(added);
        self.factors.len() - 1
    }

    /// Adds to `y` what adapters make of `x`, one after the other.
    pub(super) fn adapt(&mut self, adapters: &'a [LowRank], x: Span, y: Span) -> Result<(), ProgramError> {
        for adapter in adapters {
            let (a, b) = (self.stored(adapter.a)?, self.stored(adapter.b)?);
            let low = self.recorder.product(a, x)?;
            let more = self.recorder.product(b, low)?;
            let number = self.factor(*adapter, b.columns);
            self.recorder.add_times(y, more, number)?;
        }
        Ok(())
    }

    /// The same with the adapters of the experts that were chosen.
    pub(super) fn adapt_experts(
        &mut self,
        adapters: &'a [Vec<LowRank>],
        (x, y): (Span, Span),
        chosen: &Chosen,
    ) -> Result<(), ProgramError> {
        let count = adapters.first().map_or(0, Vec::len);
        if adapters.iter().any(|all| all.len() != count) {
            return missing("experts of which some have adapters");
        }
        for i in 0..count {
            let of = |tape: &Self, matrix: fn(&LowRank) -> MatrixId| {
                let all = adapters.iter().map(|all| tape.stored(matrix(&all[i])));
                all.collect::<Result<Vec<Matrix<'a>>, _>>()
            };
            let (a, b) = (of(self, |adapter| adapter.a)?, of(self, |adapter| adapter.b)?);
            let Some(rank) = b.first().map(|b| b.columns) else { continue };
            let low = self.recorder.product_of_chosen(&a, x, chosen)?;
            let more = self.recorder.product_of_chosen(&b, low, chosen)?;
            let number = self.factor(adapters[0][i], rank);
            self.recorder.add_times(y, more, number)?;
        }
        Ok(())
    }
}
