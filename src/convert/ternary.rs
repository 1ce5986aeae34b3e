//! What a caller says of matrices that are ternary or to be made so.

/// What the weights of attention and feed-forward matrices are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ternary {
    /// What `config.json` says; where it says nothing, [`Ternary::None`].
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
