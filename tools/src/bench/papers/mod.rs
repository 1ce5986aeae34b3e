//! Tables of papers that can be measured again.

mod experiment;
mod tables;
mod wanted;

pub use experiment::{Experiment, Row};
pub use wanted::Wanted;
