//! Any-precision and SqueezeLLM quantization: every row has a codebook of its own, and the codes of all widths
//! are the leading bits of one parent code.

mod cluster;
mod compat;
mod exact;
#[cfg(test)]
mod golden;
pub mod outliers;
mod seed;
mod sorted;
mod split;

pub use cluster::{ClusterError, Clusterer, Method, Nesting};
