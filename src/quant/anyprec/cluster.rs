//! Codebooks of nested clusters: from one group of weights to a code per weight and a table per width.

use thiserror::Error;

use super::compat::{Crossed, Reference};
use super::exact::Exact;

/// Method of clustering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The best seed clusters and the best split of each, without chance.
    Exact,
    /// The best clusters at this width in bits, at least the seed's: each narrower width joins pairs of the next, each
    /// wider one splits.
    BestAt(u8),
    /// The result of the reference with this random state, rounding included.
    Compat {
        /// The seed of every group's random numbers.
        seed: u32,
    },
}

/// The widths of a codebook. Both are 1 to 8 and `seed_bits <= parent_bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nesting {
    /// Bits of the clusters that are found first.
    pub seed_bits: u8,
    /// Bits of a code, whose upper bits are the codes of all narrower widths.
    pub parent_bits: u8,
}

impl Nesting {
    /// Largest number of bits of a code.
    pub const MAX_BITS: u8 = 8;

    /// Checks the widths.
    pub fn new(seed_bits: u8, parent_bits: u8) -> Option<Nesting> {
        let fits = 1 <= seed_bits && seed_bits <= parent_bits && parent_bits <= Nesting::MAX_BITS;
        fits.then_some(Nesting { seed_bits, parent_bits })
    }

    /// All widths, narrowest first.
    pub fn widths(self) -> impl ExactSizeIterator<Item = u8> + Clone {
        // an ExactSizeIterator of u8 needs a half-open range
        self.seed_bits..self.parent_bits + 1
    }
}

/// A weight or sensitivity that cannot be clustered, by its column.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Not a finite number.
    #[error("the weight at index {0} is not a finite number; the model is damaged")]
    NotFinite(usize),
    /// Beyond what a table in half precision holds.
    #[error("the weight {1} at index {0} is larger than half precision holds (65504); leave the tensor as it is")]
    TooLarge(usize, f32),
    /// Negative or not a finite number.
    #[error("the sensitivity {1} at index {0} is not a finite number of at least 0")]
    Sensitivity(usize, f32),
    /// Only in compat mode.
    #[error(
        "the reference's clusters cross in the group that starts at index {0}; it fails here too, use the exact mode"
    )]
    Crossed(usize),
}

impl ClusterError {
    /// The same error, with positions that are `offset` weights further on.
    pub fn after(self, offset: usize) -> ClusterError {
        match self {
            ClusterError::NotFinite(i) => ClusterError::NotFinite(i + offset),
            ClusterError::TooLarge(i, x) => ClusterError::TooLarge(i + offset, x),
            ClusterError::Sensitivity(i, s) => ClusterError::Sensitivity(i + offset, s),
            ClusterError::Crossed(i) => ClusterError::Crossed(i + offset),
        }
    }
}

/// Clusters groups of weights, one after the other; each result depends on its group alone.
#[derive(Debug)]
pub struct Clusterer {
    nesting: Nesting,
    engine: Engine,
    luts: Vec<Vec<f32>>,
}

#[derive(Debug)]
enum Engine {
    Exact(Box<Exact>),
    Compat(Box<Reference>),
}

impl Clusterer {
    /// For groups of these widths.
    pub fn new(nesting: Nesting, method: Method) -> Clusterer {
        Clusterer {
            nesting,
            engine: match method {
                Method::Exact => Engine::Exact(Box::new(Exact::best_at(nesting.seed_bits))),
                Method::BestAt(bits) => {
                    let inside = bits.clamp(nesting.seed_bits, nesting.parent_bits);
                    Engine::Exact(Box::new(Exact::best_at(inside)))
                }
                Method::Compat { seed } => Engine::Compat(Box::new(Reference::new(seed))),
            },
            luts: nesting.widths().map(|_| Vec::new()).collect(),
        }
    }

    /// Clusters one group. Each weight gets a code of `parent_bits` bits; [`Clusterer::luts`] has the tables.
    ///
    /// A weight of sensitivity 0 has no say where the centroids are. If all are 0, all count alike. In compat
    /// mode weights of 0 have no say either. The slices are of one length, at most 2^32.
    ///
    /// # Errors
    /// Weights and sensitivities that make no sense; in compat mode borders that cross.
    pub fn cluster(&mut self, weights: &[f32], sensitivities: &[f32], codes: &mut [u8]) -> Result<(), ClusterError> {
        check(weights, sensitivities)?;
        let (luts, seed_bits) = (&mut self.luts, self.nesting.seed_bits);
        match &mut self.engine {
            Engine::Exact(exact) => {
                exact.cluster(weights, sensitivities, seed_bits, luts, codes);
                Ok(())
            }
            Engine::Compat(reference) => reference
                .cluster(weights, sensitivities, seed_bits, luts, codes)
                .map_err(|Crossed| ClusterError::Crossed(0)),
        }
    }

    /// The centroids of the last group, one table of `2^b` for each width `b`, narrowest first.
    pub fn luts(&self) -> &[Vec<f32>] {
        &self.luts
    }
}

pub(super) fn check(weights: &[f32], sensitivities: &[f32]) -> Result<(), ClusterError> {
    let largest = half::f16::MAX.to_f32();
    for (i, &x) in weights.iter().enumerate() {
        if !x.is_finite() {
            return Err(ClusterError::NotFinite(i));
        }
        if x.abs() > largest {
            return Err(ClusterError::TooLarge(i, x));
        }
    }
    match sensitivities.iter().position(|s| !s.is_finite() || *s < 0.0) {
        Some(i) => Err(ClusterError::Sensitivity(i, sensitivities[i])),
        None => Ok(()),
    }
}
