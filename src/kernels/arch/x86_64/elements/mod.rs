//! Element-wise operations in vectors, each with the bits of its definition in [`crate::elements`].

mod exp;
pub mod gate;
pub mod rotate;
pub mod soft_max;
