//! The loops of [`crate::shared::widely::batch`], written once for the vectors of every instruction set.

pub(crate) mod chains;
pub(crate) mod groups;
