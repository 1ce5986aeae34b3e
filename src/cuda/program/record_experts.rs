//! Recording mixtures of experts.

use super::ProgramError;
use super::matrix::{Matrix, quants_for};
use super::memory::RowCount;
use super::operation::{ByToken, Choose, Claim, Gating, OfChosen, Operation, Part};
use super::record::{Recorder, Span};
use crate::plan::is_listed;

/// The most experts of a block that the kernels choose from.
const MOST: usize = 1024;
/// Numbers of a tile of the list of who has which expert: the expert and eight places.
const OF_TILE: usize = 9;

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug)]
pub struct Choosing<'a> {
    /// Experts that a token goes to.
    pub used: usize,
    /// From scores to probabilities.
    pub gating: Gating,
    /// The values by which experts are ranked.
    pub claim: Claim,
    /// Bias on these values, one number for each expert.
    pub bias: Option<&'a [f32]>,
    /// Groups of as many experts each, two at least, and how many of them, those with the greatest sums of two, a token
    /// may choose from.
    pub groups: Option<[usize; 2]>,
    /// Number of experts that share one, whose number then takes the place of theirs and selects the weight. 1 where
    /// experts share none.
    pub shared_by: usize,
    /// True if weights are divided by their sum.
    pub normalize: bool,
    /// A last factor on the weights.
    pub scale: f32,
    /// The table of the exponential: the bits of 2^(i / 32), minus i 2^47.
    pub powers: &'a [u64; 32],
}

/// The experts of every token.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Their numbers.
    numbers: usize,
    weights: usize,
    experts: usize,
    used: usize,
}

impl<'a> Recorder<'a> {
    /// Chooses experts by a router's scores, one for each of them.
    ///
    /// # Errors
    /// Numbers of experts, groups and biases that do not go together.
    pub fn choose(&mut self, scores: Span, rule: &Choosing<'a>) -> Result<Chosen, ProgramError> {
        let (experts, used) = (self.columns(scores), rule.used);
        let grouped = |[groups, of_groups]: [usize; 2]| {
            let whole = groups > 0 && experts.is_multiple_of(groups) && experts / groups >= 2;
            whole && (1..groups).contains(&of_groups)
        };
        let whole = experts <= MOST
            && (1..=experts).contains(&used)
            && rule.shared_by > 0
            && experts.is_multiple_of(rule.shared_by)
            && rule.bias.is_none_or(|bias| bias.len() == experts)
            && rule.groups.is_none_or(grouped);
        if !whole {
            let (groups, shared_by) = (rule.groups, rule.shared_by);
            let what = format!("{used} of {experts} experts in groups of {groups:?}, {shared_by} with one in common");
            return Err(ProgramError::Missing(what));
        }
        let bias = rule.bias.map(|bias| self.vector(bias)).transpose()?;
        let powers = self.store.powers(&mut self.memories, rule.powers);
        let rows = RowCount::Chosen(used);
        let numbers = self.value(rows, 1)?.0;
        let weights = self.value(rows, 1)?.0;
        self.operations.push(Operation::Choose(Choose {
            scores: scores.0,
            bias,
            powers,
            used,
            gating: rule.gating,
            claim: rule.claim,
            groups: rule.groups,
            shared_by: rule.shared_by,
            normalize: rule.normalize,
            scale: rule.scale,
            chosen: numbers,
            weights,
        }));
        Ok(Chosen { numbers, weights, experts: experts / rule.shared_by, used })
    }

    /// The experts of every token by its number in the vocabulary, of a table of `used` for each. Weights are their
    /// probabilities, divided by their sum if they are to be `normalized`, times `scale`.
    ///
    /// # Errors
    /// A table of other tokens or experts, rows that are no tokens'.
    pub fn choose_by_token(
        &mut self,
        probabilities: Span,
        (table, used): (&'a [u32], usize),
        normalize: bool,
        scale: f32,
    ) -> Result<Chosen, ProgramError> {
        let experts = self.columns(probabilities);
        let whole = self.rows(probabilities) == RowCount::Tokens && (1..=experts.min(MOST)).contains(&used);
        let there = table.iter().all(|&expert| (expert as usize) < experts);
        if !whole || !there || self.vocabulary().checked_mul(used) != Some(table.len()) {
            let what = format!("{used} of {experts} experts by a table of {} numbers", table.len());
            return Err(ProgramError::Missing(what));
        }
        let table = self.store.numbers(&mut self.memories, table);
        let [chosen, weights] = [self.value(RowCount::Chosen(used), 1)?.0, self.value(RowCount::Chosen(used), 1)?.0];
        self.reads_tokens = true;
        let probabilities = probabilities.0;
        let by_token = ByToken { probabilities, table, used, normalize, scale, chosen, weights };
        self.operations.push(Operation::ChooseByToken(by_token));
        Ok(Chosen { numbers: chosen, weights, experts, used })
    }

    /// The choice of one expert of `experts` for each token, whose number is given.
    ///
    /// # Errors
    /// Rows of other lengths.
    pub fn take_choice(&mut self, given: Span, experts: usize) -> Result<Chosen, ProgramError> {
        if self.rows(given) != RowCount::Tokens || self.columns(given) != 1 || !(1..=MOST).contains(&experts) {
            let columns = self.columns(given);
            return Err(ProgramError::Missing(format!("a choice of {columns} of {experts} experts that is given")));
        }
        let [chosen, weights] = [self.value(RowCount::Chosen(1), 1)?.0, self.value(RowCount::Chosen(1), 1)?.0];
        self.operations.push(Operation::TakeChoice { from: given.0, chosen, weights });
        Ok(Chosen { numbers: chosen, weights, experts, used: 1 })
    }

    /// Multiplies what experts gave by a factor for each of them.
    ///
    /// # Errors
    /// Factors or rows of other experts.
    pub fn scale_chosen(&mut self, x: Span, factors: &'a [f32], chosen: &Chosen) -> Result<(), ProgramError> {
        self.of_chosen(OfChosen::Scale, x, (factors, 1), chosen)
    }

    /// Adds a row for each expert, one after the other in `biases`, to what it gave.
    ///
    /// # Errors
    /// Biases or rows of other experts.
    pub fn add_chosen(&mut self, x: Span, biases: &'a [f32], chosen: &Chosen) -> Result<(), ProgramError> {
        let columns = self.columns(x);
        self.of_chosen(OfChosen::Add, x, (biases, columns), chosen)
    }

    fn of_chosen(
        &mut self,
        function: OfChosen,
        x: Span,
        (numbers, of_expert): (&'a [f32], usize),
        chosen: &Chosen,
    ) -> Result<(), ProgramError> {
        let whole = chosen.experts.checked_mul(of_expert) == Some(numbers.len());
        if !whole || self.rows(x) != RowCount::Chosen(chosen.used) {
            let (count, experts) = (numbers.len(), chosen.experts);
            let what = format!("{count} factors or biases of {experts} experts");
            return Err(ProgramError::Missing(what));
        }
        self.changes(x);
        let numbers = self.vector(numbers)?;
        self.operations.push(Operation::OfChosen { function, to: x.0, numbers, chosen: chosen.numbers });
        Ok(())
    }

    /// Rows for the experts of every token: its own, times the weight of each.
    ///
    /// # Errors
    /// A value that no buffer holds.
    pub fn weigh(&mut self, x: Span, chosen: &Chosen) -> Result<Span, ProgramError> {
        let to = self.value(RowCount::Chosen(chosen.used), self.columns(x))?;
        self.operations.push(Operation::Weigh { from: x.0, weights: chosen.weights, to: to.0 });
        Ok(to)
    }

    /// Multiplies every row of `x` by the matrices of its experts, of which there is one for each expert: rows of
    /// tokens by those of all their experts, rows of [`Recorder::weigh`] and of earlier such products by that of their
    /// own.
    ///
    /// # Errors
    /// A type that no kernel multiplies by, matrices of several shapes, another width.
    pub fn product_of_chosen(
        &mut self,
        matrices: &[Matrix<'a>],
        x: Span,
        chosen: &Chosen,
    ) -> Result<Span, ProgramError> {
        let parts: Vec<Matrix<'a>> = matrices.iter().map(|&matrix| self.own_part(matrix)).collect();
        let matrix = self.store.stack(&mut self.memories, &parts)?;
        let of_these = matches!(self.rows(x), RowCount::Tokens)
            || matches!(self.rows(x), RowCount::Chosen(used) if used == chosen.used);
        let Matrix { name, rows, .. } = matrices[0];
        if matrix.columns != self.columns(x) || matrices.len() != chosen.experts || !of_these {
            let (count, columns) = (matrices.len(), self.columns(x));
            let what = format!("{name}: {count} experts for rows of {columns}");
            return Err(ProgramError::Missing(what));
        }
        let listed = is_listed(matrix.ty);
        let planned = crate::plan::of_chosen(matrix.ty, (rows, matrix.columns), 1);
        if planned.is_err() && !crate::floats::multiplies(matrix.ty) {
            let ty = matrix.ty;
            let what = format!("products with experts of {ty} ({name})");
            return Err(ProgramError::Missing(what));
        }
        let from = match quants_for(matrix.ty) {
            Some(quants) => self.quantized(x, quants),
            None => x.0,
        };
        let who = match listed {
            true => self.listed(chosen)?,
            false => chosen.numbers,
        };
        let to = self.value(RowCount::Chosen(chosen.used), rows)?;
        self.operations.push(Operation::ProductOfChosen { matrix, from, who, to: to.0 });
        Ok(to)
    }

    /// Multiplies the rows of heads, which lie side by side in every row of `x`, each by the matrix of its head.
    ///
    /// # Errors
    /// As [`Recorder::product_of_chosen`]; rows that are no such heads.
    pub fn product_by_head(&mut self, matrices: &[Matrix<'a>], x: Span) -> Result<Span, ProgramError> {
        let (heads, columns) = (matrices.len(), self.columns(x));
        if heads == 0 || self.rows(x) != RowCount::Tokens || !columns.is_multiple_of(heads) {
            return Err(ProgramError::Missing(format!("matrices of {heads} heads for rows of {columns}")));
        }
        let numbers = self.number_heads(heads)?.0;
        let chosen = Chosen { numbers, weights: numbers, experts: heads, used: heads };
        let x = self.reshaped(x, RowCount::Chosen(heads), columns / heads)?;
        let y = self.product_of_chosen(matrices, x, &chosen)?;
        self.reshaped(y, RowCount::Tokens, heads * matrices[0].rows)
    }

    /// The same elements in rows of other lengths.
    fn reshaped(&mut self, from: Span, rows: RowCount, columns: usize) -> Result<Span, ProgramError> {
        let to = self.value(rows, columns)?;
        let part = Part { width: columns, from: [columns, 0], to: [columns, 0] };
        self.operations.push(Operation::Copy { from: from.0, part, to: to.0 });
        Ok(to)
    }

    /// The list of who has which expert, which is made once for all products.
    fn listed(&mut self, chosen: &Chosen) -> Result<usize, ProgramError> {
        let found = self.operations.iter().find_map(|operation| match operation {
            Operation::List { chosen: of, list } if *of == chosen.numbers => Some(*list),
            _ => None,
        });
        if let Some(list) = found {
            return Ok(list);
        }
        let rows = RowCount::Eights { experts: chosen.experts, used: chosen.used };
        let list = self.value(rows, OF_TILE)?.0;
        self.operations.push(Operation::List { chosen: chosen.numbers, list });
        Ok(list)
    }

    /// The sum of what the experts of every token gave, in the order of their ranks, times their weights unless those
    /// have multiplied what went in.
    ///
    /// # Errors
    /// Rows of other experts, a value that no buffer holds.
    pub fn combine(&mut self, given: Span, chosen: &Chosen, weighed: bool) -> Result<Span, ProgramError> {
        if self.rows(given) != RowCount::Chosen(chosen.used) {
            let what = "the sum of what other experts gave".to_owned();
            return Err(ProgramError::Missing(what));
        }
        let to = self.value(RowCount::Tokens, self.columns(given))?;
        self.operations.push(Operation::Combine { from: given.0, weights: chosen.weights, weighed, to: to.0 });
        Ok(to)
    }

    /// Multiplies every row of `x` by the sigmoid of its gate, `gates` having one number for each: the quotient of SiLU
    /// and its argument, or where it is `plain` 1 / (1 + e^-x).
    ///
    /// # Errors
    /// Gates of another number.
    pub fn scale_by_gate(
        &mut self,
        x: Span,
        gates: Span,
        powers: &'a [u64; 32],
        plain: bool,
    ) -> Result<(), ProgramError> {
        if self.columns(gates) != 1 || self.rows(gates) != self.rows(x) {
            let columns = self.columns(gates);
            let what = format!("gates of {columns} numbers for a row");
            return Err(ProgramError::Missing(what));
        }
        self.changes(x);
        let powers = self.store.powers(&mut self.memories, powers);
        self.operations.push(Operation::ScaleByGate { x: x.0, gates: gates.0, powers, plain });
        Ok(())
    }
}
