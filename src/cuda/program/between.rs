//! Operations between products that few models have.

use super::calls::{ELEMENTS, Pass, int, memory};
use super::few::{Between, Coefficients};
use super::memory::RowCount;
use super::operation::{Operation, Powers};
use super::{Operand, ProgramError, Recorder, Rotation, Span, fixed};
use crate::ptx::BETWEEN;

/// Residual streams that the kernels write at once, at most.
const MOST_STREAMS: usize = 8;

/// How several residual streams are read and written.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// How many there are.
    pub count: usize,
    /// Added to the coefficients of reading.
    pub eps: f32,
    /// Factor on the coefficients of writing.
    pub magnitude: f32,
    /// Added to those.
    pub offset: f32,
    /// Rounds of the matrix that mixes streams, and what is added to its elements and sums; `None` without one.
    pub mixing: Option<(usize, f32)>,
    /// Factors on the numbers: of reading, of writing and of mixing.
    pub scales: &'a [f32],
    /// Added to the products, one for each number.
    pub bases: &'a [f32],
    /// The table of the exponential.
    pub powers: &'a Powers,
}

fn refuse<T>(what: String) -> Result<T, ProgramError> {
    Err(ProgramError::Missing(what))
}

impl<'a> Recorder<'a> {
    fn between(&mut self, operation: Between, changed: Option<Span>) {
        if let Some(x) = changed {
            self.changes(x);
        }
        self.operations.push(Operation::Between(operation));
    }

    /// A row of weights for rows of `x`, or for their parts of its length.
    fn row(&mut self, x: Span, row: &'a [f32]) -> Result<usize, ProgramError> {
        match row.is_empty() || !self.columns(x).is_multiple_of(row.len()) {
            true => refuse(format!("a row of {} for rows of {}", row.len(), self.columns(x))),
            false => self.vector(row),
        }
    }

    /// `x /= row`.
    ///
    /// # Errors
    /// A row that does not divide those of `x`.
    pub fn divide_row(&mut self, x: Span, row: &'a [f32]) -> Result<(), ProgramError> {
        let row = self.row(x, row)?;
        self.between(Between::DivideRow { x: x.0, row }, Some(x));
        Ok(())
    }

    /// `x += y * row`.
    ///
    /// # Errors
    /// Values of several shapes, a row that does not divide theirs.
    pub fn multiply_add(&mut self, x: Span, y: Span, row: &'a [f32]) -> Result<(), ProgramError> {
        self.same_shape("a weighed sum", x, y)?;
        let row = self.row(x, row)?;
        self.between(Between::MultiplyAdd { x: x.0, y: y.0, row }, Some(x));
        Ok(())
    }

    /// `x += y * factor`, where passes are told a factor of this number; nothing where they are told that there is none.
    ///
    /// # Errors
    /// Values of several shapes.
    pub fn add_times(&mut self, x: Span, y: Span, number: usize) -> Result<(), ProgramError> {
        self.same_shape("a sum with a factor", x, y)?;
        self.factors = self.factors.max(number + 1);
        self.between(Between::AddTimes { x: x.0, y: y.0, number }, Some(x));
        Ok(())
    }

    /// `row` for every row of `x`.
    ///
    /// # Errors
    /// A value that no buffer holds.
    pub fn fill(&mut self, x: Span, row: &'a [f32]) -> Result<Span, ProgramError> {
        let to = self.value(self.rows(x), row.len())?;
        let row = self.vector(row)?;
        self.between(Between::Fill { x: to.0, row }, None);
        Ok(to)
    }

    /// Rows of `x` times the factors of their positions: the first numbers of a table of angles.
    ///
    /// # Errors
    /// Rows that are no tokens'.
    pub fn scale_rows(&mut self, x: Span, factors: Rotation) -> Result<(), ProgramError> {
        if self.rows(x) != RowCount::Tokens || factors.pairs != 1 {
            return refuse("factors by position of rows that have none".to_owned());
        }
        self.between(Between::ScaleRows { x: x.0, factors: factors.memory }, Some(x));
        Ok(())
    }

    /// Multiplies `x` by the soft-plus of its gates: one for as many elements as the columns divide. `tables` are those
    /// of the exponential and of the logarithm.
    ///
    /// # Errors
    /// Gates that do not divide a row.
    pub fn softplus_gate(&mut self, x: Span, gates: Span, tables: [&'a Powers; 2]) -> Result<(), ProgramError> {
        let (columns, count) = (self.columns(x), self.columns(gates));
        if !columns.is_multiple_of(count) || self.rows(x) != self.rows(gates) {
            return refuse(format!("{count} gates of {columns} columns"));
        }
        let tables = tables.map(|table| self.store.powers(&mut self.memories, table));
        self.between(Between::SoftplusGate { x: x.0, gates: gates.0, tables }, Some(x));
        Ok(())
    }

    /// The root of the soft-plus of `x`, in its place. `tables` are those of the exponential and of the logarithm.
    pub fn root_of_softplus(&mut self, x: Span, tables: [&'a Powers; 2]) {
        let tables = tables.map(|table| self.store.powers(&mut self.memories, table));
        self.between(Between::RootOfSoftplus { x: x.0, tables }, Some(x));
    }

    /// `x = tanh(x)`.
    pub fn tanh(&mut self, x: Span) {
        self.between(Between::Tanh { x: x.0 }, Some(x));
    }

    /// SiLU of `gate`, no more than the limit, times `up` within it.
    ///
    /// # Errors
    /// Values of several shapes.
    pub fn limited_silu(&mut self, [gate, up]: [Span; 2], limit: f32) -> Result<(), ProgramError> {
        self.same_shape("a gate", gate, up)?;
        self.between(Between::LimitedSilu { gate: gate.0, up: up.0, limit }, Some(gate));
        Ok(())
    }

    /// `tanh(gate / b) * b * sigmoid(gate)` times `up`, which is bounded likewise where the second bound is above zero.
    ///
    /// # Errors
    /// Values of several shapes.
    pub fn bounded_silu(
        &mut self,
        [gate, up]: [Span; 2],
        bounds: [f32; 2],
        powers: &'a Powers,
    ) -> Result<(), ProgramError> {
        self.same_shape("a gate", gate, up)?;
        let powers = self.store.powers(&mut self.memories, powers);
        self.between(Between::BoundedSilu { gate: gate.0, up: up.0, bounds, powers }, Some(gate));
        Ok(())
    }

    /// Parts of `width` elements of `x` as long as those of `y`, of which each stands for as many of `x` as follow each
    /// other.
    ///
    /// # Errors
    /// Rows that are no such parts.
    pub fn as_long(&mut self, x: Span, y: Span, width: usize) -> Result<(), ProgramError> {
        let (of_x, of_y) = (self.columns(x), self.columns(y));
        let whole = width > 0 && of_y.is_multiple_of(width) && of_x.is_multiple_of(of_y);
        if !whole || self.rows(x) != self.rows(y) {
            return refuse(format!("{of_x} columns as long as {of_y}"));
        }
        self.between(Between::AsLong { x: x.0, y: y.0, width }, Some(x));
        Ok(())
    }

    /// The part of every row that is above its mean and its deviation times `factor`.
    pub fn cutoff(&mut self, x: Span, factor: f32) {
        self.between(Between::Cutoff { x: x.0, factor }, Some(x));
    }

    /// Sums of `count` streams by a matrix of coefficients for each row.
    ///
    /// # Errors
    /// Rows that are no streams, coefficients of another number.
    pub fn sum_streams(&mut self, x: Span, coefficients: Span, count: usize) -> Result<Span, ProgramError> {
        let columns = self.columns(x);
        let whole = count > 0 && columns.is_multiple_of(count) && self.columns(coefficients) == count * count;
        if !whole || self.rows(x) != self.rows(coefficients) {
            return refuse(format!("sums of {count} streams of {columns} columns"));
        }
        let to = self.value(self.rows(x), columns)?;
        self.between(Between::SumStreams { to: to.0, x: x.0, coefficients: coefficients.0, count }, None);
        Ok(to)
    }

    /// The sum of the streams `x` times coefficients, and the coefficients with which they are written, where there are
    /// any; `numbers` are those that a projection has made.
    ///
    /// # Errors
    /// Rows that are no streams, numbers that are no coefficients of theirs.
    pub fn read_streams(
        &mut self,
        x: Span,
        numbers: Span,
        streams: &Streams<'a>,
    ) -> Result<(Span, Option<Span>), ProgramError> {
        let Streams { count, eps, magnitude, offset, mixing, scales, bases, powers } = *streams;
        let (columns, all, rows) = (self.columns(x), bases.len(), self.rows(x));
        let expected = match mixing {
            Some(_) => all == count * (count + 2),
            None => all == count || all == 2 * count,
        };
        let groups = all.div_ceil(count.max(1)).min(3);
        let whole = (1..=MOST_STREAMS).contains(&count) && columns.is_multiple_of(count) && scales.len() >= groups;
        if !whole || !expected || self.columns(numbers) != all || self.rows(numbers) != rows {
            return refuse(format!("{count} streams of {columns} columns with {all} coefficients"));
        }
        let read = self.value(rows, count)?;
        let written = (all > count).then(|| self.value(rows, all - count)).transpose()?;
        let to = self.value(rows, columns / count)?;
        let weights = [self.vector(scales)?, self.vector(bases)?, self.store.powers(&mut self.memories, powers)];
        let coefficients = Coefficients {
            read: read.0,
            written: written.map(|w| w.0),
            numbers: numbers.0,
            weights,
            count,
            eps,
            magnitude,
            offset,
            mixing,
        };
        self.between(Between::Coefficients(coefficients), None);
        let mixed = mixing.is_some();
        self.between(Between::ReadStreams { to: to.0, x: x.0, coefficients: read.0, count, mixed }, None);
        Ok((to, written))
    }

    /// Adds `y` to each of the streams `x` times its coefficient, behind which a matrix stands where they are `mixed`.
    ///
    /// # Errors
    /// Rows that are no streams, coefficients of another number.
    pub fn write_streams(
        &mut self,
        x: Span,
        [y, coefficients]: [Span; 2],
        count: usize,
        mixed: bool,
    ) -> Result<(), ProgramError> {
        let (columns, all) = (self.columns(x), if mixed { count * (count + 1) } else { count });
        let same = [y, coefficients].iter().all(|&v| self.rows(v) == self.rows(x));
        let whole = (1..=MOST_STREAMS).contains(&count) && columns == count * self.columns(y);
        if !whole || !same || self.columns(coefficients) != all {
            return refuse(format!("{count} streams of {columns} columns that are written"));
        }
        let (y, coefficients) = (y.0, coefficients.0);
        self.between(Between::WriteStreams { x: x.0, y, coefficients, count, mixed }, Some(x));
        Ok(())
    }

    /// A row of `count` numbers for every row of `x`, for [`Recorder::sum_row`].
    ///
    /// # Errors
    /// A value that no buffer holds.
    pub fn sums_beside(&mut self, x: Span, count: usize) -> Result<Span, ProgramError> {
        self.value(self.rows(x), count)
    }

    /// The sum of the elements of every row of `x` as column `column` of `sums`.
    ///
    /// # Errors
    /// Values of several rows, a column that is not there.
    pub fn sum_row(&mut self, x: Span, sums: Span, column: usize) -> Result<(), ProgramError> {
        if self.rows(x) != self.rows(sums) || column >= self.columns(sums) {
            return refuse(format!("sums of rows as column {column} of {}", self.columns(sums)));
        }
        self.between(Between::SumRow { x: x.0, sums: sums.0, stream: column }, Some(sums));
        Ok(())
    }

    /// The soft-max of every row of `x`, in its place.
    pub fn soft_max(&mut self, x: Span, powers: &'a Powers) {
        let powers = self.store.powers(&mut self.memories, powers);
        self.between(Between::SoftMax { x: x.0, powers }, Some(x));
    }

    /// The sum of `streams`, each times its column of `weights`, in order from zero.
    ///
    /// # Errors
    /// Streams of several shapes, weights of another number.
    pub fn blend(&mut self, streams: &[Span], weights: Span) -> Result<Span, ProgramError> {
        let shape = |x: Span| (self.rows(x), self.columns(x));
        let Some(&first) = streams.first().filter(|&&first| streams.iter().all(|&x| shape(x) == shape(first))) else {
            return refuse(format!("a blend of {} streams", streams.len()));
        };
        if shape(weights) != (self.rows(first), streams.len()) {
            return refuse(format!("{} weights of {} streams", self.columns(weights), streams.len()));
        }
        let to = self.value(self.rows(first), self.columns(first))?;
        for (stream, x) in streams.iter().enumerate() {
            self.between(Between::Blend { to: to.0, x: x.0, weights: weights.0, stream }, None);
        }
        Ok(to)
    }

    /// The root, with the sign, of the dot products of every `width` elements of `x` and of `y`.
    ///
    /// # Errors
    /// Rows of several shapes, or that are no such parts.
    pub fn rooted_dots(&mut self, x: Span, y: Span, width: usize) -> Result<Span, ProgramError> {
        self.same_shape("dot products", x, y)?;
        let columns = self.columns(x);
        if width == 0 || !columns.is_multiple_of(width) {
            return refuse(format!("dot products of {width} of {columns} columns"));
        }
        let to = self.value(self.rows(x), columns / width)?;
        self.between(Between::RootedDots { to: to.0, x: x.0, y: y.0, width }, None);
        Ok(to)
    }

    /// The heads that the rows of all heads belong to, which products with their matrices go by; they are numbered once.
    pub(super) fn number_heads(&mut self, heads: usize) -> Result<Span, ProgramError> {
        let found = self.operations.iter().find_map(|operation| match *operation {
            Operation::Between(Between::NumberHeads { to, heads: of }) if of == heads => Some(Span(to)),
            _ => None,
        });
        if let Some(there) = found {
            return Ok(there);
        }
        let to = self.value(RowCount::Chosen(heads), 1)?;
        self.between(Between::NumberHeads { to: to.0, heads }, None);
        Ok(to)
    }
}

impl Pass<'_> {
    pub(super) fn between(&mut self, operation: &Between) -> Result<(), ProgramError> {
        let columns = |pass: &Self, value: usize| pass.value(value).columns;
        match *operation {
            Between::DivideRow { x, row } => {
                let operands = vec![self.at(x), memory(row), int(self.floats(row))];
                self.each((BETWEEN, "divide_row"), x, operands)
            }
            Between::MultiplyAdd { x, y, row } => {
                let operands = vec![self.at(x), self.at(y), memory(row), int(self.floats(row))];
                self.each((BETWEEN, "multiply_add"), x, operands)
            }
            Between::AddTimes { x, y, number } => {
                let operands = vec![self.at(x), self.at(y), memory(fixed::FACTORS), int(number)];
                self.each((BETWEEN, "add_times"), x, operands)
            }
            Between::Fill { x, row } => {
                let operands = vec![self.at(x), memory(row), int(self.floats(row))];
                self.each((BETWEEN, "fill"), x, operands)
            }
            Between::ScaleRows { x, factors } => {
                let operands = vec![self.at(x), memory(factors), int(columns(self, x))];
                self.each((BETWEEN, "scale_rows"), x, operands)
            }
            Between::SoftplusGate { x, gates, tables: [powers, logs] } => {
                let size = int(columns(self, x) / columns(self, gates));
                let operands = vec![self.at(x), self.at(gates), memory(powers), memory(logs), size];
                self.each((BETWEEN, "softplus_gate"), x, operands)
            }
            Between::RootOfSoftplus { x, tables } => {
                let [powers, logs] = tables.map(memory);
                self.each((BETWEEN, "root_of_softplus"), x, vec![self.at(x), powers, logs])
            }
            Between::Tanh { x } => self.each((BETWEEN, "tanh_alone"), x, vec![self.at(x)]),
            Between::LimitedSilu { gate, up, limit } => {
                let operands = vec![self.at(gate), self.at(up), Operand::F32(limit)];
                self.each((BETWEEN, "limited_silu"), gate, operands)
            }
            Between::BoundedSilu { gate, up, bounds, powers } => {
                let mut operands = vec![self.at(gate), self.at(up), memory(powers)];
                operands.extend(bounds.iter().flat_map(|&bound| [bound, 1.0 / bound].map(Operand::F32)));
                self.each((BETWEEN, "bounded_silu"), gate, operands)
            }
            Between::AsLong { x, y, width } => {
                let times = columns(self, x) / columns(self, y);
                let operands = vec![self.at(x), self.at(y), int(width), int(times)];
                let blocks = [self.rows(x) * columns(self, x) / width, 1];
                self.launch((BETWEEN, "as_long"), blocks, (ELEMENTS, 0), operands)
            }
            Between::Cutoff { x, factor } => {
                let n = columns(self, x);
                let inverse = 1.0 / (n as f32 - 1.0);
                let operands = vec![self.at(x), Operand::F32(factor), Operand::F32(inverse), int(n)];
                self.launch((BETWEEN, "cutoff"), [self.rows(x), 1], (ELEMENTS, 0), operands)
            }
            Between::SumStreams { to, x, coefficients, count } => {
                let mut operands = vec![self.at(x), self.at(coefficients), self.at(to)];
                operands.extend([count, columns(self, x) / count].map(int));
                self.each((BETWEEN, "sum_streams"), to, operands)
            }
            Between::Coefficients(ref c) => self.coefficients(c),
            Between::ReadStreams { to, x, coefficients, count, mixed } => {
                let mut operands = vec![self.at(x), self.at(coefficients), self.at(to)];
                operands.extend([count, columns(self, to), usize::from(mixed)].map(int));
                self.each((BETWEEN, "read_streams"), to, operands)
            }
            Between::WriteStreams { x, y, coefficients, count, mixed } => {
                let mut operands = vec![self.at(x), self.at(y), self.at(coefficients)];
                operands.extend([count, columns(self, y), usize::from(mixed)].map(int));
                self.each((BETWEEN, "write_streams"), y, operands)
            }
            Between::NumberHeads { to, heads } => {
                self.each((BETWEEN, "number_heads"), to, vec![self.at(to), int(heads)])
            }
            Between::SumRow { x, sums, stream } => {
                let mut operands = vec![self.at(x), self.at(sums)];
                operands.extend([columns(self, x), columns(self, sums), stream].map(int));
                self.each_row("sum_row", x, operands)
            }
            Between::SoftMax { x, powers } => {
                let operands = vec![self.at(x), memory(powers), int(columns(self, x))];
                self.each_row("soft_max_rows", x, operands)
            }
            Between::Blend { to, x, weights, stream } => {
                let mut operands = vec![self.at(to), self.at(x), self.at(weights)];
                operands.extend([columns(self, x), columns(self, weights), stream].map(int));
                self.each((BETWEEN, "blend"), to, operands)
            }
            Between::RootedDots { to, x, y, width } => {
                let inverse = 1.0 / (width as f32).sqrt();
                let operands = vec![self.at(x), self.at(y), self.at(to), Operand::F32(inverse), int(width)];
                self.each((BETWEEN, "rooted_dots"), to, operands)
            }
        }
    }

    /// Adds a launch with a thread for each row of a value.
    fn each_row(&mut self, kernel: &str, value: usize, mut operands: Vec<Operand>) -> Result<(), ProgramError> {
        let rows = self.rows(value);
        operands.push(int(rows));
        self.launch((BETWEEN, kernel), [rows.div_ceil(ELEMENTS), 1], (ELEMENTS, 0), operands)
    }

    fn coefficients(&mut self, c: &Coefficients) -> Result<(), ProgramError> {
        let [scales, bases, powers] = c.weights.map(memory);
        let (rounds, mixing_eps) = c.mixing.unwrap_or_default();
        let tokens = self.rows(c.numbers);
        let operands = vec![
            self.at(c.numbers),
            scales,
            bases,
            powers,
            self.at(c.read),
            // Nothing is written where nothing is to be.
            self.at(c.written.unwrap_or(c.read)),
            int(c.count),
            int(self.value(c.numbers).columns),
            Operand::F32(c.eps),
            Operand::F32(c.magnitude),
            Operand::F32(c.offset),
            int(rounds),
            Operand::F32(mixing_eps),
            int(tokens),
        ];
        let blocks = [tokens.div_ceil(ELEMENTS), 1];
        self.launch((BETWEEN, "stream_coefficients"), blocks, (ELEMENTS, 0), operands)
    }
}
