//! Products of types that are integers to launches.

use super::calls::{Pass, int, memory};
use super::operation::Placed;
use super::{Call, Operand, ProgramError};
use crate::integers::IntegerLayout;
use crate::plan::Launch;
use crate::ptx::{INTEGERS, INTEGERS_ONE};

impl Pass<'_> {
    /// Adds a product that is planned. `chosen` is the list of who has which expert, and how many of a token's experts read
    /// the same row.
    pub(super) fn integers(
        &mut self,
        launch: Launch,
        (matrix, layout): (&Placed, &IntegerLayout),
        (from, out): (usize, Operand),
        chosen: Option<(usize, usize)>,
    ) -> Result<(), ProgramError> {
        let [_, _, bytes] = layout.bytes(matrix.rows, matrix.columns).unwrap_or_default();
        // Nothing is read of what a type does not have.
        let groups = matrix.memory + if bytes > 0 { 2 } else { 1 };
        let mut operands = [matrix.memory, matrix.memory + 1, groups].map(memory).to_vec();
        operands.extend(self.quants(from)?);
        let few = launch.module == INTEGERS;
        let share = chosen.map_or(1, |(_, share)| share);
        if few {
            operands.push(chosen.map_or(out, |(list, _)| self.at(list)));
        }
        operands.push(out);
        operands.extend(layout.table().map(Operand::U32));
        operands.extend(layout.factors().map(Operand::F32));
        operands.extend([layout.floats as usize, matrix.rows, matrix.columns].map(int));
        if launch.module != INTEGERS_ONE {
            operands.push(int(self.rows(from)));
        }
        if few {
            operands.extend([share, chosen.is_some().into()].map(int));
        }
        self.calls.push(Call { launch, operands });
        Ok(())
    }
}
