//! A tensor of the output, and where its data comes from.

use trine_formats::types::TypeId;
use trine_formats::widely::{Rule, Shape};

use super::mxfp4::Experts;
use super::values::Stored;

/// Where the data of a row comes from.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Stored(Stored),
    /// Values that follow from `config.json`.
    Computed(Vec<f32>),
    /// Experts in MXFP4.
    Mxfp4(Experts),
    /// Whole numbers of 64 bits.
    Longs(Vec<i64>),
    /// The same of 32 bits.
    Ints(Vec<i32>),
    /// The words of a widely linear matrix.
    Codes {
        stored: Stored,
        rule: Rule,
        shape: Shape,
    },
    /// The scales of the matrix whose words come before.
    Scales,
}

/// One tensor of the output.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name in the output.
    pub name: String,
    /// Name in the checkpoint.
    pub source: String,
    /// Element type in the checkpoint.
    pub from: &'static str,
    /// Extents, fastest first.
    pub shape: Vec<u64>,
    /// Type in the output.
    pub ty: TypeId,
    pub(super) content: Content,
}

impl Row {
    /// Number of weights, which the words of a widely linear matrix are not.
    pub(super) fn parameters(&self) -> u64 {
        match &self.content {
            Content::Codes { stored, .. } => stored.rows * stored.columns,
            Content::Scales => 0,
            Content::Stored(_) | Content::Mxfp4(_) | Content::Computed(_) | Content::Longs(_) | Content::Ints(_) => {
                self.shape.iter().product()
            }
        }
    }
}

/// How large a model is, as its name says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Size {
    /// All weights; 0 where there are none.
    pub all: u64,
    /// Weights that are no experts'.
    pub shared: u64,
    /// Weights of one expert of every block.
    pub expert: u64,
    /// Experts of a block.
    pub experts: u64,
}

impl Size {
    pub fn of(rows: &[Row]) -> Size {
        // pairs of matrices of adapters that stand apart are not measured
        if rows.iter().any(|row| row.name.ends_with(".lora_b")) {
            return Size::default();
        }
        let mut size = Size::default();
        let (mut counts, mut stacks) = (0u64, 0);
        for row in rows {
            let n = row.parameters();
            size.all += n;
            match row.shape.last() {
                Some(&experts) if row.name.contains("_exps.") && row.shape.len() > 2 => {
                    size.expert += n / experts;
                    counts += experts;
                    stacks += 1;
                }
                _ => size.shared += n,
            }
        }
        size.experts = counts.checked_div(stacks).unwrap_or(0);
        size
    }
}
