//! The quantizer: a model and a recipe in, a file out, for most targets the one that llama-quantize would have written.
//!
//! [`Plan`] decides from headers alone what becomes of each tensor; [`run`] carries a plan out. Each tensor is planned
//! and made by a method: rounding row by row (also by [half-quadratic quantization and without bias](Encoder)), [moves of ternary
//! weights](lossless), [error feedback](gptq), [codebooks](anyprec), [widely linear matrices](widely),
//! [rotations](rotate), [data that is given](Replacement). A method is a folder and a line in `planner.rs`. Where llama-quantize silently does something else than asked, the plan holds a
//! [`Problem`] instead.

pub mod allocate;
pub mod anyprec;
mod category;
mod choose;
mod codec;
mod copy;
mod encoder;
mod error;
mod facts;
mod ftype;
pub mod gptq;
mod hqq;
mod imatrix;
pub mod lossless;
mod metadata;
mod mixture;
mod order;
mod overrides;
mod packed;
mod plan;
mod planner;
mod problem;
mod recipe;
mod replace;
pub mod rotate;
mod round;
mod row;
mod run;
mod source;
pub mod split;
mod ternary;
mod unbiased;
mod usual;
mod validate;
pub mod widely;
mod work;

pub use crate::progress::Progress;
pub use codec::can_write;
pub use encoder::Encoder;
pub use error::{PlanError, QuantError};
pub use ftype::{Ftype, Group, Target, nearest};
pub use imatrix::{Importance, ImportanceError, Selection};
pub use mixture::MixtureError;
pub use overrides::{KvOverride, KvValue, RecipeError};
pub use plan::{Fault, Plan};
pub use problem::{Problem, Refusal};
pub use recipe::{Fallback, Recipe, TensorRule, parse_layers, parse_type};
pub use replace::Replacement;
pub use round::Rounding;
pub use row::{OutShard, Reason, Row, Source};
pub use run::{Report, quantize, run};
pub use source::ReadError;
pub use ternary::{Loss, TensorLoss, TernaryReport};
pub use validate::first_bad;
pub use work::{RunError, RunOptions};
