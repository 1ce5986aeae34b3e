//! Evaluation of a model on a text: perplexity and Kullback-Leibler divergence; and on tasks with choices ([`tasks`]).
//!
//! The text's tokens are cut into chunks of `n_ctx`. Each chunk is evaluated in an empty context, its first token
//! replaced by BOS where the vocabulary wants one; the positions of its second half are scored by how well they predict
//! the token that follows, or others ([`Scored`]). Chunks share nothing and sums run in text order, so no way of
//! batching, and no number of threads, changes a digit.

pub mod base_file;
mod chunks;
mod error;
mod evaluator;
pub mod hessian;
pub mod imatrix;
pub mod kld;
pub mod partial;
pub mod perplexity;
mod report;
mod score;
pub mod tasks;

pub use chunks::{Chunks, Scored};
pub use error::EvalError;
pub use report::TABLE_HEAD;
pub use score::{LogProbabilities, Observer};

pub use evaluator::{Batching, Evaluator, Logits, SideBySide};

#[cfg(test)]
mod tests;
