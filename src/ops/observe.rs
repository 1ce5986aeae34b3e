//! Watching what is multiplied with the weights.

/// Sees the input of every weight matrix, as importance matrices need it.
pub trait ActivationObserver: Send + Sync {
    /// `rows`, `[tokens][columns]`, are about to be multiplied with the matrix `tensor`, named as in the
    /// file. Called once per matrix and pass, in the order of the graph.
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize);
}
