//! Any-precision and SqueezeLLM quantization: every row has a codebook of its own, and the codes of all widths
//! are the leading bits of one parent code.
//!
//! A row's weights are clustered in one dimension, weighed by their sensitivities: first into `2^seed` clusters,
//! then each cluster is split in two until there are `2^parent`. The centroids of every width on the way are
//! its tables. SqueezeLLM is the same with the seed for a parent. [`Plan`] decides from the headers, a [`Job`]
//! makes the file, and a [`WidthPlan`] takes one width out of it. The file is described in
//! [`trine_formats::anyprec`].
//!
//! Sources: Kim et al., "SqueezeLLM: Dense-and-Sparse Quantization", 2024; Park et al., "Any-Precision LLM",
//! 2024.

mod cluster;
mod compat;
mod error;
mod exact;
mod extract;
mod feedback;
mod footprint;
#[cfg(test)]
pub(crate) mod golden;
mod gradients;
mod keep;
pub mod outliers;
mod plan;
mod run;
mod seed;
mod sensitivity;
mod sensitivity_error;
mod sorted;
mod split;
mod target;
mod work;

pub use cluster::{ClusterError, Clusterer, Method, Nesting};
pub use error::ApError;
pub use extract::WidthPlan;
pub use feedback::Metrics;
pub use footprint::{Footprint, WidthSize};
pub use gradients::WeightFiles;
pub use plan::{Places, Plan, is_block_matrix, sensible_parent};
pub use run::{Job, Report};
pub use sensitivity::Sensitivity;
pub use sensitivity_error::SensitivityError;
pub use target::{Recipe, Target};
