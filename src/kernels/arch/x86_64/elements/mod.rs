//! Element-wise operations in vectors, each with the bits of its definition in [`crate::elements`].

mod exp;
mod gate;
mod rotate;
mod soft_max;

pub use gate::{geglu, swiglu};
pub use rotate::rotate_adjacent;
pub use soft_max::soft_max;
