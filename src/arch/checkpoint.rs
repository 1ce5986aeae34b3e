//! How a Hugging Face checkpoint says what an architecture's model is.

/// What `config.json` and the weights of a family of model classes mean.
#[derive(Debug)]
pub struct Checkpoint {
    /// Model classes in `config.json`.
    pub classes: &'static [&'static str],
    /// Activations (`hidden_act`) of this architecture's graph; the first is assumed where nothing is said.
    pub activations: &'static [&'static str],
    /// Gains are stored less 1.
    pub norms_plus_one: bool,
    /// The output matrix is the embedding unless `tie_word_embeddings` says otherwise.
    pub tied: bool,
    /// Other names for the same tensors of a block, and the usual ones.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Context length assumed.
    pub context: u32,
    /// Base of RoPE's frequencies assumed.
    pub rope_theta: f32,
    /// Epsilon of the norms assumed.
    pub rms_eps: f32,
    /// Head size assumed.
    pub head_dim: HeadDim,
}

/// What `head_dim` is where `config.json` does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadDim {
    /// hidden_size / num_attention_heads, and the file states it.
    Quotient,
    /// The same, and the file does not state it.
    Implied,
    /// A number of the class.
    Fixed(u32),
}

impl Checkpoint {
    /// What most classes assume.
    pub(super) const USUAL: Checkpoint = Checkpoint {
        classes: &[],
        activations: &["silu"],
        norms_plus_one: false,
        tied: false,
        aliases: &[],
        context: 2048,
        rope_theta: 10000.0,
        rms_eps: 1e-6,
        head_dim: HeadDim::Quotient,
    };
}
