//! Recording: a model says operation by operation what it does.

use std::collections::BTreeSet;

use trine_formats::types::TypeId;

use super::exchange::on_their_way;
use super::fused::fuse;
use super::matrix::{Matrix, Store, Weights, quants_for};
use super::memory::{Kind, Memory, Quants, RowCount, Value, size};
use super::operation::{Gate, Operation};
use super::place::place;
use super::share::Share;
use super::staged::Staged;
use super::{Caches, Limits, Program, ProgramError, fixed};

/// A value that one operation writes and later ones read: a row of floats for each token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub(super) usize);

/// Angles of one kind of layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    pub(super) memory: usize,
    pub(super) pairs: usize,
    neighbours: bool,
}

/// Records a forward pass.
#[derive(Debug)]
pub struct Recorder<'a> {
    pub(super) limits: Limits,
    vocabulary: usize,
    pub(super) memories: Vec<Memory>,
    pub(super) store: Store<'a>,
    values: Vec<Value>,
    pub(super) operations: Vec<Operation>,
    rotations: Vec<(usize, usize)>,
    /// Values that a pass is given instead of tokens.
    given: Vec<usize>,
    /// Where activations are in half precision if there are kernels for it, the names of matrices that were pruned to
    /// 2:4.
    halves: Option<&'a BTreeSet<String>>,
    /// The rows of matrices that this device has, where devices share them.
    pub(super) shared: Option<Share>,
    /// Quantized forms of values that have not changed since.
    forms: Vec<(usize, Quants, usize)>,
    /// Numbers of a state so far.
    pub(super) state: usize,
    /// True if an operation behind the first reads the tokens.
    pub(super) reads_tokens: bool,
    /// Factors that passes are told.
    pub(super) factors: usize,
}

impl<'a> Recorder<'a> {
    /// A recorder of a model with `vocabulary` tokens.
    ///
    /// # Errors
    /// Limits that no buffer has, or that are zero.
    pub fn new(limits: Limits, vocabulary: usize) -> Result<Recorder<'a>, ProgramError> {
        let Limits { tokens, wanted, context, page, pages, slots } = limits;
        if [tokens, wanted, context, page, pages, slots, vocabulary].contains(&0) {
            return Err(ProgramError::TooLarge(format!("nothing: {limits:?}")));
        }
        // Kernels count cells and tokens in 32 bits with a sign.
        for (n, what) in [(tokens, "tokens"), (context, "positions"), (page, "positions of a page"), (pages, "pages")] {
            if n > i32::MAX as usize / 2 {
                return Err(ProgramError::TooLarge(format!("{n} {what}")));
            }
        }
        if !page.is_power_of_two() {
            let what = format!("pages of {page} positions");
            return Err(ProgramError::Missing(what));
        }
        let input = |factors: &[usize]| -> Result<Memory, ProgramError> {
            let bytes = size(factors, "what a pass is given")?;
            Ok(Memory { kind: Kind::Inputs, bytes })
        };
        let memories = [
            input(&[tokens, 4])?,
            input(&[tokens, 8])?,
            input(&[tokens, 8])?,
            input(&[tokens, limits.row(), 4])?,
            input(&[wanted, 4])?,
            Memory { kind: Kind::Values, bytes: 0 },
            Memory { kind: Kind::Zeros, bytes: 0 },
            Memory { kind: Kind::States, bytes: 0 },
            input(&[tokens, 8])?,
            Memory { kind: Kind::Values, bytes: 0 },
            Memory { kind: Kind::Inputs, bytes: 0 },
        ];
        Ok(Recorder {
            limits,
            vocabulary,
            memories: memories.into(),
            store: Store::default(),
            values: Vec::new(),
            operations: Vec::new(),
            rotations: Vec::new(),
            given: Vec::new(),
            halves: None,
            shared: None,
            forms: Vec::new(),
            state: 0,
            reads_tokens: false,
            factors: 0,
        })
    }

    /// From now on products are those of activations in half precision, where there are kernels for the type of the
    /// weights. Their bits are not the processor's. The matrices that are named in `pruned` have at most two weights of
    /// every four.
    pub fn in_halves(&mut self, pruned: &'a BTreeSet<String>) {
        self.halves = Some(pruned);
    }

    pub(super) fn is_in_halves(&self) -> bool {
        self.halves.is_some()
    }

    pub(super) fn value(&mut self, rows: RowCount, columns: usize) -> Result<Span, ProgramError> {
        let most = rows.count(self.limits.tokens, self.limits.wanted);
        let count = size(&[most, columns], "an activation")?;
        if columns == 0 || count > i32::MAX as usize {
            return Err(ProgramError::TooLarge(format!("an activation of {most} x {columns} values")));
        }
        self.values.push(Value { rows, columns, quants: None, memory: 0 });
        Ok(Span(self.values.len() - 1))
    }

    pub(super) fn rows(&self, x: Span) -> RowCount {
        self.values[x.0].rows
    }

    /// Values of a row.
    pub fn columns(&self, x: Span) -> usize {
        self.values[x.0].columns
    }

    /// Forgets the quantized forms of a value that changes.
    pub(super) fn changes(&mut self, x: Span) {
        self.forms.retain(|(value, ..)| *value != x.0);
    }

    /// Rows of `columns` floats, one for each token, which a pass is given instead of tokens: one value of several, in
    /// the order of these calls.
    ///
    /// # Errors
    /// A value that no buffer holds.
    pub fn given(&mut self, columns: usize) -> Result<Span, ProgramError> {
        let given = self.value(RowCount::Tokens, columns)?;
        self.given.push(given.0);
        Ok(given)
    }

    /// The rows of a table that belong to the tokens, decoded.
    ///
    /// # Errors
    /// Rows of a type that no kernel decodes, data of another length.
    pub fn embed(&mut self, table: Matrix<'a>) -> Result<Span, ProgramError> {
        if table.rows < self.vocabulary {
            let what = format!("a table of {} rows ({})", table.rows, table.name);
            return Err(ProgramError::Missing(what));
        }
        self.embed_rows(table, None)
    }

    /// The rows of a table with these numbers, side by side for each token; without any those of the tokens.
    pub(super) fn embed_rows(&mut self, table: Matrix<'a>, numbers: Option<Span>) -> Result<Span, ProgramError> {
        let (kernel, memory) = self.store.table(&mut self.memories, table)?;
        let each = numbers.map_or(1, |numbers| self.columns(numbers));
        let to = self.value(RowCount::Tokens, table.columns.saturating_mul(each))?;
        let numbers = numbers.map(|numbers| numbers.0);
        self.operations.push(Operation::Embed { kernel, table: memory, numbers, to: to.0 });
        Ok(to)
    }

    /// Number of tokens of the vocabulary.
    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Root-mean-square norms: `(x * r) * gains`, `r = 1 / sqrt(mean of squares + eps)`, of every `row` values by
    /// themselves. `gains` are those of one such row or of several.
    ///
    /// # Errors
    /// Gains and rows that do not divide a row of `x`.
    pub fn norm(&mut self, x: Span, gains: &'a [f32], row: usize, eps: f32) -> Result<Span, ProgramError> {
        let columns = self.columns(x);
        let to = self.value(self.rows(x), columns)?;
        let sum = match self.operations.last() {
            Some(&Operation::Add { to, from }) if to == x.0 && row == columns => Some(from),
            _ => None,
        };
        match sum {
            Some(y) if gains.len() == columns => {
                let gains = self.store.floats(&mut self.memories, gains)?;
                self.operations.pop();
                self.operations.push(Operation::AddNorm { x: x.0, y, gains, eps, to: to.0 });
            }
            _ => self.norm_into(false, x, (gains, row, eps), to)?,
        }
        Ok(to)
    }

    /// Layer norms: `((x - m) * r) * gains`, `m` the mean, `r = 1 / sqrt(mean of (x - m)^2 + eps)`, of every `row`
    /// values by themselves.
    ///
    /// # Errors
    /// Those of [`Recorder::norm`].
    pub fn layer_norm(&mut self, x: Span, gains: &'a [f32], row: usize, eps: f32) -> Result<Span, ProgramError> {
        let to = self.value(self.rows(x), self.columns(x))?;
        self.norm_into(true, x, (gains, row, eps), to)?;
        Ok(to)
    }

    /// The same where the values are.
    ///
    /// # Errors
    /// Those of [`Recorder::norm`].
    pub fn layer_norm_in_place(&mut self, x: Span, gains: &'a [f32], row: usize, eps: f32) -> Result<(), ProgramError> {
        self.changes(x);
        self.norm_into(true, x, (gains, row, eps), x)
    }

    /// The same where the values are.
    ///
    /// # Errors
    /// Those of [`Recorder::norm`].
    pub fn norm_in_place(&mut self, x: Span, gains: &'a [f32], row: usize, eps: f32) -> Result<(), ProgramError> {
        self.changes(x);
        self.norm_into(false, x, (gains, row, eps), x)
    }

    fn norm_into(
        &mut self,
        layer: bool,
        from: Span,
        (gains, row, eps): (&'a [f32], usize, f32),
        to: Span,
    ) -> Result<(), ProgramError> {
        let columns = self.columns(from);
        let whole = |n: usize, by: usize| by > 0 && n.is_multiple_of(by);
        if !whole(columns, gains.len()) || !whole(gains.len(), row) {
            let gains = gains.len();
            let what = format!("norms of {row} of {columns} values with {gains} gains");
            return Err(ProgramError::Missing(what));
        }
        let parts = gains.len() / row;
        let gains = self.store.floats(&mut self.memories, gains)?;
        self.operations.push(Operation::Norm { layer, from: from.0, gains, parts, eps, to: to.0 });
        Ok(())
    }

    /// `x += y`.
    pub fn add(&mut self, x: Span, y: Span) {
        self.changes(x);
        self.operations.push(Operation::Add { to: x.0, from: y.0 });
    }

    /// Adds `row` to every row of `x`, or to each of its parts of that length.
    ///
    /// # Errors
    /// A length that does not divide the rows.
    pub fn add_row(&mut self, x: Span, row: &'a [f32]) -> Result<(), ProgramError> {
        self.changes(x);
        if row.is_empty() || !self.columns(x).is_multiple_of(row.len()) {
            let what = format!("a bias of {} for rows of {}", row.len(), self.columns(x));
            return Err(ProgramError::Missing(what));
        }
        let row = self.store.floats(&mut self.memories, row)?;
        self.operations.push(Operation::AddRow { to: x.0, row });
        Ok(())
    }

    /// `x *= factor`.
    pub fn scale(&mut self, x: Span, factor: f32) {
        self.changes(x);
        self.operations.push(Operation::Scale { to: x.0, factor });
    }

    /// The rows of the tokens whose logits are wanted.
    ///
    /// # Errors
    /// A value that no buffer holds.
    pub fn take_wanted(&mut self, x: Span) -> Result<Span, ProgramError> {
        let to = self.value(RowCount::Wanted, self.columns(x))?;
        let from = x.0;
        self.operations.push(Operation::Take { from, to: to.0 });
        Ok(to)
    }

    /// `matrix` times every row of `x`, which is quantized once for all matrices that want the same form.
    ///
    /// # Errors
    /// A type that no kernel multiplies by, data of another length, another width.
    pub fn product(&mut self, matrix: Matrix<'a>, x: Span) -> Result<Span, ProgramError> {
        if matrix.columns != self.columns(x) {
            let Matrix { name, columns, .. } = matrix;
            let what = format!("{name}: {columns} columns for rows of {}", self.columns(x));
            return Err(ProgramError::Missing(what));
        }
        let coded = match self.halves {
            Some(pruned) => {
                let pruned = pruned.contains(matrix.name);
                self.store.coded(&mut self.memories, matrix, pruned)?
            }
            None => None,
        };
        let (placed, quants) = match coded {
            Some(placed) if placed.ty == TypeId::BF16 => (placed, Some(Quants::Brains)),
            Some(placed) => (placed, Some(Quants::Halves)),
            None => {
                let own = self.own_part(matrix);
                let placed = self.store.factor(&mut self.memories, own)?;
                (placed, quants_for(matrix.ty))
            }
        };
        let from = match quants {
            Some(quants) => self.quantized(x, quants),
            None => x.0,
        };
        let to = self.value(self.rows(x), matrix.rows)?;
        let scale = placed.scale;
        let scaled = placed.halves.is_some() && scale != 1.0;
        self.operations.push(Operation::Product { matrix: placed, from, to: to.0 });
        if scaled {
            // Kernels in half precision know scales in half precision alone.
            self.scale(to, scale);
        }
        Ok(to)
    }

    /// A vector of floats as weights; the number of its memory.
    pub(super) fn vector(&mut self, x: &'a [f32]) -> Result<usize, ProgramError> {
        self.store.floats(&mut self.memories, x)
    }

    pub(super) fn quantized(&mut self, x: Span, quants: Quants) -> usize {
        let found = self.forms.iter().find(|f| (f.0, f.1) == (x.0, quants));
        if let Some((.., to)) = found {
            return *to;
        }
        let to = self.values.len();
        self.values.push(Value { quants: Some(quants), ..self.values[x.0] });
        self.forms.push((x.0, quants, to));
        self.operations.push(Operation::Quantize { from: x.0, quants, to });
        to
    }

    /// Angles of `pairs` pairs of a head, which are neighbours or lie `pairs` elements apart.
    ///
    /// # Errors
    /// A table that no buffer holds.
    pub fn rotation(&mut self, pairs: usize, neighbours: bool) -> Result<Rotation, ProgramError> {
        let memory = self.memories.len();
        let bytes = size(&[self.limits.tokens, pairs, 8], "a table of angles")?;
        self.memories.push(Memory { kind: Kind::Inputs, bytes });
        self.rotations.push((memory, pairs));
        Ok(Rotation { memory, pairs, neighbours })
    }

    /// Turns the pairs of all heads of `x`, each of `head` elements.
    ///
    /// # Errors
    /// Rows that are no whole heads, heads with fewer elements.
    pub fn rotate(&mut self, x: Span, rotation: Rotation, head: usize) -> Result<(), ProgramError> {
        let columns = self.columns(x);
        if head == 0 || !columns.is_multiple_of(head) || 2 * rotation.pairs > head {
            let pairs = rotation.pairs;
            let what = format!("{pairs} pairs of heads of {head} in rows of {columns}");
            return Err(ProgramError::Missing(what));
        }
        self.changes(x);
        self.operations.push(Operation::Rotate {
            x: x.0,
            table: rotation.memory,
            pairs: rotation.pairs,
            neighbours: rotation.neighbours,
            heads: columns / head,
        });
        Ok(())
    }

    /// `gate = f(gate) * up`, or `f(gate)` alone.
    pub fn gate(&mut self, function: Gate, gate: Span, up: Option<Span>) {
        self.changes(gate);
        self.operations.push(Operation::Gate { function, gate: gate.0, up: up.map(|up| up.0) });
    }

    /// `gate = gelu(gate) * up`, or `gelu(gate)` alone, where `table` has the function's value for every half float.
    ///
    /// # Errors
    /// A table of another length.
    pub fn gelu(&mut self, table: &'a [u16], gate: Span, up: Option<Span>) -> Result<(), ProgramError> {
        if table.len() != 1 << 16 {
            let what = format!("a function of {} half floats", table.len());
            return Err(ProgramError::Missing(what));
        }
        self.changes(gate);
        let table = self.store.halves(&mut self.memories, table);
        self.operations.push(Operation::Gelu { table, gate: gate.0, up: up.map(|up| up.0) });
        Ok(())
    }

    /// The program whose result is `logits`, and the weights that it wants.
    ///
    /// # Errors
    /// Memory or launches beyond what a GPU has.
    pub fn finish(self, logits: Span) -> Result<(Program, Vec<Weights<'a>>), ProgramError> {
        let result = self.values[logits.0];
        if (result.rows, result.columns) != (RowCount::Wanted, self.vocabulary) {
            let (columns, tokens) = (result.columns, self.vocabulary);
            let what = format!("{columns} logits of a vocabulary of {tokens}");
            return Err(ProgramError::Missing(what));
        }
        let takes = self.operations.iter().enumerate();
        let mut takes = takes.filter_map(|(at, operation)| match operation {
            Operation::Take { from, .. } => Some((at, *from)),
            _ => None,
        });
        let Some((head, stream)) = takes.next() else {
            return Err(ProgramError::Missing("logits of no rows".to_owned()));
        };
        self.ended(vec![stream], head, Some(logits))
    }

    /// The program of a part of a model whose results are the values `leaving`, of which another part makes logits, and
    /// the weights that it wants.
    ///
    /// # Errors
    /// Memory or launches beyond what a GPU has.
    pub fn finish_part(self, leaving: &[Span]) -> Result<(Program, Vec<Weights<'a>>), ProgramError> {
        let head = self.operations.len();
        self.ended(leaving.iter().map(|span| span.0).collect(), head, None)
    }

    /// The program whose operations from number `head` on make logits.
    fn ended(
        mut self,
        leaving: Vec<usize>,
        mut head: usize,
        logits: Option<Span>,
    ) -> Result<(Program, Vec<Weights<'a>>), ProgramError> {
        let limits = self.limits;
        let states = size(&[limits.slots, self.state, 4], "states")?;
        let kept: Vec<usize> = leaving.iter().copied().chain(logits.map(|span| span.0)).collect();
        fuse(self.shared.is_some(), &mut self.operations, &mut head, &kept, &self.values, &self.memories);
        place(&mut self.values, &self.given, &kept, &self.operations, &limits, &mut self.memories)?;
        let staged = Staged::new(&mut self.memories, &self.rotations, &limits);
        let mut program = Program {
            limits,
            vocabulary: self.vocabulary,
            logits: logits.map(|span| self.values[span.0].memory),
            memories: self.memories,
            values: self.values,
            operations: self.operations,
            rotations: self.rotations,
            given: self.given,
            staged,
            leaving,
            head,
            state: self.state,
            reads_tokens: self.reads_tokens,
            shared: self.shared,
            factors: self.factors,
        };
        program.memories[fixed::STATES].bytes = states;
        program.memories[fixed::FACTORS].bytes = size(&[program.factors, 8], "factors")?;
        program.memories[fixed::WORK].bytes = super::calls::work(&program)?;
        program.memories[fixed::TICKETS].bytes = super::calls::tickets(&program)?;
        program.memories[fixed::PARTS].bytes = on_their_way(&program)?;
        // Every launch of the largest pass has a plan.
        let widest = program.widest();
        program.body(limits.tokens, widest, Caches::default())?;
        program.logits_of(limits.wanted, widest)?;
        Ok((program, self.store.weights))
    }
}
