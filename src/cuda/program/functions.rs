//! Functions of single elements, and parts of rows.

use super::calls::{ELEMENTS, Pass, int, memory};
use super::memory::RowCount;
use super::operation::{Function, Operation, Part, Powers};
use super::{Operand, ProgramError, Recorder, Span};
use crate::ptx::{GATE, NORM};

impl<'a> Recorder<'a> {
    fn apply(&mut self, function: Function, x: Span, y: Option<Span>, powers: Option<&'a Powers>) {
        self.changes(x);
        let powers = powers.map(|table| self.store.powers(&mut self.memories, table));
        self.operations.push(Operation::Apply { function, x: x.0, y: y.map(|y| y.0), powers });
    }

    pub(super) fn same_shape(&self, what: &str, x: Span, y: Span) -> Result<(), ProgramError> {
        let shape = |x: Span| (self.rows(x), self.columns(x));
        match shape(x) == shape(y) {
            true => Ok(()),
            false => {
                Err(ProgramError::Missing(format!("{what} of {} and {} columns", self.columns(x), self.columns(y))))
            }
        }
    }

    /// `x *= y`.
    ///
    /// # Errors
    /// Values of several shapes.
    pub fn multiply(&mut self, x: Span, y: Span) -> Result<(), ProgramError> {
        self.same_shape("a product", x, y)?;
        self.apply(Function::Multiply, x, Some(y), None);
        Ok(())
    }

    /// `x` within `bound` of zero; NaN becomes the upper bound.
    pub fn clamp(&mut self, x: Span, bound: f32) {
        self.apply(Function::Clamp(bound), x, None, None);
    }

    /// `gate = gate / (1 + e^(-steepness gate)) * (up + more)`, where a gate is no more than the limit and `up` within
    /// it.
    ///
    /// # Errors
    /// Values of several shapes.
    pub fn clamped_silu(
        &mut self,
        [gate, up]: [Span; 2],
        [limit, steepness, more]: [f32; 3],
        powers: &'a Powers,
    ) -> Result<(), ProgramError> {
        self.same_shape("a gate", gate, up)?;
        self.apply(Function::ClampedSilu { limit, steepness, more }, gate, Some(up), Some(powers));
        Ok(())
    }

    /// xIELU by its numbers `[n, a, b, c]`: `a x^2 + b x` above zero, `(e^min(x, c) - 1 - x) n + b x` elsewhere.
    pub fn xielu(&mut self, x: Span, numbers: [f32; 4]) {
        self.apply(Function::Xielu(numbers), x, None, None);
    }

    /// `x = tanh(x / cap) * cap`.
    pub fn soft_cap(&mut self, x: Span, cap: f32) {
        self.apply(Function::SoftCap(cap), x, None, None);
    }

    /// `x = 1 / (1 + e^-x)`.
    pub fn sigmoid(&mut self, x: Span, powers: &'a Powers) {
        self.apply(Function::Sigmoid, x, None, Some(powers));
    }

    /// Multiplies `x` by the sigmoid of its gates, or by the gates `itself`: one for as many elements as the columns
    /// divide.
    ///
    /// # Errors
    /// Gates that do not divide a row.
    pub fn head_gate(&mut self, x: Span, gates: Span, itself: bool, powers: &'a Powers) -> Result<(), ProgramError> {
        let (columns, count) = (self.columns(x), self.columns(gates));
        if !columns.is_multiple_of(count) || self.rows(x) != self.rows(gates) {
            return Err(ProgramError::Missing(format!("{count} gates of {columns} columns")));
        }
        self.apply(Function::HeadGate { itself, size: columns / count }, x, Some(gates), Some(powers));
        Ok(())
    }

    /// Parts of rows of `widths`, a value for each; the rows of `x` may be several such rows side by side.
    ///
    /// # Errors
    /// Widths that do not divide a row, values that no buffer holds.
    pub fn split(&mut self, x: Span, widths: &[usize]) -> Result<Vec<Span>, ProgramError> {
        let (columns, row) = (self.columns(x), widths.iter().sum::<usize>());
        if row == 0 || !columns.is_multiple_of(row) {
            return Err(ProgramError::Missing(format!("parts {widths:?} of {columns} columns")));
        }
        let mut place = 0;
        let mut parts = Vec::new();
        for &width in widths {
            let to = self.value(self.rows(x), columns / row * width)?;
            let part = Part { width, from: [row, place], to: [width, 0] };
            self.operations.push(Operation::Copy { from: x.0, part, to: to.0 });
            parts.push(to);
            place += width;
        }
        Ok(parts)
    }

    /// A copy, for an operation that writes over its input.
    ///
    /// # Errors
    /// A value that no buffer holds.
    pub fn copied(&mut self, x: Span) -> Result<Span, ProgramError> {
        let width = self.columns(x);
        let to = self.value(self.rows(x), width)?;
        let part = Part { width, from: [width, 0], to: [width, 0] };
        self.operations.push(Operation::Copy { from: x.0, part, to: to.0 });
        Ok(to)
    }

    /// The reverse: rows that join parts of these widths side by side.
    ///
    /// # Errors
    /// Parts of several shapes, a value that no buffer holds.
    pub fn join(&mut self, parts: &[Span], widths: &[usize]) -> Result<Span, ProgramError> {
        let row = widths.iter().sum::<usize>();
        let shape = |(x, width): (&Span, &usize)| -> Option<(RowCount, usize)> {
            let columns = self.columns(*x);
            (*width > 0 && columns.is_multiple_of(*width)).then(|| (self.rows(*x), columns / width))
        };
        let mut shapes = parts.iter().zip(widths).map(shape);
        let first = shapes.next().flatten().filter(|_| parts.len() == widths.len());
        let same = first.is_some() && shapes.all(|shape| shape == first);
        let Some((rows, times)) = first.filter(|_| same) else {
            return Err(ProgramError::Missing(format!("parts {widths:?} side by side")));
        };
        let to = self.value(rows, times * row)?;
        let mut place = 0;
        for (from, &width) in parts.iter().zip(widths) {
            let part = Part { width, from: [width, 0], to: [row, place] };
            self.operations.push(Operation::Copy { from: from.0, part, to: to.0 });
            place += width;
        }
        Ok(to)
    }

    /// Every `width` elements of `x`, `times` times.
    ///
    /// # Errors
    /// A width that does not divide a row, a value that no buffer holds.
    pub fn repeat(&mut self, x: Span, width: usize, times: usize) -> Result<Span, ProgramError> {
        let columns = self.columns(x);
        if width == 0 || !columns.is_multiple_of(width) {
            return Err(ProgramError::Missing(format!("{width} of {columns} columns {times} times")));
        }
        let to = self.value(self.rows(x), columns.saturating_mul(times))?;
        self.operations.push(Operation::Repeat { from: x.0, width, times, to: to.0 });
        Ok(to)
    }
}

impl Pass<'_> {
    pub(super) fn apply(
        &mut self,
        function: Function,
        [x, y]: [usize; 2],
        powers: Option<usize>,
    ) -> Result<(), ProgramError> {
        let float = Operand::F32;
        let (a, b, table) = (self.at(x), self.at(y), powers.map(memory));
        let (kernel, operands) = match function {
            Function::Multiply => ((NORM, "multiply"), vec![a, b]),
            Function::Clamp(bound) => ((NORM, "clamp"), vec![a, float(bound)]),
            Function::ClampedSilu { limit, steepness, more } => {
                let numbers = [limit, steepness, more].map(float);
                ((GATE, "clamped_silu"), [a, b].into_iter().chain(table).chain(numbers).collect())
            }
            Function::Xielu(numbers) => ((GATE, "xielu_alone"), [a].into_iter().chain(numbers.map(float)).collect()),
            Function::SoftCap(cap) => ((GATE, "soft_cap"), vec![a, float(1.0 / cap), float(cap)]),
            Function::Sigmoid => ((GATE, "sigmoid_alone"), [a].into_iter().chain(table).collect()),
            Function::HeadGate { itself, size } => {
                let numbers = [int(itself.into()), int(size)];
                ((GATE, "head_gate"), [a, b].into_iter().chain(table).chain(numbers).collect())
            }
        };
        self.each(kernel, x, operands)
    }

    pub(super) fn copy(&mut self, from: usize, part: Part, to: usize) -> Result<(), ProgramError> {
        let Part { width, from: [from_row, from_place], to: [to_row, to_place] } = part;
        let count = self.rows(to) * self.value(to).columns / to_row * width;
        let mut operands = vec![self.at(from), self.at(to)];
        operands.extend([width, from_row, from_place, to_row, to_place, count].map(int));
        self.launch((NORM, "copy_part"), [count.div_ceil(ELEMENTS), 1], (ELEMENTS, 0), operands)
    }

    pub(super) fn repeat(&mut self, [from, to]: [usize; 2], width: usize, times: usize) -> Result<(), ProgramError> {
        let operands = vec![self.at(from), self.at(to), int(width), int(times)];
        self.each((NORM, "repeat"), to, operands)
    }
}
