//! Keys and values of types beside half floats, and attention over them: scores of keys of any type, then sums of values
//! of any type (`src/cuda/kernels/cells.cu`).

use super::calls::{OF_HEADS, Pass, int, memory};
use super::form::Form;
use super::operation::{Attend, Powers};
use super::{Cells, Heads, Operand, ProgramError, Recorder, Span, fixed};
use crate::ptx::{ATTENTION, CELLS};

impl<'a> Recorder<'a> {
    /// Puts keys and values into the cells of the next layer, each in a type. `powers` is the table of the exponential.
    ///
    /// # Errors
    /// Rows that are no whole heads, heads that are no whole blocks of a type, cells that no buffer holds.
    pub fn store_as(
        &mut self,
        forms: [Form; 2],
        rows: [Span; 2],
        heads: Heads,
        powers: &'a Powers,
    ) -> Result<Cells, ProgramError> {
        let cells = self.store_in(forms, rows, heads)?;
        let powers = forms[1].is_quantized().then(|| self.store.powers(&mut self.memories, powers));
        Ok(Cells { powers, ..cells })
    }
}

impl Attend {
    /// True if keys and values are half floats.
    pub(super) fn is_halves(&self) -> bool {
        self.forms == [Form::HALF; 2]
    }

    /// True if values are added up one after another, under the greatest score so far.
    pub(super) fn is_added(&self) -> bool {
        self.forms[1].is_quantized()
    }

    /// Factor on scores and cap of what their tangent is. Where values are added up one after another, the factor of
    /// attention is a part of it.
    pub(super) fn caps(&self) -> [f32; 2] {
        match self.cap {
            Some([_, cap]) if self.is_added() => [self.scale / cap, cap],
            cap => cap.unwrap_or([0.0; 2]),
        }
    }
}

impl Pass<'_> {
    /// Keys or values into their cells.
    pub(super) fn store_cells(
        &mut self,
        [from, cells]: [usize; 2],
        heads: usize,
        form: Form,
    ) -> Result<(), ProgramError> {
        let size = self.value(from).columns / heads;
        let operands = vec![
            self.at(from),
            memory(cells),
            memory(fixed::CELLS),
            int(heads),
            int(size),
            self.shift(),
            int(form.turn),
        ];
        let blocks = [heads, self.tokens];
        self.launch((CELLS, &form.kernel("store")), blocks, (OF_HEADS, 8 * size), operands)
    }

    /// Attention of some tokens over cells of any types. Scores are those of `parts` parts; so are sums of floats.
    pub(super) fn attend_cells(
        &mut self,
        a: &Attend,
        (first, tokens): (usize, usize),
        parts: usize,
    ) -> Result<(), ProgramError> {
        let ([rules, factor, cap, slopes], [sinks, powers]) = self.rules(a);
        let places = a.places(a.heads * tokens, parts);
        let [sums, totals, largest, inverses, scores] = places.map(|at| Operand::Memory(fixed::WORK, at));
        let [positions, tables, tickets] = [fixed::PLACES, fixed::TABLES, fixed::TICKETS].map(memory);
        let [window, chunked, heads, kv_heads] = [a.window, a.chunked.into(), a.heads, a.kv_heads].map(int);
        let limits = self.program.limits;
        let [context, row, first] = [limits.context, limits.row(), first].map(int);
        let (shift, to) = (self.shift(), self.at(a.to));
        // A product with 1 is exact.
        let scale = if a.is_added() && a.cap.is_some() { 1.0 } else { a.scale };
        let [of_keys, of_values] = a.forms;
        let size = a.key_size;
        let mut operands = vec![self.at(a.queries), memory(a.keys), positions, tables, scores, largest];
        operands.extend([Operand::F32(scale), window, chunked, heads, kv_heads, int(size), context, row, shift, first]);
        operands.extend([rules, factor, cap, slopes, int(of_keys.turn)]);
        // Two rows of numbers, the quants, and three numbers of each block.
        let shared = 8 * size + size.next_multiple_of(4) + 12 * (size / 32);
        let blocks = [a.heads, tokens, parts];
        self.launch_deep((CELLS, &of_keys.kernel("score")), blocks, (OF_HEADS, shared), operands)?;
        let size = a.value_size;
        let mut operands = vec![memory(a.values), positions, tables, scores];
        if a.is_added() {
            let powers = a.powers.map_or(powers, memory);
            operands.extend([to, window, chunked, heads, kv_heads, int(size), context, row, shift, first]);
            operands.extend([rules, sinks, powers, int(of_values.turn)]);
            let blocks = [a.heads, tokens];
            return self.launch((CELLS, &of_values.kernel("add")), blocks, (OF_HEADS, 8 * size), operands);
        }
        let mut added = vec![positions, scores, largest, totals, inverses, tickets];
        added.extend([window, chunked, heads, context, first, rules, sinks, powers]);
        self.launch_deep((ATTENTION, "attend_exponentials"), blocks, (OF_HEADS, 0), added)?;
        operands.extend([inverses, sums, tickets, to, window, chunked, heads, kv_heads, int(size)]);
        operands.extend([context, row, shift, first]);
        self.launch_deep((CELLS, &of_values.kernel("weigh")), blocks, (OF_HEADS, 0), operands)
    }
}
