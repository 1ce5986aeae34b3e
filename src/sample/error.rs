//! Errors of sampling.

/// Why no token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// An option that no chain can follow.
    #[error("{name} must be {wanted}, not {value}")]
    Option {
        /// The option.
        name: &'static str,
        /// Permitted values.
        wanted: &'static str,
        /// Value that was given.
        value: f32,
    },
    /// The model computed a NaN or +inf.
    #[error("the logit of token {id} is not finite: the model's weights are damaged")]
    NotFinite {
        /// The first such token.
        id: usize,
    },
    /// There is nothing to choose from.
    #[error("there are no logits to choose from")]
    Empty,
}
