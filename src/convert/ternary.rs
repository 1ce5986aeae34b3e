//! Options for matrices that are ternary or to be made so.

/// Kind of the weights of attention and feed-forward matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ternary {
    /// As `config.json` says; without a statement there, [`Ternary::None`].
    #[default]
    Auto,
    /// Weights to be taken as they are.
    None,
    /// Latent weights of BitNet b1.58.
    Bitnet,
    /// Latent weights of TriLM and TriTera.
    Trilm,
}

/// How `weight_scale` of packed weights is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PackedScale {
    /// Multiply for `linear_class` "autobitlinear", divide otherwise.
    #[default]
    Auto,
    /// digit × scale.
    Multiply,
    /// digit / scale.
    Divide,
}
