//! The plan: how codebooks are made, and the keys that will tell about them.

use trine_formats::anyprec::Header;

use super::cluster::Nesting;
use super::error::ApError;
use super::footprint::Footprint;
use super::outliers::{Rule, Shares};
use super::places::{Places, matrices};
use super::target::Options;
use crate::quant::plan::Plan;

/// The codes of a model's matrices.
#[derive(Debug)]
pub struct Codes {
    /// Whose outlier rules apply.
    pub rule: Rule,
    /// Options of the codebooks.
    pub options: Options,
    /// The values of the any-precision keys, as far as the headers tell.
    pub header: Header,
}

impl Codes {
    /// Weights that are kept as they are.
    pub(super) fn outliers(&self) -> Option<(Rule, Shares)> {
        self.options.outliers.map(|shares| (self.rule, shares))
    }

    /// The widths of a code.
    pub fn nesting(&self) -> Nesting {
        Nesting { seed_bits: self.header.seed_bits, parent_bits: self.header.parent_bits }
    }

    /// How large the file and each prefix of a plan will be. What the outlier rules take is estimated from the shares.
    ///
    /// # Errors
    /// Names and sizes that GGUF cannot hold, such as a name that is too long.
    pub fn footprint(&self, plan: &Plan) -> Result<Footprint, ApError> {
        let share = self.options.outliers.map_or(0.0, |s| (s.sensitive + s.magnitude) / 100.0);
        let sparse: Vec<u64> = matrices(plan).map(|r| (r.weights() as f64 * share) as u64).collect();
        let places = Places::new(plan, &self.header, &sparse)?;
        Ok(Footprint::new(plan, &self.header, &places, &sparse))
    }
}
