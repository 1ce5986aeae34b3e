//! How much the error of a tensor says of the logits, by its role.
//!
//! Measured on three models: all tensors of a role were encoded in one small type, all others in one that errs little, and
//! the divergence was divided by the relative errors of the role's products. These are about the middle of the three,
//! in parts of a block's mean tensor; `docs/notes/sizes.md` has them. Errors of queries and keys meet a softmax, which forgives
//! them; those of `ffn_down` are added to the hidden state as they are.

use crate::quant::category::Category;

/// How often the error of the output counts: its products are the logits themselves, and where it is the embeddings too,
/// all blocks read them. A tensor among many blocks says less of the logits than one of few, and so does its error.
pub const OUTPUT: f64 = 80.0;

/// How often the error of a tensor of a block counts.
pub fn count(role: Category) -> f64 {
    match role {
        Category::AttnQ | Category::AttnK => 0.3,
        Category::AttnV => 0.9,
        Category::AttnOutput => 0.55,
        Category::FfnGate => 1.35,
        Category::FfnUp => 1.4,
        Category::FfnDown => 2.0,
        Category::Output | Category::TokenEmbd | Category::Other => 1.0,
    }
}
