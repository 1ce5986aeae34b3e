//! The loops of [`crate::widely::batch`], written once for the vectors of every instruction set.

pub(crate) mod chains;
pub(crate) mod groups;
