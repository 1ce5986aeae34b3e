//! Attention to a text that an encoder has read.

use super::whole::{BothWays, Heads};
use crate::kernels::Floats;
use crate::kv::SequenceRows;
use crate::pool;

/// Attention of every position to all positions of the text that an encoder has read for its sequence. Keys, values and
/// probabilities stay in single precision: the order of the sums is that of [`BothWays`], without anything that depends
/// on distance.
#[derive(Clone, Copy, Debug)]
pub struct AttendSource {
    /// Whose keys and values these are, of those that the sequence has.
    pub layer: usize,
    /// The heads.
    pub heads: Heads,
    /// Factor on the scores.
    pub scale: f32,
}

impl AttendSource {
    /// Outputs of all rows of `q`, `[rows of the pass][query heads][head size]`; `parts` are the sequences of the pass.
    ///
    /// # Panics
    /// A sequence has no such text; whoever begins a pass checks that.
    pub fn run(&self, parts: &[SequenceRows<'_>], q: &[f32]) -> Floats {
        let attention = BothWays { heads: self.heads, scale: self.scale, reach: None, slopes: &[], relative: None };
        let width = self.heads.queries * self.heads.size;
        let mut out = Floats::scratch(q.len());
        pool::chunks_mut(&mut out, width, |row, out| {
            let Some(part) = parts.iter().find(|part| part.rows.contains(&row)) else {
                return out.fill(0.0);
            };
            let source = part.seq.source().expect("a text: checked when the pass began");
            let [keys, values] = source.layer(self.layer);
            attention.token(0, source.positions(), [&q[row * width..][..width], keys, values], &[], out);
        });
        out
    }
}
