//! How a Hugging Face checkpoint says what an architecture's model is.

use super::keys::{Key, TensorKey};
use super::parts::Group;
use super::steps::Step;

/// Meaning of `config.json`, the tokenizer's files and the weights for a family of model classes.
#[derive(Debug)]
pub struct Checkpoint {
    /// Model classes in `config.json`.
    pub classes: &'static [&'static str],
    /// A key of `config.json` that tells the checkpoints from others of the same class, which lack it.
    pub told_by: Option<&'static str>,
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
    /// Parts of the model that each have a list of as many blocks, one part's behind the other's.
    pub stacks: &'static [&'static str],
    /// Blocks of `config.json` that have no tensors and are none in the file.
    pub blocks_less: u32,
    /// True if there are two lists of blocks, those of `encoder` and of `decoder`: `decoder.block.0.NAME` is called
    /// `decoder.NAME` in lists of names.
    pub halves: bool,
    /// Names of one tensor that a checkpoint may have several times; the first that is there counts.
    pub copies: &'static [&'static str],
    /// Names of this class's own, and what they become.
    pub names: &'static [Name],
    /// Further names, as some classes share most of theirs.
    pub more_names: &'static [Name],
    /// Tensors of blocks that the file has although the graph does not read them.
    pub beside: Group,
    /// Tensors of the first block that its file has twice, by their names there: the second time, before the first, as others,
    /// which the checkpoint may have and which then count for nothing.
    pub first_twice: &'static [(&'static str, &'static str)],
    /// Keys that take numbers of tensors, which the file then lacks.
    pub tensor_keys: &'static [TensorKey],
    /// Gains of norms of heads that the checkpoint lacks, each with the tensor that it stands before and the number of
    /// `config.json` that all of its elements are; `None`: 1.
    pub gains: &'static [(&'static str, &'static str, Option<&'static str>)],
    /// Steps of tensors of these names, which are those of the lists above or of the description, on their way into the
    /// file.
    pub steps: &'static [(&'static str, &'static [Step])],
    /// Beginnings of the names of tensors that are no part of the text model.
    pub left_out: &'static [&'static str],
    /// How the rows of queries, keys and values stand in the one matrix that holds all of them; `None` where there are
    /// three.
    pub fused: Option<Fused>,
    /// Tensors keep the type of the checkpoint, and matrices of eight bits become Q8_0, whatever type was chosen.
    pub keeps_types: bool,
    /// Matrices of blocks have a row per input, not per output (GPT-2's `Conv1D`).
    pub transposed: bool,
    /// True if the elements of a head that RoPE turns together are neighbours in the checkpoint already.
    pub neighbours: bool,
    /// Tokens of the vocabulary assumed; `None` where `config.json` has to say.
    pub vocab: Option<u32>,
    /// Query heads assumed; `None` where `config.json` has to say. 0: the model has no attention.
    pub heads: Option<u32>,
    /// Key and value heads.
    pub kv_heads: KvHeads,
    /// Head size assumed.
    pub head_dim: HeadDim,
    /// Width of the feed-forward network.
    pub width: Width,
    /// Its names in `config.json`; the first that is there counts.
    pub width_names: &'static [&'static str],
    /// Names of the context length in `config.json`; the first that is there counts.
    pub context_names: &'static [&'static str],
    /// Context length assumed; 0: the width of the residual stream.
    pub context: u32,
    /// Positions of a stated context that no text has.
    pub positions_less: u32,
    /// Base of RoPE's frequencies assumed; 0: the file has none where `config.json` does not say it.
    pub rope_theta: f32,
    /// Further names of the base in `config.json`.
    pub rope_names: &'static [&'static str],
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
    /// Keys that follow those.
    pub last_keys: &'static [Key],
    /// Keys that stand before those of the model's name.
    pub first_keys: &'static [Key],
    /// Use of the folder of another model, for which models of the class draft.
    pub target: Target,
    /// Tensors outside of blocks that the description lacks, as what runs the model takes them by their names.
    pub beside_ends: Group,
    /// Truths of `config.json` and the tensors that count for nothing where these are false.
    pub only_with: &'static [(&'static str, &'static str)],
    /// Experts that may stand in MXFP4, by the names of their codes.
    pub packed: &'static [Name],
    /// Beginnings of names, and what is read in their place.
    pub beginnings: &'static [(&'static str, &'static str)],
    /// Which of the tokenizer's files count.
    pub tokenizer: Tokenizer,
    /// Keys of the tokenizer that follow from the size of the vocabulary, or from nothing.
    pub token_rules: &'static [TokenRule],
    /// Rule for the space that texts begin with.
    pub space_prefix: SpacePrefix,
    /// Kinds of special tokens with their texts, where the tokenizer's files do not name a token of the kind.
    pub special: &'static [(&'static str, &'static str)],
    /// Keys of the tokenizer that stand first.
    pub first_token_keys: &'static [TokenKey],
    /// Keys of the tokenizer that stand last, or correct what its files say.
    pub token_keys: &'static [TokenKey],
    /// Some models of the class have no experts.
    pub dense_too: bool,
    /// The output matrix is left out where it is the embedding, even if the checkpoint has both.
    pub tied_left_out: bool,
}

/// A key of the tokenizer that stands first or last, or corrects what its files say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKey {
    /// This token.
    Id(&'static str, u32),
    /// The added token with this text, where there is one.
    Added(&'static str, &'static str),
    /// The token that `config.json` has under this name.
    Stated(&'static str, &'static str),
    /// The same, or this number.
    StatedOr(&'static str, &'static str, u32),
    /// The chat template: that of `chat_template.jinja`, where there is one, before that of `tokenizer_config.json`.
    TemplateFile,
    /// The same, or that of `tokenizer_config.json`.
    Template,
    /// `token_type_count` where the tokenizer cuts words into pieces, first: a number of `config.json`, or 1.
    KindsOfWords(&'static str),
    /// The same where it does not: this number.
    KindsOfOthers(u32),
    /// Says that texts begin with a token, or do not.
    AddBos(bool),
    /// Says that something is so, or is not.
    Flag(&'static str, bool),
    /// The token that ends a turn: the first of several that `generation_config.json` calls ends of a text.
    FirstOfEnds,
    /// The token that ends a turn: the first of several that `config.json` calls ends of a text and that begins none.
    OtherEnd,
    /// The chat template, which llama.cpp's converter has where the checkpoint does not: a note says that the file lacks it.
    TemplateElsewhere,
}

/// Use of the folder of the model that another drafts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// None.
    None,
    /// Its tokenizer, read as that of the drafter's class: EAGLE-3.
    OwnRules,
    /// Its tokenizer, read as that of its own class: DFlash.
    ItsRules,
}

/// The name of a tensor in a checkpoint and its names in the model: one tensor, or several that share its rows, one
/// after the other (with experts: the rows of each). A `*` is a number: the tensors of all numbers are stacked in their
/// order. Names within a block stand without the block's prefix.
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
    /// The same, and the file states it only where `config.json` does.
    StatedAlone,
    /// This number, whatever `config.json` says.
    Fixed(u32),
    /// As many as query heads.
    Queries,
    /// One.
    One,
    /// One, and the file states it before other keys only where `config.json` states a number.
    OneWhereStated,
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
    /// A number of `config.json`.
    Stated(&'static str),
}

/// Width of the feed-forward network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Width {
    /// `intermediate_size`.
    Stated,
    /// Four times the width of the residual stream.
    Fourfold,
    /// Two thirds of that, rounded up to a multiple of 256: Refact.
    TwoThirds,
    /// Two thirds of `intermediate_size`: NeoBERT.
    TwoThirdsStated,
    /// `intermediate_size`, which may be a list of as many numbers as there are blocks, all the same.
    Alike,
    /// There is no such network in some models of the class, or the file has a list.
    StatedIfAny,
    /// `intermediate_size`, or where that is null the width of the residual stream times the first number, as many whole
    /// times the second as it holds.
    StatedOrTimes(f64, u32),
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
    /// A number of `config.json`.
    Stated(&'static str),
}

/// The kinds of `rope_scaling` that `config.json` may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeScaling {
    /// Yes.
    Any,
    /// Yes, and the dynamic one, which begins past the context that the model was trained with; no file states it.
    AnyOrDynamic,
    /// Two sets of divisors of the frequencies, for short contexts and long ones.
    ByContext,
    /// The same, and the other kinds; the file names the kind.
    Long,
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
    /// This text, or absent.
    Text(&'static str),
}

/// Which of the tokenizer's files count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tokenizer {
    /// `tokenizer.model`, or `tokenizer.json` where that is absent.
    Any,
    /// `tokenizer.json`, or `tokenizer.model` where that is absent.
    Json,
    /// `tokenizer.model`, whose tokens those of `tokenizer_config.json` replace as they are: Arctic.
    Arctic,
    /// The same, with those of `tokenizer.json`, unused tokens by their names, and a turn's end for that of a text:
    /// InternLM 2.
    InternLm2,
    /// `tokenizer.json`, BPE over characters that falls back to bytes; tokens of a chat that a program has to see are
    /// texts: Gemma 4.
    Gemma4,
    /// `sentencepiece.bpe.model`, a unigram model: XLM-RoBERTa.
    XlmRoberta,
    /// The same with a token for what is masked, which the model lacks: Nomic's models with experts.
    XlmRobertaMasked,
    /// `tokenizer.json`, whose tokens are pieces without scores: XVERSE.
    Xverse,
    /// `tokenizer.model` or `spiece.model`, a unigram model with its rules for characters: T5.
    T5,
    /// `tokenizer.jsonl`, pieces with scores: PLaMo 2 and 3.
    Plamo,
    /// `rwkv_vocab_v20230424.txt`, tokens of bytes: RWKV.
    Rwkv,
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
    /// The same, but for its place, which is last.
    ConfigLast,
    /// No text begins with a space, whatever the tokenizer's files say.
    Never,
}

impl Checkpoint {
    /// The assumptions of most classes.
    pub(super) const USUAL: Checkpoint = Checkpoint {
        classes: &[],
        told_by: None,
        activations: &["silu"],
        norms_plus_one: false,
        padded_embedding: false,
        latent: false,
        tied: false,
        root: "model",
        blocks: "layers",
        stacks: &[],
        blocks_less: 0,
        halves: false,
        copies: &[],
        names: &[],
        more_names: &[],
        beside: &[],
        first_twice: &[],
        tensor_keys: &[],
        gains: &[],
        keeps_types: false,
        steps: &[],
        left_out: &[],
        fused: None,
        transposed: false,
        neighbours: false,
        vocab: None,
        heads: None,
        kv_heads: KvHeads::Stated,
        head_dim: HeadDim::Quotient,
        width: Width::Stated,
        width_names: &["intermediate_size", "n_inner", "ffn_hidden_size"],
        context_names: &["max_position_embeddings", "n_ctx", "n_positions"],
        context: 2048,
        positions_less: 0,
        rope_theta: 10000.0,
        rope_names: &[],
        rotary: Rotary::Whole,
        rms_eps: Some(1e-6),
        layer_eps: None,
        rope_scaling: RopeScaling::Any,
        fixed: &[],
        keys: Key::USUAL,
        more_keys: &[],
        last_keys: &[],
        first_keys: &[],
        target: Target::None,
        beside_ends: &[],
        only_with: &[],
        packed: &[],
        beginnings: &[],
        tokenizer: Tokenizer::Any,
        token_rules: &[],
        space_prefix: SpacePrefix::Tokenizer,
        special: &[],
        first_token_keys: &[],
        token_keys: &[],
        tied_left_out: false,
        dense_too: false,
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
        let root = if self.root.is_empty() { String::new() } else { format!("{}.", self.root) };
        if self.halves {
            return match (block, name.split_once('.')) {
                (Some(n), Some((half, name))) => format!("{half}.{}.{n}.{name}", self.blocks),
                _ => name.to_owned(),
            };
        }
        match block {
            Some(n) if !self.stacks.is_empty() => format!("{root}*.{}.{n}.{name}", self.blocks),
            Some(n) => format!("{root}{}.{n}.{name}", self.blocks),
            None if name.starts_with("lm_head.") || name.starts_with("embed_out.") => name.to_owned(),
            None => format!("{root}{name}"),
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
