//! How tensors are rounded with error feedback.

use trine_formats::gguf::Value;

use super::source::Calibration;

/// The share of the mean of the diagonal that is added to it where nothing else is asked for: that of the
/// first GPTQ. MARLIN takes 0.1.
pub const DAMP: f64 = 0.01;

/// How many times as much is added for types whose columns are chosen together: their codebooks reach less far, and what
/// few tokens say of the columns they do not tell apart costs more than it gains.
const TOGETHER: f64 = 10.0;

/// Steps of a hundredth by which the range of a group is narrowed in the search for its scale.
pub(super) const SHRINKS: usize = 75;

/// Options of rounding with error feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Columns that share a scale, 32 or a multiple of it: four neighbouring blocks with one scale make a group of 128.
    pub group: usize,
    /// The share of the mean of the diagonal of `H` that is added to it: above 0, at most 1. Where a few columns are
    /// many times larger than the others, much of it leaves these with plain rounding.
    pub damp: f64,
    /// As MARLIN's program does: natural order, a search for the scale of every group when it is reached, in which only
    /// positive scales are tried, rounded to half floats in the end, and a group without negative weights uses half of
    /// the codes.
    pub compat: bool,
    /// Two of four neighbouring columns become zero. Not with `compat`.
    pub sparse: bool,
}

impl Options {
    /// The options for types of which so many columns are chosen together: above one, more is added to the diagonal.
    pub(super) fn together(&self, columns: usize) -> Options {
        let damp = if columns > 1 { (TOGETHER * self.damp).min(1.0) } else { self.damp };
        Options { damp, ..*self }
    }

    /// True if rows that are rounded are gone over again.
    pub(super) fn descends(&self) -> bool {
        !self.compat && !self.sparse
    }

    /// Scales of Q4_0 that are tried for a group.
    pub fn candidates(&self) -> usize {
        let signs = if self.compat { 1 } else { 2 };
        signs * (SHRINKS + 1)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { group: 32, damp: DAMP, compat: false, sparse: false }
    }
}

/// The options of GPTQ in a recipe.
#[derive(Clone, Debug)]
pub struct Gptq {
    /// The Hessians.
    pub hessians: Calibration,
    /// Options of rounding.
    pub options: Options,
}

impl Gptq {
    /// The keys of a file that was made with it.
    pub fn keys(&self) -> Vec<(&'static str, Value)> {
        let (options, header) = (&self.options, self.hessians.header());
        let count = |n: usize| Value::U32(u32::try_from(n).unwrap_or(u32::MAX));
        let sequential = matches!(self.hessians, Calibration::Sequential(_));
        let mut keys = vec![
            ("gptq.version", Value::U32(1)),
            ("gptq.group_size", count(options.group)),
            ("gptq.damp", Value::F32(options.damp as f32)),
            ("gptq.clip_grid", count(options.candidates())),
            ("gptq.act_order", Value::Bool(!options.compat)),
            ("gptq.compat", Value::Bool(options.compat)),
            ("gptq.calibration.tokens", Value::U64(header.tokens())),
            ("gptq.calibration.sequences", Value::U32(header.chunks)),
            ("gptq.calibration.sha256", Value::str(&header.origin.dataset_sha256)),
            ("gptq.source_sha256", Value::str(&header.origin.model_sha256)),
        ];
        keys.extend(sequential.then_some(("gptq.sequential", Value::Bool(true))));
        keys
    }
}
