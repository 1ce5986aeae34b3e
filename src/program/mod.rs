//! A model's forward pass as data: operations on named values, in order.
//!
//! A [`Program`] says what is computed and nothing of how: values have a number of rows and columns, matrices a name,
//! caches and states a number. Descriptions of architectures are lowered to one when a model is loaded; executors
//! ([`crate::exec`]) carry it out, each with the operations that it has, and whoever wants to know what a model does
//! reads the same list.
//!
//! Every value is written once, by one operation. Where a value is read for the last time, its memory can be used for
//! the result: the [`Plan`] knows, so no operation exists in two forms.

mod build;
mod forward;
mod op;
mod operation;
mod plan;
mod rewrite;
mod setting;
mod show;
#[cfg(test)]
mod tests;
mod value;

pub use build::Builder;
pub use forward::Program;
pub use op::{Attend, LowRank, Op, Product, RopeKind, Stack, Temperature};
pub use operation::{Operation, Order};
pub use plan::Plan;
pub use setting::{Scales, Setting};
pub use show::{Line, Matrix as ShownMatrix, Output as ShownOutput};
pub use value::{MatrixId, MatrixInfo, RowCount, Shape, Value};
