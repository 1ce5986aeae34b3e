//! Recording keys, values and attention over them.

use super::form::Form;
use super::memory::{Kind, Memory, RowCount, size};
use super::operation::{Attend, Operation, Powers};
use super::{Limits, ProgramError, Recorder, Span};

/// Heads of an attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heads {
    /// Query heads.
    pub queries: usize,
    /// Key-value heads, which divide them.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub key_size: usize,
    /// Elements of a value.
    pub value_size: usize,
}

/// Operations on the scores of attention before their soft-max.
#[derive(Clone, Copy, Default, Debug)]
pub struct Rules<'a> {
    /// `cap * tanh(score * factor)`: factor and cap.
    pub cap: Option<[f32; 2]>,
    /// ALiBi: for each head what a step of distance lowers the score by, after the factor of attention. Empty without.
    pub slopes: &'a [f32],
    /// For each head the score of a cell that every query sees and that has no value, and the table of the exponential.
    pub sinks: Option<(&'a [f32], &'a Powers)>,
}

/// Keys and values of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cells {
    /// Memories of keys and of values.
    pub(super) memories: [usize; 2],
    /// Key-value heads, the elements of a key and of a value.
    pub(super) shape: [usize; 3],
    /// Types of keys and of values.
    pub(super) forms: [Form; 2],
    /// The memory of the table of the exponential, where values of a quantized type are added up.
    pub(super) powers: Option<usize>,
}

impl Heads {
    /// Heads, elements of a key and of a value in cells.
    pub(super) fn stored(self) -> [usize; 3] {
        [self.keys, self.key_size, self.value_size]
    }
}

impl<'a> Recorder<'a> {
    /// Puts `keys` and `values` into the cells of the next layer, and attends over them with `queries`: all cells up to
    /// the query's own, or those of a window, which moves with the query or stands at multiples of its size.
    ///
    /// # Errors
    /// Rows that are no whole heads, heads with an odd number of elements, cells that no buffer holds.
    pub fn attend(
        &mut self,
        [queries, keys, values]: [Span; 3],
        heads: Heads,
        scale: f32,
        window: Option<(usize, bool)>,
        rules: &Rules<'a>,
    ) -> Result<Span, ProgramError> {
        let cells = self.store([keys, values], heads)?;
        self.attend_over(queries, cells, heads, scale, window, rules)
    }

    /// Puts keys and values into the cells of the next layer, as half floats.
    ///
    /// # Errors
    /// Rows that are no whole heads, cells that no buffer holds.
    pub fn store(&mut self, rows: [Span; 2], heads: Heads) -> Result<Cells, ProgramError> {
        self.store_in([Form::HALF; 2], rows, heads)
    }

    pub(super) fn store_in(&mut self, forms: [Form; 2], rows: [Span; 2], heads: Heads) -> Result<Cells, ProgramError> {
        let Heads { keys: kv, key_size, value_size, .. } = heads;
        let widths = rows.map(|x| self.columns(x));
        if kv == 0 || widths != [kv * key_size, kv * value_size] {
            return Err(ProgramError::Missing(format!("attention of {heads:?}")));
        }
        let Limits { page, pages, .. } = self.limits;
        let mut memories = [0; 2];
        let what = "keys and values";
        for ((memory, form), head) in memories.iter_mut().zip(forms).zip([key_size, value_size]) {
            *memory = self.memories.len();
            let bytes = size(&[pages, kv, page, form.bytes(head)?], what)?;
            self.memories.push(Memory { kind: Kind::Cells, bytes });
        }
        for ((from, cells), form) in rows.into_iter().zip(memories).zip(forms) {
            self.operations.push(Operation::Store { from: from.0, cells, heads: kv, form });
        }
        Ok(Cells { memories, shape: heads.stored(), forms, powers: None })
    }

    /// Attends over the cells of a layer with `queries`, as [`Recorder::attend`] does.
    ///
    /// # Errors
    /// Rows that are no whole heads, heads with an odd number of elements, cells of other heads.
    pub fn attend_over(
        &mut self,
        queries: Span,
        cells: Cells,
        heads: Heads,
        scale: f32,
        window: Option<(usize, bool)>,
        rules: &Rules<'a>,
    ) -> Result<Span, ProgramError> {
        let Heads { queries: n, keys: kv, key_size, value_size } = heads;
        let same = cells.shape == heads.stored() && self.columns(queries) == n * key_size;
        let whole = kv > 0 && n.is_multiple_of(kv) && same;
        // The kernel reads keys by pairs, and keeps a query in shared memory.
        if !whole || !key_size.is_multiple_of(2) || key_size > 4096 || window.is_some_and(|w| w.0 == 0) {
            return Err(ProgramError::Missing(format!("attention of {heads:?}")));
        }
        let of_heads = |numbers: &[f32]| numbers.is_empty() || numbers.len() == n;
        if !of_heads(rules.slopes) || rules.sinks.is_some_and(|(sinks, _)| sinks.len() != n) {
            return Err(ProgramError::Missing(format!("slopes and sinks of other heads than {heads:?}")));
        }
        let slopes = Some(rules.slopes).filter(|slopes| !slopes.is_empty());
        let slopes = slopes.map(|slopes| self.vector(slopes)).transpose()?;
        let sinks = match rules.sinks {
            Some((sinks, powers)) => Some([self.vector(sinks)?, self.store.powers(&mut self.memories, powers)]),
            None => None,
        };
        let to = self.value(RowCount::Tokens, n * value_size)?;
        self.operations.push(Operation::Attend(Attend {
            queries: queries.0,
            keys: cells.memories[0],
            values: cells.memories[1],
            heads: n,
            kv_heads: kv,
            key_size,
            value_size,
            forms: cells.forms,
            scale,
            window: window.map_or(0, |w| w.0.min(self.limits.context)),
            chunked: window.is_some_and(|w| w.1),
            cap: rules.cap,
            slopes,
            sinks,
            powers: cells.powers,
            to: to.0,
        }));
        Ok(to)
    }
}
