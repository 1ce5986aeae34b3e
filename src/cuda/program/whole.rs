//! Attention over whole sequences in both directions.

use super::calls::{Pass, at_once, int, memory};
use super::few::Whole;
use super::memory::RowCount;
use super::operation::{Operation, Powers};
use super::{Heads, Operand, ProgramError, Recorder, Span, fixed};
use crate::ptx::WHOLE;

/// Threads of a block.
const THREADS: usize = 128;

impl<'a> Recorder<'a> {
    /// Attention of every token to all tokens of its sequence, or to those at most `reach` positions away; sequences
    /// are whole in a pass, and nothing is kept of them. `slopes` are those of the query heads, or none.
    ///
    /// # Errors
    /// Rows that are no whole heads, values of another width than keys, slopes of other heads.
    pub fn attend_whole(
        &mut self,
        [queries, keys, values]: [Span; 3],
        heads: Heads,
        (scale, reach): (f32, Option<usize>),
        slopes: &'a [f32],
        powers: &'a Powers,
    ) -> Result<Span, ProgramError> {
        let Heads { queries: n, keys: kv, key_size, value_size } = heads;
        let widths = [queries, keys, values].map(|x| self.columns(x));
        let whole = kv > 0 && n.is_multiple_of(kv) && widths == [n * key_size, kv * key_size, kv * key_size];
        let sloped = slopes.is_empty() || slopes.len() == n;
        if !whole || key_size != value_size || !sloped {
            return Err(ProgramError::Missing(format!("attention in both directions of {heads:?}")));
        }
        let slopes = Some(slopes).filter(|slopes| !slopes.is_empty());
        let slopes = slopes.map(|slopes| self.vector(slopes)).transpose()?;
        let powers = self.store.powers(&mut self.memories, powers);
        let to = self.value(RowCount::Tokens, n * value_size)?;
        self.operations.push(Operation::Whole(Whole {
            queries: queries.0,
            keys: keys.0,
            values: values.0,
            heads: n,
            kv_heads: kv,
            size: key_size,
            scale,
            reach: reach.unwrap_or(usize::MAX).min(i32::MAX as usize),
            slopes,
            powers,
            to: to.0,
        }));
        Ok(to)
    }
}

impl Pass<'_> {
    pub(super) fn whole(&mut self, a: &Whole) -> Result<(), ProgramError> {
        let tokens = self.rows(a.queries);
        let at_once = at_once(a.scores(tokens)?);
        for first in (0..tokens).step_by(at_once) {
            let operands = vec![
                self.at(a.queries),
                self.at(a.keys),
                self.at(a.values),
                memory(fixed::PLACES),
                memory(a.powers),
                // Nothing is read where there are none.
                a.slopes.map_or(self.at(a.queries), memory),
                memory(fixed::WORK),
                self.at(a.to),
                Operand::F32(a.scale),
                int(a.reach),
                int(a.heads),
                int(a.kv_heads),
                int(a.size),
                int(first),
                int(a.slopes.is_some().into()),
                int(tokens),
            ];
            let blocks = [a.heads, at_once.min(tokens - first)];
            self.launch((WHOLE, "attend_whole"), blocks, (THREADS, 0), operands)?;
        }
        Ok(())
    }
}
