//! How a pass reads the weights of a program.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Factors of a model's adapters, one for each in the order in which they were named; 0 leaves one out. They are equal
/// where their bits are.
#[derive(Clone, Default)]
pub struct Scales(Arc<[f32]>);

impl Scales {
    fn bits(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|scale| scale.to_bits())
    }
}

impl From<Vec<f32>> for Scales {
    fn from(scales: Vec<f32>) -> Scales {
        Scales(scales.into())
    }
}

impl Deref for Scales {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl fmt::Debug for Scales {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Scales {
    fn eq(&self, other: &Scales) -> bool {
        self.bits().eq(other.bits())
    }
}

impl Eq for Scales {}

impl PartialOrd for Scales {
    fn partial_cmp(&self, other: &Scales) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By their bits: any order that is the same everywhere.
impl Ord for Scales {
    fn cmp(&self, other: &Scales) -> std::cmp::Ordering {
        self.bits().cmp(other.bits())
    }
}

impl Hash for Scales {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bits().for_each(|bits| bits.hash(state));
    }
}

/// How a pass reads the weights. Only texts of one setting share a pass, and only they have use for each other's keys
/// and values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    /// Bits of any-precision weights; 0 where a model has one width.
    pub bits: u8,
    /// Factors of the adapters; `None`: those with which they were loaded.
    pub adapters: Option<Scales>,
}

impl Setting {
    /// The width as it is asked for; `None` where the model has one.
    pub fn width(&self) -> Option<u8> {
        Some(self.bits).filter(|bits| *bits > 0)
    }
}
