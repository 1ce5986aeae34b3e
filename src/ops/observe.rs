//! Watching what is multiplied with the weights.

/// Sees the input of every weight matrix, as importance matrices need it.
pub trait ActivationObserver: Send + Sync {
    /// `rows`, `[tokens][columns]`, are about to be multiplied with the matrix `tensor`, named as in the
    /// file. Called once per matrix and pass, in the order of the graph.
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize);

    /// The same for the matrix of one expert, number `expert` of the `experts` in `tensor`: the rows of the tokens that
    /// go there, those of which it is the first choice before those of which it is the second. Called once per matrix
    /// and pass for every expert that has rows.
    fn observe_expert(&self, tensor: &str, expert: usize, experts: usize, rows: &[f32], columns: usize);
}
