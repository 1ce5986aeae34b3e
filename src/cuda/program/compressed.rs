//! Attention to the last positions and to compressed keys of all positions.

use super::calls::{Pass, at_once, int, memory};
use super::few::Compressed;
use super::memory::RowCount;
use super::operation::{Operation, Powers};
use super::{Cells, Operand, ProgramError, Recorder, Span, fixed};
use crate::ptx::ATTENTION;

/// Threads of a block.
const THREADS: usize = 128;
impl<'a> Recorder<'a> {
    /// Attends over the cells of a layer: the keys of the last `window` positions, which are their values too, and in the
    /// place of values the compressed keys of all blocks of `ratio` positions. `sinks` are for each head the score of a
    /// cell without a value, and the table of the exponential.
    ///
    /// # Errors
    /// Heads with an odd number of elements, cells of other heads, sinks of other heads.
    pub fn attend_compressed(
        &mut self,
        queries: Span,
        cells: Cells,
        [window, ratio]: [usize; 2],
        scale: f32,
        sinks: Option<(&'a [f32], &'a Powers)>,
    ) -> Result<Span, ProgramError> {
        let [heads_of_keys, size, of_value] = cells.shape;
        let columns = self.columns(queries);
        let heads = columns / size.max(1);
        let whole = heads_of_keys == 1 && size == of_value && size > 0 && columns == heads * size;
        // The kernel reads keys by pairs, and keeps a query in shared memory.
        let fits = size.is_multiple_of(2) && size <= 4096 && window > 0 && ratio > 0;
        if !whole || !fits || sinks.is_some_and(|(sinks, _)| sinks.len() != heads) {
            let what = format!("attention of {heads} heads of {size} to compressed keys of {ratio} positions");
            return Err(ProgramError::Missing(what));
        }
        let sinks = match sinks {
            Some((sinks, powers)) => Some([self.vector(sinks)?, self.store.powers(&mut self.memories, powers)]),
            None => None,
        };
        let to = self.value(RowCount::Tokens, columns)?;
        self.operations.push(Operation::Compressed(Compressed {
            queries: queries.0,
            cells: cells.memories,
            heads,
            size,
            scale,
            window: window.min(self.limits.context),
            ratio,
            sinks,
            to: to.0,
        }));
        Ok(to)
    }
}

impl Pass<'_> {
    pub(super) fn compressed(&mut self, a: &Compressed) -> Result<(), ProgramError> {
        let limits = self.program.limits();
        let at_once = at_once(a.scores(limits.context)?);
        // Nothing is read where there are none.
        let [sinks, powers] = a.sinks.map_or([self.at(a.queries); 2], |of| of.map(memory));
        for first in (0..self.tokens).step_by(at_once) {
            let mut operands = vec![self.at(a.queries)];
            operands.extend(a.cells.map(memory));
            operands.extend([fixed::PLACES, fixed::TABLES, fixed::WORK].map(memory));
            operands.extend([self.at(a.to), Operand::F32(a.scale)]);
            operands.extend([a.window, a.ratio, a.heads, a.size, a.stride(limits.context), limits.row()].map(int));
            operands.extend([Operand::U32(limits.page.trailing_zeros()), int(first), int(a.sinks.is_some().into())]);
            operands.extend([sinks, powers]);
            let blocks = [a.heads, at_once.min(self.tokens - first)];
            self.launch((ATTENTION, "attend_compressed"), blocks, (THREADS, 4 * a.size), operands)?;
        }
        Ok(())
    }
}
