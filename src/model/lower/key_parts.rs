//! The parts of a block that make keys and values, for a program beside that of the block.

use crate::model::load::Linear;
use crate::ops::norm::Norm;

/// The projections to keys and values of a block, and their norms.
pub struct KeyParts {
    pub key: Linear,
    /// `None` where values are keys.
    pub value: Option<Linear>,
    pub key_norm: Option<Norm>,
    pub value_norm: Option<Norm>,
}
