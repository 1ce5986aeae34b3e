//! A model's forward pass as launches: operations are recorded once, and say for any number of tokens which kernel runs
//! on which grid with which arguments.
//!
//! A [`Recorder`] records a model's forward pass, operation by operation; it knows no architecture. The result, a
//! [`Program`], is data: the memory that it needs, with its size for the [`Limits`] it was made for, and the launches
//! of a pass. Nothing is packed or allocated before the sizes are known, so a model that is too large is refused by its
//! [table](Program::table). [`crate::run`] runs a program on a [device](crate::device).

mod between;
mod calls;
mod calls_attention;
mod calls_experts;
mod calls_integers;
mod calls_recurrent;
mod cells;
mod compressed;
mod exchange;
mod few;
mod form;
mod functions;
mod fused;
mod launches;
mod matrix;
mod memory;
mod operation;
mod pass;
mod place;
mod plane_matrix;
mod planes;
mod record;
mod record_attention;
mod record_experts;
mod record_recurrent;
mod record_share;
mod recurrent;
mod share;
mod staged;
mod whole;

pub use between::Streams;
pub use form::Form;
pub(crate) use launches::fixed;
pub use launches::{Caches, Call, Exchange, Limits, Operand, Piece, ProgramError, Stretch};
pub use matrix::{Matrix, Weights, embeds};
pub use memory::{Kind, Memory, Table};
pub use operation::{Claim, Gate, Gating, Powers};
pub use pass::Program;
pub use plane_matrix::PlaneMatrix;
pub use record::{Recorder, Rotation, Span};
pub use record_attention::{Cells, Heads, Rules};
pub use record_experts::{Choosing, Chosen};
pub use record_recurrent::{Compress, Convolution, Decay, Delta, Lightning, Ngrams, Scan, Wkv6, Wkv7};
pub use share::Share;

impl Program {
    /// The launches of a pass over `tokens` tokens, with any-precision weights of `width` bits, any number where there
    /// are no such weights. Whatever is said of the caches, the results are bit-identical. There is one stretch, and more
    /// where devices share the rows of matrices: as many in the program of each, with exchanges between them.
    ///
    /// # Errors
    /// A product without a plan; more tokens than the limits say; a width that the weights do not have.
    pub fn body(&self, tokens: usize, width: u8, caches: Caches) -> Result<Vec<Stretch>, ProgramError> {
        let stretches = calls::of(self, &self.operations[..self.head], [tokens, 1], width, caches)?;
        self.staged.find(stretches, Some(tokens))
    }

    /// The launches that make logits of `wanted` rows of a pass.
    ///
    /// # Errors
    /// A product without a plan; more rows than the limits say; a width that the weights do not have.
    pub fn logits_of(&self, wanted: usize, width: u8) -> Result<Vec<Stretch>, ProgramError> {
        let stretches = calls::of(self, &self.operations[self.head..], [1, wanted], width, Caches::default())?;
        self.staged.find(stretches, None)
    }

    /// Most bits of its any-precision weights; 0 where there are none.
    fn widest(&self) -> u8 {
        let widths = self.operations.iter().map(|operation| match operation {
            operation::Operation::Planes { matrix, .. } => matrix.widest(),
            _ => 0,
        });
        widths.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
