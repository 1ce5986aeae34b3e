//! Mixtures of experts to launches.

use super::calls::{ELEMENTS, Pass, int, memory};
use super::memory::{RowCount, Value};
use super::operation::{ByToken, Choose, Claim, Gating, Placed};
use super::{Call, Operand, ProgramError, fixed};
use crate::ptx::EXPERTS;
use crate::{floats, plan};

/// Rows of the choice's value for each of a token's experts.
fn used(value: Value) -> usize {
    match value.rows {
        RowCount::Chosen(used) => used,
        _ => 1,
    }
}

impl Pass<'_> {
    pub(super) fn choose(&mut self, c: &Choose) -> Result<(), ProgramError> {
        let gating = match c.gating {
            Gating::SoftMax => 0,
            Gating::Sigmoid => 1,
            Gating::SoftMaxOfChosen => 2,
            Gating::Itself => 3,
        };
        let claim = match c.claim {
            Claim::Probabilities => 0,
            Claim::Scores => 1,
            Claim::Sigmoids => 2,
        };
        let [groups, of_groups] = c.groups.unwrap_or([1, 1]);
        let operands = vec![
            self.at(c.scores),
            // Nothing is read where there is no bias.
            c.bias.map_or(self.at(c.scores), memory),
            memory(c.powers),
            self.at(c.chosen),
            self.at(c.weights),
            int(self.value(c.scores).columns),
            int(c.used),
            int(gating),
            int(claim),
            int(c.bias.is_some().into()),
            int(groups),
            int(of_groups),
            int(c.shared_by),
            int(c.normalize.into()),
            Operand::F32(c.scale),
        ];
        let blocks = [self.rows(c.scores), 1];
        self.launch((EXPERTS, "choose"), blocks, (ELEMENTS, 0), operands)
    }

    pub(super) fn choose_by_token(&mut self, c: &ByToken) -> Result<(), ProgramError> {
        let tokens = self.rows(c.probabilities);
        let operands = vec![
            self.at(c.probabilities),
            memory(fixed::TOKENS),
            memory(c.table),
            self.at(c.chosen),
            self.at(c.weights),
            int(self.value(c.probabilities).columns),
            int(c.used),
            int(c.normalize.into()),
            Operand::F32(c.scale),
            int(tokens),
        ];
        self.launch((EXPERTS, "choose_by_token"), [tokens.div_ceil(ELEMENTS), 1], (ELEMENTS, 0), operands)
    }

    pub(super) fn take_choice(&mut self, [from, chosen, weights]: [usize; 3]) -> Result<(), ProgramError> {
        let operands = vec![self.at(from), self.at(chosen), self.at(weights)];
        self.each((EXPERTS, "take_choice"), from, operands)
    }

    pub(super) fn list(&mut self, chosen: usize, list: usize) -> Result<(), ProgramError> {
        let operands = vec![self.at(chosen), self.at(list), int(self.rows(chosen)), int(self.rows(list))];
        self.launch((EXPERTS, "list_chosen"), [1, 1], (ELEMENTS, 0), operands)
    }

    pub(super) fn product_of_chosen(
        &mut self,
        matrix: &Placed,
        [from, who, to]: [usize; 3],
    ) -> Result<(), ProgramError> {
        let out = self.outputs(Some(matrix.ty), to);
        if matrix.rows == 0 {
            return Ok(());
        }
        let shape = (matrix.rows, matrix.columns);
        let is_float = floats::multiplies(matrix.ty);
        let launch = match is_float {
            true => floats::of_chosen(matrix.ty, shape, self.rows(who))?,
            false => plan::of_chosen(matrix.ty, shape, self.rows(who))?,
        };
        let source = self.value(from);
        // Number of experts that read the same row.
        let share = used(self.value(to)) / used(source);
        if let Some(layout) = plan::integers(matrix.ty) {
            return self.integers(launch, (matrix, &layout), (from, out), Some((who, share)));
        }
        let mut operands = vec![memory(matrix.memory)];
        if is_float || plan::is_listed(matrix.ty) {
            operands.push(memory(matrix.memory + 1));
        }
        match source.quants {
            None => operands.push(self.at(from)),
            Some(_) => {
                let [quants, scales, sums] = self.quants(from)?;
                operands.extend([quants, scales]);
                if plan::is_listed(matrix.ty) {
                    operands.push(sums);
                }
            }
        }
        operands.extend([self.at(who), out]);
        operands.extend([matrix.rows, matrix.columns].map(int));
        if source.quants.is_some() {
            operands.push(int(self.rows(from)));
        }
        operands.push(int(share));
        self.calls.push(Call { launch, operands });
        Ok(())
    }

    pub(super) fn weigh(&mut self, [from, weights, to]: [usize; 3]) -> Result<(), ProgramError> {
        let used = int(used(self.value(to)));
        self.weighed("weigh", [from, weights, to], &[used])
    }

    pub(super) fn combine(&mut self, [from, weights, to]: [usize; 3], weighed: bool) -> Result<(), ProgramError> {
        let used = int(used(self.value(from)));
        self.weighed("combine", [from, weights, to], &[used, int(weighed.into())])
    }

    /// A kernel over the elements of `to`, whose last operands are `more`.
    fn weighed(&mut self, kernel: &str, [from, weights, to]: [usize; 3], more: &[Operand]) -> Result<(), ProgramError> {
        let n = self.value(from).columns;
        let mut operands = vec![self.at(from), self.at(weights), self.at(to), int(n)];
        operands.extend_from_slice(more);
        let blocks = [n.div_ceil(ELEMENTS), self.rows(to)];
        self.launch((EXPERTS, kernel), blocks, (ELEMENTS, 0), operands)
    }
}
