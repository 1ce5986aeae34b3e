//! Gradients: a program run forwards, with what its derivative needs kept, and then backwards.
//!
//! The pass is plain `f32`, or `f64` to check it, on the decoded weights: no quantized activations, no half-float
//! cache. Its order of summation is fixed: products as `product` says, reductions over a row in `f64` in order.
//! Neither threads nor the instruction set change a bit. Which experts a token goes to is held constant; the weights of the
//! choice have derivatives.
//!
//! A program whose operations do not all have a derivative is refused by their names.

mod attention;
mod backward;
mod collector;
mod elements;
mod experts;
mod forward;
mod linear;
mod norm;
mod prepared;
mod product;
mod products;
mod real;
mod rows;
mod steps;
mod streams;
mod tape;
mod weights;

pub use linear::Gradients;
pub use prepared::{Gradient, check};
pub use real::Real;
pub use tape::Tape;
pub use weights::Target;
