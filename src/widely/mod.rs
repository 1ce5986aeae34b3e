//! Real matrices to widely linear ones and back, a part at a time and on all threads.
//!
//! The results are those of [`trine_formats::widely::quantize::quantize`] and [`trine_formats::widely::dense_rows`]:
//! sums over rows are taken in order, so that neither threads nor the size of a part change a bit.

mod encode;
mod options;

pub use encode::{Masters, encode, passes};
pub use options::{Options, described};
