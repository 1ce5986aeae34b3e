//! Content of synthetic tensors.

use anyhow::Result;
use trine::quant::Row;
use trine_formats::widely;

use super::data;

/// Codes or scales of a matrix.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub part: widely::Part,
    pub shape: widely::Shape,
    pub name: String,
}

impl Part {
    /// The tensor's bytes: codes at random, each stage's scales half of those before.
    pub fn make(&self) -> Vec<u8> {
        let shape = &self.shape;
        match self.part {
            widely::Part::Codes => data::random_bytes(&self.name, 4 * shape.rows * shape.row_words()),
            widely::Part::Scale => {
                let first = 0.7 / (2.0 * shape.columns as f32).sqrt();
                let one = |i: usize| first / (1u32 << (i / 2 % shape.stages)) as f32;
                let all = (0..shape.group_scales()).map(one).flat_map(f32::to_le_bytes);
                all.collect()
            }
        }
    }
}

/// Content of a tensor.
pub(super) enum Content {
    /// Weights of a tensor that rquantize makes.
    Weights(Row, data::Kind),
    /// Codes or scales of a widely linear matrix.
    Widely(Part),
}

impl Content {
    pub fn make(&self) -> Result<Vec<u8>> {
        match self {
            Content::Weights(row, kind) => data::tensor(row, *kind),
            Content::Widely(part) => Ok(part.make()),
        }
    }
}
