//! Any-precision and SqueezeLLM quantization: every row has a codebook of its own, and the codes of all widths
//! are the leading bits of one parent code.
//!
//! A row's weights are clustered in one dimension, weighed by their sensitivities: first into `2^seed` clusters,
//! then each cluster is split in two until there are `2^parent`. The centroids of every width on the way are
//! its tables. SqueezeLLM is the same with the seed for a parent. [`Clusters`] plans and makes
//! the file, and [`Width`] takes one width out of it. The file is described in
//! [`trine_formats::anyprec`].
//!
//! Sources: Kim et al., "SqueezeLLM: Dense-and-Sparse Quantization", 2024; Park et al., "Any-Precision LLM",
//! 2024.

mod choose;
mod cluster;
mod clusters;
mod codes;
mod compat;
mod error;
mod exact;
mod feedback;
mod footprint;
#[cfg(test)]
pub(crate) mod golden;
mod gradients;
mod keep;
mod make;
mod matrices;
mod opened;
pub mod outliers;
mod places;
mod seed;
mod sensitivity;
mod sensitivity_error;
mod shared;
mod sorted;
mod split;
mod target;
mod width;
mod work;

pub use choose::sensible_parent;
pub use cluster::{ClusterError, Clusterer, Method, Nesting};
pub use clusters::Clusters;
pub use codes::Codes;
pub use error::ApError;
pub use footprint::{Footprint, WidthSize};
pub use make::Report;
pub use matrices::is_block_matrix;
pub use sensitivity::Sensitivity;
pub use sensitivity_error::SensitivityError;
pub use target::{Options, Target};
pub use width::Width;
