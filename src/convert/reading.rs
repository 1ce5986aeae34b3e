//! How a tensor of the checkpoint is read for one of the output: which of its rows, and what their values become.

use std::collections::BTreeMap;
use std::ops::Range;

use trine_formats::safetensors::{Dtype, Tensor};

use super::slices::{Slice, Slices};
use super::source::Source;
use super::ternary::Ternary;
use super::values::{Rule, Stored, is_float};
use crate::arch::{Extent, Fused, Role, Tensor as Described};

/// Which of the rows of a tensor of the checkpoint, and what they make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// All make the whole tensor.
    Whole,
    /// One half of them, or of every expert's.
    Half(u64),
    /// All make a part.
    Item,
}

/// Form of a checkpoint's matrices.
pub(super) struct Weights {
    pub rule: Ternary,
    pub parts: u64,
    /// True if packed digits are multiplied by their scale.
    pub multiply: bool,
    /// Scales of packed matrices, by the names of those.
    pub scales: BTreeMap<String, f32>,
}

/// Everything that decides how tensors are read.
pub(super) struct Reader<'a> {
    pub source: &'a Source,
    pub weights: &'a Weights,
    /// True if the rows of heads keep the order of the checkpoint.
    pub keep_order: bool,
}

impl Reader<'_> {
    /// How a tensor of the checkpoint is read for one of the output.
    pub fn stored(&self, t: &Tensor, shard: usize, described: &Described, what: What) -> Result<Stored, String> {
        let name = &t.name;
        let mut shape = t.shape.clone();
        let mut rule = self.rule(t, described)?;
        if let (Rule::Packed { .. }, Some(rows)) = (rule, shape.first_mut()) {
            *rows = rows.saturating_mul(4);
        }
        let source = self.source;
        let matrix = matches!(described.role, Role::ByRows | Role::ByColumns);
        let mut expected = source.sizes.shape(described);
        let transposed = source.checkpoint.transposed && matrix;
        match what {
            What::Whole if transposed => expected.reverse(),
            What::Whole => {}
            What::Half(_) => {
                let rows = expected.len() - 2;
                expected[rows] *= 2;
            }
            What::Item => {
                expected.remove(0);
            }
        }
        let padded = described.role == Role::Embedding
            && source.checkpoint.padded_embedding
            && shape.len() == 2
            && shape[1] == expected[1]
            && shape[0] > expected[0];
        if shape != expected && !padded {
            return Err(format!("'{name}' has shape {shape:?}, config.json makes it {expected:?}"));
        }
        let pair_heads = source.paired_heads(described).filter(|_| !self.keep_order);
        let regrouped =
            source.checkpoint.fused == Some(Fused::ByKeyHead) && described.shape.contains(&Extent::QueriesKeysValues);
        let (rows, columns) = match expected[..] {
            [columns, rows] if transposed => (rows, columns),
            [rows, columns] => (rows, columns),
            [experts, rows, columns] => (experts * rows, columns),
            // elements that change places
            [n] if pair_heads.is_some() || regrouped => (n, 1),
            [n] => (1, n),
            _ => return Err(format!("'{name}' is neither matrix nor vector")),
        };
        let slice = |rows: Range<u64>| Slice {
            tensor: name.as_str().into(),
            shard,
            offset: t.offset,
            first: rows.start,
            rows: rows.end - rows.start,
        };
        let slices = match what {
            _ if transposed => Slices::transposed(slice(0..rows)),
            What::Half(half) => {
                let both = if expected.len() == 3 { expected[1] } else { rows };
                let firsts = (0..rows / both).map(|e| e * both + half * (both / 2));
                Slices::new(firsts.map(|r| slice(r..r + both / 2)).collect())
            }
            _ if regrouped => Slices::new(self.by_part().into_iter().map(slice).collect()),
            _ => Slices::new(vec![slice(0..rows)]),
        };
        let rows = if matches!(what, What::Half(_)) { rows / 2 } else { rows };
        let latent = rule != Rule::Plain;
        if latent && (!slices.are_one() || what != What::Whole) {
            return Err(format!(
                "'{name}' is ternary or to be made so, which works for matrices that a model has as the checkpoint does"
            ));
        }
        if described.role == Role::Norm && source.checkpoint.norms_plus_one {
            rule = Rule::PlusOne;
        }
        Ok(Stored { slices, dtype: t.dtype, rows, columns, pair_heads, rule })
    }

    /// Rows of the queries, the keys and the values of all heads, where the checkpoint has those of a key head
    /// together.
    fn by_part(&self) -> Vec<Range<u64>> {
        let sizes = &self.source.sizes;
        let (d, served) = (sizes.head_dim, sizes.heads / sizes.kv_heads);
        let stride = (served + 2) * d;
        let part = |from: u64, rows: u64| (0..sizes.kv_heads).map(move |k| k * stride + from..k * stride + from + rows);
        let queries = part(0, served * d);
        let keys = part(served * d, d);
        let values = part((served + 1) * d, d);
        queries.chain(keys).chain(values).collect()
    }

    /// How stored values become values of the model.
    fn rule(&self, t: &Tensor, described: &Described) -> Result<Rule, String> {
        let (name, weights) = (&t.name, self.weights);
        let matrix = matches!(described.role, Role::ByRows | Role::ByColumns);
        let scale = weights.scales.get(name);
        if t.dtype == Dtype::U8 && matrix {
            let scale = scale.ok_or(format!("'{name}' is packed and has no '{name}_scale'"))?;
            let unit = if weights.multiply { *scale } else { 1.0 / scale };
            return Ok(Rule::Packed { unit });
        }
        let ty = t.dtype.name();
        if !is_float(t.dtype) {
            return Err(format!("'{name}' is of type {ty}, expected floats"));
        }
        if scale.is_some() {
            return Err(format!("'{name}' has a weight_scale and is not packed (type {ty})"));
        }
        let by_columns = described.role == Role::ByColumns;
        let extent = t.shape.get(usize::from(by_columns)).copied().unwrap_or(1);
        match weights.rule {
            Ternary::Bitnet if matrix => Ok(Rule::Bitnet),
            Ternary::Trilm if matrix && !extent.is_multiple_of(weights.parts) => {
                Err(format!("'{name}' of shape {:?} cannot be split into {} parts", t.shape, weights.parts))
            }
            Ternary::Trilm if matrix => Ok(Rule::Trilm { parts: weights.parts, by_columns }),
            _ => Ok(Rule::Plain),
        }
    }
}
