//! How a Hugging Face checkpoint says what an architecture's model is.

/// Meaning of `config.json`, the tokenizer's files and the weights for a family of model classes.
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
    /// Prefix of the tensor names, which some checkpoints omit: `model`.
    pub root: &'static str,
    /// Name of the list of blocks below it: `layers`.
    pub blocks: &'static str,
    /// Names of this class's own, and what they become.
    pub names: &'static [Name],
    /// How the rows of queries, keys and values stand in the one matrix that holds all of them; `None` where there are
    /// three.
    pub fused: Option<Fused>,
    /// Matrices of blocks have a row per input, not per output (GPT-2's `Conv1D`).
    pub transposed: bool,
    /// True if the elements of a head that RoPE turns together are neighbours in the checkpoint already.
    pub neighbours: bool,
    /// Tokens of the vocabulary assumed; `None` where `config.json` has to say.
    pub vocab: Option<u32>,
    /// Query heads assumed; `None` where `config.json` has to say.
    pub heads: Option<u32>,
    /// Key and value heads.
    pub kv_heads: KvHeads,
    /// Head size assumed.
    pub head_dim: HeadDim,
    /// Width of the feed-forward network.
    pub width: Width,
    /// Names of the context length in `config.json`; the first that is there counts.
    pub context_names: &'static [&'static str],
    /// Context length assumed; 0: the width of the residual stream.
    pub context: u32,
    /// Base of RoPE's frequencies assumed.
    pub rope_theta: f32,
    /// Elements of a head that RoPE turns.
    pub rotary: Rotary,
    /// Epsilon of the RMS norms assumed; `None` where the class has none.
    pub rms_eps: Option<f32>,
    /// Epsilon of the layer norms assumed; `None` where the class has none.
    pub layer_eps: Option<f32>,
    /// Permitted scaling of positions.
    pub rope_scaling: RopeScaling,
    /// Keys of `config.json` that the file cannot repeat, with the one value that it means.
    pub fixed: &'static [(&'static str, Fixed)],
    /// Keys of the file, in its order.
    pub keys: &'static [Key],
    /// Keys that follow them.
    pub more_keys: &'static [Key],
    /// Which of the tokenizer's files count.
    pub tokenizer: Tokenizer,
    /// Keys of the tokenizer that follow from the size of the vocabulary, or from nothing.
    pub token_rules: &'static [TokenRule],
    /// Rule for the space that texts begin with.
    pub space_prefix: SpacePrefix,
}

/// The name of a tensor in a checkpoint and its names in the model: one tensor, or two that share its rows, the first
/// half and the second (with experts: the rows of each). A `*` is a number: the tensors of all numbers are stacked in
/// their order. Names within a block stand without the block's prefix.
pub type Name = (&'static str, &'static [&'static str]);

/// How the rows of queries, keys and values stand in the one matrix that holds all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fused {
    /// All queries, all keys, all values.
    InOrder,
    /// For every key head the queries that it serves, the key, the value.
    ByKeyHead,
}

/// Key and value heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvHeads {
    /// `num_key_value_heads`, or as many as query heads.
    Stated,
    /// The same, or this number.
    StatedOr(u32),
    /// As many as query heads.
    Queries,
    /// One.
    One,
    /// Falcon: `num_kv_heads` in the new decoder architecture; before that one with `multi_query`, else as many as
    /// query heads.
    Falcon,
}

/// The value of `head_dim` where `config.json` does not give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadDim {
    /// hidden_size / num_attention_heads, and the file states it.
    Quotient,
    /// The same, and the file does not state it.
    Implied,
    /// A number of the class.
    Fixed(u32),
}

/// Width of the feed-forward network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// `intermediate_size`.
    Stated,
    /// Four times the width of the residual stream.
    Fourfold,
}

/// Elements of a head that RoPE turns: all, or the part that `partial_rotary_factor` says, with what is assumed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rotary {
    /// All; a part is refused.
    Whole,
    /// The part of a head, as a whole number.
    OfHead(f64),
    /// The part of the width of the residual stream, as a whole number, divided by the heads.
    OfWidth(f64),
}

/// The kinds of `rope_scaling` that `config.json` may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeScaling {
    /// Yes.
    Any,
    /// Two sets of divisors of the frequencies, for short contexts and long ones.
    ByContext,
    /// No.
    None,
}

/// The one value that a key of `config.json` can have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fixed {
    /// Absent, or false, 0, null or empty.
    Unset,
    /// True, or absent.
    True,
    /// The same; other values are noted, not refused, as what models of the class have that nobody trained.
    TrueNoted,
    /// This number, or absent.
    Number(f64),
}

/// A key of the GGUF file, as [`Checkpoint::keys`] lists them. Names of keys stand without the architecture in front.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Key {
    /// `block_count`.
    Blocks,
    /// `context_length`.
    Context,
    /// `embedding_length`.
    Embedding,
    /// `feed_forward_length`.
    FeedForward,
    /// `attention.head_count`.
    Heads,
    /// `attention.head_count_kv`.
    KvHeads,
    /// `rope.scaling.*`, where positions are scaled by a rule.
    RopeScaling,
    /// `rope.scaling.original_context_length`.
    OriginalContext,
    /// `rope.freq_base`, and the base in layers with a window where there is one.
    RopeBase,
    /// `rope.dimension_count`.
    RopeDimensions,
    /// `attention.layer_norm_rms_epsilon`, where the class has one.
    RmsEpsilon,
    /// `attention.layer_norm_epsilon`, where the class has one.
    LayerEpsilon,
    /// `expert_count`, where there are experts.
    Experts,
    /// `expert_used_count`, where there are experts.
    ExpertsUsed,
    /// `expert_feed_forward_length`, where `config.json` says it.
    ExpertWidth,
    /// `expert_shared_feed_forward_length`, where there is such an expert.
    SharedWidth,
    /// `attention.key_length` and `attention.value_length`, where they are said or the class has a rule for them.
    HeadSizes,
    /// `general.file_type`.
    FileType,
    /// `vocab_size`.
    VocabSize,
    /// `attention.sliding_window`: `sliding_window`, or this number; not where `sliding_window_pattern` is 1.
    Window(u32),
    /// `attention.sliding_window_pattern`: which layers have a window, as `layer_types` says; all but every fourth
    /// where it says nothing.
    WindowLayers,
    /// A number of `config.json`, the key that takes it, and what is assumed; a 0 is not written.
    Number(&'static str, &'static str, f32),
    /// The same for truth, which is always written.
    Flag(&'static str, &'static str, bool),
    /// A key and its number.
    Constant(&'static str, u32),
    /// A key and its text.
    Text(&'static str, &'static str),
    /// A linear scaling of positions by 1, which llama.cpp's loader asks for.
    UnitScaling,
    /// `tokenizer.ggml.add_bos_token`: no.
    NoBos,
}

/// Which of the tokenizer's files count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tokenizer {
    /// `tokenizer.model`, or `tokenizer.json` where that is absent.
    Any,
    /// `tokenizer.json`, or `tokenizer.model` where that is absent.
    Json,
    /// As `Any`, but a `GPT2Tokenizer` is read from `tokenizer.json`, which else adds its tokens to those of
    /// `tokenizer.model`; added tokens are taken as they are.
    Phi,
}

/// Keys of the tokenizer that follow from the size of the vocabulary, or from nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenRule {
    /// The vocabulary that they are for; `None`: all.
    pub vocab: Option<u32>,
    /// Id of the token that ends a turn.
    pub eot: Option<u32>,
    /// Value of the key `add_bos_token` for such a vocabulary; `None` leaves it as it is.
    pub add_bos: Option<bool>,
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

impl Key {
    /// The keys that llama.cpp's converter writes for most classes.
    pub(super) const USUAL: &'static [Key] = &[
        Key::Blocks,
        Key::Context,
        Key::Embedding,
        Key::FeedForward,
        Key::Heads,
        Key::KvHeads,
        Key::RopeScaling,
        Key::RopeBase,
        Key::RmsEpsilon,
        Key::LayerEpsilon,
        Key::Experts,
        Key::ExpertsUsed,
        Key::HeadSizes,
        Key::FileType,
    ];
}

impl Checkpoint {
    /// The assumptions of most classes.
    pub(super) const USUAL: Checkpoint = Checkpoint {
        classes: &[],
        activations: &["silu"],
        norms_plus_one: false,
        padded_embedding: false,
        latent: false,
        tied: false,
        root: "model",
        blocks: "layers",
        names: &[],
        fused: None,
        transposed: false,
        neighbours: false,
        vocab: None,
        heads: None,
        kv_heads: KvHeads::Stated,
        head_dim: HeadDim::Quotient,
        width: Width::Stated,
        context_names: &["max_position_embeddings", "n_ctx", "n_positions"],
        context: 2048,
        rope_theta: 10000.0,
        rotary: Rotary::Whole,
        rms_eps: Some(1e-6),
        layer_eps: None,
        rope_scaling: RopeScaling::Any,
        fixed: &[],
        keys: Key::USUAL,
        more_keys: &[],
        tokenizer: Tokenizer::Any,
        token_rules: &[],
        space_prefix: SpacePrefix::Tokenizer,
    };

    /// The same with layer norms.
    pub(super) const LAYER_NORMS: Checkpoint = Checkpoint {
        rms_eps: None,
        layer_eps: Some(1e-5),
        head_dim: HeadDim::Implied,
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    };

    /// The checkpoint's own name, in full, of the tensor that [`Checkpoint::names`] or the description calls `name`; of
    /// block `block`, if of one.
    #[cfg(feature = "convert")]
    pub(crate) fn full_name(&self, block: Option<u32>, name: &str) -> String {
        let root = self.root;
        match block {
            Some(n) => format!("{root}.{}.{n}.{name}", self.blocks),
            None if name.starts_with("lm_head.") || name.starts_with("embed_out.") => name.to_owned(),
            None => format!("{root}.{name}"),
        }
    }
}

/// The row of the checkpoint that becomes row `r` of the model where the two halves of each head, of `head` rows, are
/// interleaved ([`Arch::interleaves_heads`](super::Arch::interleaves_heads)): within a head, `0, d/2, 1, d/2 + 1, …`.
/// Without `head`, rows keep their places.
pub(crate) fn source_row(head: Option<u64>, r: u64) -> u64 {
    let Some(d) = head else { return r };
    let (head, i) = (r / d, r % d);
    head * d + (i % 2) * (d / 2) + i / 2
}
