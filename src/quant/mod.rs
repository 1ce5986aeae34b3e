//! The quantizer: a model and a recipe in, a file out that llama-quantize would have written.
//!
//! [`Plan`] decides from headers alone which tensor gets which type; [`run`] carries a plan out. Where
//! llama-quantize silently does something else than asked, the plan holds a [`Problem`] instead.

pub mod anyprec;
mod category;
mod choose;
mod convert;
mod facts;
mod ftype;
mod imatrix;
pub mod lossless;
mod metadata;
mod mixture;
mod order;
mod plan;
mod problem;
mod recipe;
mod run;
mod source;
mod ternary;
mod validate;
mod work;

pub use choose::can_write;
pub use ftype::{Ftype, Group, Target, nearest};
pub use imatrix::{Importance, ImportanceError, Selection};
pub use mixture::MixtureError;
pub use plan::{OutShard, Plan, PlanError, Reason, Row, Source};
pub use problem::{Problem, Refusal};
pub use recipe::{KvOverride, KvValue, Recipe, RecipeError, TensorRule, parse_layers, parse_type};
pub use run::{Progress, QuantError, Report, RunOptions, output_paths, quantize, run};
pub use source::ReadError;
pub use ternary::{Loss, TensorLoss, TernaryReport};
