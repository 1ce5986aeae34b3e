//! The quantizer: a model and a recipe in, a file out that llama-quantize would have written.
//!
//! [`Plan`] decides from headers alone which tensor gets which type; [`run`] carries a plan out. Where
//! llama-quantize silently does something else than asked, the plan holds a [`Problem`] instead.

pub mod anyprec;
mod category;
mod choose;
mod encoder;
mod error;
mod facts;
mod ftype;
pub mod gptq;
mod hqq;
mod imatrix;
pub mod lossless;
mod metadata;
mod method;
mod mixture;
mod order;
mod packed;
mod plan;
mod problem;
mod recipe;
mod round;
mod row;
mod run;
mod source;
pub mod split;
mod ternary;
mod validate;
pub mod widely;

pub use choose::can_write;
pub use encoder::Encoder;
pub use error::QuantError;
pub use ftype::{Ftype, Group, Target, nearest};
pub use imatrix::{Importance, ImportanceError, Selection};
pub use method::{Method, Progress, RunError, RunOptions, run};
pub use mixture::MixtureError;
pub use plan::{Plan, PlanError};
pub use problem::{Problem, Refusal};
pub use recipe::{Fallback, KvOverride, KvValue, Recipe, RecipeError, TensorRule, parse_layers, parse_type};
pub use row::{OutShard, Reason, Row, Source};
pub use run::{Report, output_paths, quantize};
pub use source::ReadError;
pub use ternary::{Loss, TensorLoss, TernaryReport};
pub use validate::first_bad;
