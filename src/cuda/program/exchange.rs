//! The exchange of outputs among devices that share the rows of matrices.
//!
//! ```text
//! outputs of a matrix that three devices share, for two tokens, on their way:
//!   | device 0: token 0, token 1 | device 1: token 0, token 1 | device 2: token 0, token 1 |
//! ```
//!
//! Each device writes its part there, all parts are copied to all devices, and then every device puts the rows of the
//! tokens together. The outputs of a single token are in order as they are, and are written where they are read. Gates
//! are computed by each device for its rows before that, so what they multiply by stays where it is.

use trine_formats::types::TypeId;

use super::calls::{ELEMENTS, Pass, int};
use super::launches::{Exchange, Piece, Stretch};
use super::memory::size;
use super::operation::Operation;
use super::share::Pending;
use super::{Operand, Program, ProgramError, fixed};
use crate::ptx::{GATE, NORM};

/// Bytes of memory for outputs on their way, at most.
pub(super) fn on_their_way(program: &Program) -> Result<usize, ProgramError> {
    let Some(share) = &program.shared else { return Ok(0) };
    let limits = program.limits;
    let mut most = 0;
    for (operations, tokens) in
        [(&program.operations[..program.head], limits.tokens), (&program.operations[program.head..], 1)]
    {
        let mut pending: Vec<usize> = Vec::new();
        let mut bytes = 0usize;
        for operation in operations {
            // A gate may work on what is on its way, which then stays there.
            if uses(program, operation, &pending) && !matches!(operation, Operation::Gate { .. }) {
                (pending, bytes) = (Vec::new(), 0);
            }
            let (ty, to) = match operation {
                Operation::Product { matrix, to, .. } | Operation::ProductOfChosen { matrix, to, .. } => {
                    (Some(matrix.ty), *to)
                }
                Operation::Planes { to, .. } => (None, *to),
                _ => continue,
            };
            let value = program.values[to];
            if share.bounds(ty, value.columns).is_none() {
                continue;
            }
            let rows = value.rows.count(tokens, limits.wanted);
            bytes = bytes.saturating_add(size(&[rows, value.columns, 4], "outputs on their way")?);
            most = most.max(bytes);
            pending.push(to);
        }
    }
    Ok(most)
}

/// True if an operation reads or writes the memory of one of these values.
fn uses(program: &Program, operation: &Operation, values: &[usize]) -> bool {
    let memory = |value: usize| program.values[value].memory;
    let mut found = false;
    operation.values(|value| found |= values.iter().any(|&other| memory(other) == memory(value)));
    found
}

impl Pass<'_> {
    /// The place where a product writes its rows of `to`. Where devices share them, the others' arrive before `to` is
    /// used.
    pub(super) fn outputs(&mut self, ty: Option<TypeId>, to: usize) -> Operand {
        let columns = self.value(to).columns;
        let shared = self.program.shared.as_ref();
        let Some((number, bounds)) = shared.and_then(|share| Some((share.number, share.bounds(ty, columns)?))) else {
            return self.at(to);
        };
        let rows = self.rows(to);
        let at = match rows {
            1 => (self.value(to).memory, 0),
            _ => {
                let at = self.on_their_way;
                self.on_their_way += 4 * rows * columns;
                (fixed::PARTS, at)
            }
        };
        let own = bounds[number];
        self.pending.push(Pending { to, at, bounds });
        Operand::Memory(at.0, at.1 + 4 * rows * own)
    }

    /// Gates the device's own rows where an operation does nothing but that to outputs which nobody else has yet, and what
    /// they are multiplied by is not used by the operations `behind` it. True if that was done.
    pub(super) fn gates_own(&mut self, operation: &Operation, behind: &[Operation]) -> Result<bool, ProgramError> {
        let Operation::Gate { function, gate, up: Some(up) } = *operation else { return Ok(false) };
        let place = |value: usize| self.pending.iter().find(|pending| pending.to == value);
        let (Some(share), Some(x), Some(y)) = (&self.program.shared, place(gate), place(up)) else { return Ok(false) };
        let is_read = |value: usize| {
            let mut found = self.program.leaving.contains(&value);
            behind.iter().for_each(|operation| operation.values(|other| found |= other == value));
            found
        };
        if x.bounds != y.bounds || self.rows(gate) != self.rows(up) || is_read(up) {
            return Ok(false);
        }
        let rows = self.rows(gate);
        let [start, end] = [0, 1].map(|more| rows * x.bounds[share.number + more]);
        let own = |pending: &Pending| Operand::Memory(pending.at.0, pending.at.1 + 4 * start);
        let operands = vec![own(x), own(y), int(end - start)];
        if start < end {
            let blocks = [(end - start).div_ceil(ELEMENTS), 1];
            self.launch((GATE, function.kernel()), blocks, (ELEMENTS, 0), operands)?;
        }
        self.pending.retain(|pending| pending.to != up);
        Ok(true)
    }

    /// Exchanges the outputs that an operation uses, and all others that are there.
    pub(super) fn exchange_before(&mut self, operation: &Operation) -> Result<(), ProgramError> {
        let pending: Vec<usize> = self.pending.iter().map(|pending| pending.to).collect();
        match uses(self.program, operation, &pending) {
            true => self.exchange(),
            false => Ok(()),
        }
    }

    /// Exchanges all outputs that are there.
    pub(super) fn exchange(&mut self) -> Result<(), ProgramError> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return Ok(());
        }
        let pieces = pending.iter().map(|Pending { to, at: (memory, first), bounds }| {
            let rows = self.rows(*to);
            Piece { memory: *memory, bounds: bounds.iter().map(|bound| first + 4 * rows * bound).collect() }
        });
        let exchange = Some(Exchange { pieces: pieces.collect() });
        let calls = std::mem::take(&mut self.calls);
        self.stretches.push(Stretch { calls, exchange });
        self.on_their_way = 0;
        for Pending { to, at: (memory, first), bounds } in pending {
            if memory != fixed::PARTS {
                continue;
            }
            let (rows, columns) = (self.rows(to), self.value(to).columns);
            for part in bounds.windows(2).filter(|part| part[0] < part[1]) {
                let (start, width) = (part[0], part[1] - part[0]);
                let mut operands = vec![Operand::Memory(memory, first + 4 * rows * start), self.at(to)];
                operands.extend([width, width, 0, columns, start, rows * width].map(int));
                self.launch((NORM, "copy_part"), [(rows * width).div_ceil(ELEMENTS), 1], (ELEMENTS, 0), operands)?;
            }
        }
        Ok(())
    }
}
