//! How a Hugging Face checkpoint says what an architecture's model is.

/// What `config.json`, the tokenizer's files and the weights of a family of model classes mean.
#[derive(Debug)]
pub struct Checkpoint {
    /// Model classes in `config.json`.
    pub classes: &'static [&'static str],
    /// Activations (`hidden_act`) of this architecture's graph. Where nothing is said, the first architecture of the
    /// class is assumed.
    pub activations: &'static [&'static str],
    /// Gains are stored less 1.
    pub norms_plus_one: bool,
    /// The embedding may have more rows than the vocabulary has tokens; they are cut.
    pub padded_embedding: bool,
    /// Matrices are latent weights, which BitNet b1.58's rule makes ternary.
    pub latent: bool,
    /// The output matrix is the embedding unless `tie_word_embeddings` says otherwise.
    pub tied: bool,
    /// Other names for the same tensors of a block, and the usual ones.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Tokens of the vocabulary assumed; `None` where `config.json` has to say.
    pub vocab: Option<u32>,
    /// Query heads assumed; `None` where `config.json` has to say.
    pub heads: Option<u32>,
    /// Key and value heads assumed; `None`: as many as query heads.
    pub kv_heads: Option<u32>,
    /// Head size assumed.
    pub head_dim: HeadDim,
    /// Context length assumed.
    pub context: u32,
    /// Base of RoPE's frequencies assumed.
    pub rope_theta: f32,
    /// Epsilon of the norms assumed.
    pub rms_eps: f32,
    /// Sliding window assumed; `None` where the file states none.
    pub window: Option<u32>,
    /// Whether positions may be scaled.
    pub rope_scaling: RopeScaling,
    /// The file states `vocab_size` and `rope.dimension_count`.
    pub states_sizes: bool,
    /// Numbers of `config.json`, the keys of the file that take them, and what is assumed; a 0 is not written.
    pub numbers: &'static [(&'static str, &'static str, f32)],
    /// Whether texts begin with a space.
    pub space_prefix: SpacePrefix,
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

/// Whether `rope_scaling` of `config.json` is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeScaling {
    /// Yes.
    Any,
    /// No.
    None,
    /// No, and the file states a linear factor of 1, which llama.cpp's loader asks for.
    One,
}

/// Where the file's `add_space_prefix` comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpacePrefix {
    /// The SentencePiece model or `tokenizer.json`.
    Tokenizer,
    /// `tokenizer_config.json` where it says, and then the key stands before all others of the tokenizer.
    Config,
    /// No text begins with a space, whatever the tokenizer's files say.
    Never,
}

impl Checkpoint {
    /// What most classes assume.
    pub(super) const USUAL: Checkpoint = Checkpoint {
        classes: &[],
        activations: &["silu"],
        norms_plus_one: false,
        padded_embedding: false,
        latent: false,
        tied: false,
        aliases: &[],
        vocab: None,
        heads: None,
        kv_heads: None,
        head_dim: HeadDim::Quotient,
        context: 2048,
        rope_theta: 10000.0,
        rms_eps: 1e-6,
        window: None,
        rope_scaling: RopeScaling::Any,
        states_sizes: false,
        numbers: &[],
        space_prefix: SpacePrefix::Tokenizer,
    };
}

/// The row of the checkpoint that becomes row `r` of the model where the halves of heads of `head` rows are interleaved
/// ([`Arch::interleaves_heads`](super::Arch::interleaves_heads)): of a head, `0, d/2, 1, d/2 + 1, …`. Without `head` rows
/// keep their places.
pub(crate) fn source_row(head: Option<u64>, r: u64) -> u64 {
    let Some(d) = head else { return r };
    let (head, i) = (r / d, r % d);
    head * d + (i % 2) * (d / 2) + i / 2
}
