//! Keys of a GGUF file, and where a checkpoint has them.

use super::joined::joined;

/// A key of the GGUF file, as [`Checkpoint::keys`](super::checkpoint::Checkpoint::keys) lists them. Names of keys stand without the architecture in front.
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
    /// `attention.causal`, where `is_causal` is false.
    Causal,
    /// `rope.scaling.*`, where positions are scaled by a rule.
    RopeScaling,
    /// `rope.dimension_sections`, where `mrope_section` says how pairs share the dimensions of positions.
    Sections,
    /// `rope.scaling.original_context_length`.
    OriginalContext,
    /// `rope.freq_base`, where it is said or the class has one, and the base in layers with a window where there is one.
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
    /// `expert_group_count` and `expert_group_used_count`, where they are said.
    ExpertGroups,
    /// `expert_gating_func`, where it is named.
    Gating,
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
    /// The same where there is a `sliding_window`.
    WindowLayersIfAny,
    /// A number of `config.json`, the key that takes it, and what is assumed; a 0 is not written.
    Number(&'static str, &'static str, f32),
    /// The same for truth, which is always written.
    Flag(&'static str, &'static str, bool),
    /// The same where it is said.
    FlagIf(&'static str, &'static str),
    /// The same where it is true.
    FlagIfTrue(&'static str, &'static str),
    /// A list of truths, one for every block, where it is there.
    Flags(&'static str, &'static str),
    /// A whole number of `config.json` under the first of its names that is there, and the key that takes it.
    Whole(&'static [&'static str], &'static str),
    /// The same with what is assumed.
    WholeOr(&'static [&'static str], &'static str, u32),
    /// The product of two whole numbers.
    Product(&'static [&'static str], &'static [&'static str], &'static str),
    /// The quotient of two whole numbers.
    Quotient(&'static [&'static str], &'static [&'static str], &'static str),
    /// The sum of two whole numbers.
    Sum(&'static [&'static str], &'static [&'static str], &'static str),
    /// A number of `config.json` that need not be whole, and the key that takes it.
    Fraction(&'static [&'static str], &'static str),
    /// The same with what is assumed; a 0 is written.
    FractionOr(&'static [&'static str], &'static str, f64),
    /// A number of `config.json`, or the one assumed, times this.
    Scaled(&'static [&'static str], &'static str, f64, f64),
    /// The number of entries of a list, 0 without one.
    CountOf(&'static str, &'static str),
    /// `attention.key_length` and `attention.value_length`, where `config.json` does not say them.
    HeadSizesIfUnsaid,
    /// The first number of a list whose numbers are all the same.
    FirstOf(&'static str, &'static str),
    /// A key and its number.
    Constant(&'static str, u32),
    /// The same for a number that need not be whole.
    ConstantNumber(&'static str, f32),
    /// The same for truth.
    ConstantFlag(&'static str, bool),
    /// `rope.dimension_sections` where nothing is said of them.
    SectionsOr([i32; 4]),
    /// `nextn_predict_layers`: none, where `config.json` has this number, or always; such layers are left out.
    NoFurther(&'static str),
    /// `attention.head_count_kv` of every block: 0 but in those that two numbers name, the first and the distance.
    KvHeadsEvery(&'static str, &'static str),
    /// A number of `config.json` in the blocks whose letter in a pattern is this, and 0 in others.
    ByPattern(&'static str, char, &'static [&'static str], &'static str),
    /// A number of every entry of `block_configs`, 0 where one has none.
    OfBlocks(&'static str, &'static str),
    /// The part of a head that RoPE turns, as elements.
    TurnedPart(&'static str, &'static str),
    /// `diffusion.shift_logits`: no.
    NoShift,
    /// `tokenizer.ggml.*` takes this number.
    OwnToken(&'static str, u32),
    /// A number for every block: that of `config.json`, or this one.
    PerBlock(&'static str, &'static str, f32),
    /// Leading blocks that `mlp_layer_types` calls dense.
    LeadingDense,
    /// `residual_scale`: the first number divided by the root of the number of blocks.
    DepthScale(&'static str),
    /// `logit_scale`: the width of the residual stream divided by a number.
    WidthRatio(&'static str),
    /// `ssm.*`, the layers with a recurrent state and the interval of the others, for Gated DeltaNet.
    Delta,
    /// `attention.head_count_kv` of every block: 0 where `layer_types` names the kind given.
    KvHeadsBut(&'static str),
    /// `pooling_type`, where `modules.json` names one.
    Pooling,
    /// `tokenizer.ggml.*` takes a number of `config.json`.
    Token(&'static str, &'static str),
    /// The base of RoPE's frequencies stretched by `alpha`, where `rope_scaling` is of a type given; with the context
    /// of the model that was trained so, where the second says it.
    Stretched(f64, Option<u32>),
    /// `rope.scaling.yarn_log_multiplier`: `mscale_all_dim` times this.
    YarnLog(f64),
    /// A key and its text.
    Text(&'static str, &'static str),
    /// A linear scaling of positions by 1, which llama.cpp's loader asks for.
    UnitScaling,
    /// `tokenizer.ggml.*` is true or false.
    TokenFlag(&'static str, bool),
    /// `tokenizer.ggml.suppress_tokens`, where `generation_config.json` names tokens that never come.
    Suppressed,
    /// A text of `config.json`, where it is there.
    Copied(&'static str, &'static str),
    /// The number of a pooling that `config.json` names, where it does.
    NamedPooling(&'static str, &'static str),
    /// `classifier.output_labels`: the texts of `id2label`, where there are any but the two that nobody chose.
    Labels,
    /// For every block: is its entry in a list of texts this one? Where there is such a list.
    Kinds(&'static str, &'static str, &'static str),
    /// A list of whole numbers, where it is there.
    Numbers(&'static str, &'static str),
    /// The same, or as many times the number given last.
    NumbersOr(&'static str, &'static str, &'static str),
    /// A number for every block: of the first two lists of names in blocks that `layer_types` calls the kind given, of the
    /// second in others; the first name that is there counts. Where both are said.
    ByKind(&'static str, [&'static [&'static str]; 2], &'static str),
    /// `attention.sliding_window_pattern`: blocks that `layer_types` calls sliding. A list has to say that these turn
    /// whole heads, and others half of them, where it is there.
    WindowLayersTurned(&'static str),
    /// `feed_forward_length` of every block where a truth is said: twice as wide in the last ones, of this number.
    DoubleWidth(&'static str, &'static str),
    /// `leading_dense_block_count`: the least number in a text of numbers with commas between them.
    LeadingOf(&'static str),
    /// A list of bounds, 0 where an entry is empty, where it is there.
    Limits(&'static str, &'static str),
    /// `leading_dense_block_count`: zeros that a list begins with.
    LeadingZeros(&'static str),
    /// `attention.head_count_kv` of every block: the number given last where a list has a 1.
    KvHeadsByPattern(&'static str, &'static str),
    /// `attention.head_count_kv` of every block: 0 but in those that a list names, counted from 1.
    KvHeadsIn(&'static str),
    /// `attention.head_count_kv` of every block: 0 but in the last one of every group of so many, and behind the last
    /// group.
    KvHeadsOfGroups(&'static str),
    /// A whole number, or the first of these in models that are at least 4096 wide, the second in others.
    ByWidth(&'static str, &'static str, [u32; 2]),
    /// A number for every block: 0 in those with Mamba, which stand as PLaMo 2's `mamba_step` says; else that of
    /// `config.json`, or this one.
    AttendsBySteps(&'static str, &'static str, u32),
    /// A list of whole numbers of any length.
    AllOf(&'static str, &'static str),
    /// A list of whole numbers, one for every block, where `config.json` has a list.
    IfList(&'static str, &'static str),
    /// The numbers of deviations that keep the parts of gates which a list names: 0.95, or 0 for all.
    Cutoffs(&'static str, &'static str),
    /// `context_length` of models that were trained with fewer positions than they may have: the third number, for the
    /// numbers of the two keys.
    TrainedContext(&'static str, &'static str, &'static [[u32; 3]]),
    /// `rope.*` for positions of several dimensions with a base that the engine stretches (`xdrope`).
    TurnedByAxes,
    /// A number of `config.json` in blocks that `layer_types` calls the kind given, and 0 in others.
    InKind(&'static str, &'static str, &'static str),
    /// The keys of a drafter that reads inputs of another model's blocks token by token: EAGLE-3.
    DraftsByStates,
    /// The same of one that drafts several tokens at once: DFlash.
    DraftsByBlocks,
    /// `feed_forward_length` of every block: the width of the residual stream times the numbers of a list, rounded to a
    /// multiple of another number (OpenELM's `make_divisible`).
    WidthsOf(&'static str, &'static str),
    /// The rank of a product of two matrices under one of its names, or where it is null the width of the residual stream to
    /// the power of the first number times the second, in 32s.
    Rank(&'static [&'static str], &'static str, f64, f64),
    /// `dense_2_feat_in` and its like: the widths of projections of vectors, where they are converted.
    Dense,
    /// The chat template, which that of the tokenizer's files replaces.
    Template(&'static str),
    /// `attention.head_count` of every block, by its entry of `block_configs`: 0 where it does not attend and has no matrix
    /// in the place of attention.
    BlockHeads,
    /// The same of key heads, 0 where it does not attend.
    BlockKvHeads,
    /// `feed_forward_length` of every block, by its entry of `block_configs`: 0 where it has no such network.
    BlockWidths,
    /// `ple.*` and the size of a row of the table, where a block adds embeddings of n-grams.
    Ngrams,
}

/// A key that takes numbers of tensors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TensorKey {
    /// The one number of a tensor of every block.
    OfBlocks(&'static str, &'static str),
    /// The largest bias of ALiBi, from its slopes.
    Slopes(&'static str, &'static str),
    /// The one number of a tensor outside of blocks.
    OfEnd(&'static str, &'static str),
}

impl Key {
    /// The first keys that llama.cpp's converter writes for most classes.
    const FIRST: &'static [Key] = &[
        Key::Blocks,
        Key::Context,
        Key::Embedding,
        Key::FeedForward,
        Key::Heads,
        Key::KvHeads,
        Key::Causal,
        Key::RopeScaling,
        Key::Sections,
        Key::RopeBase,
        Key::RmsEpsilon,
    ];

    /// The same without the width of a feed-forward network, which models of experts alone lack.
    pub(super) const USUAL_SHAPES: &'static [Key] = &[
        Key::Blocks,
        Key::Context,
        Key::Embedding,
        Key::Heads,
        Key::KvHeads,
        Key::RopeScaling,
        Key::RopeBase,
        Key::RmsEpsilon,
    ];

    /// Those of experts behind them.
    pub(super) const OF_EXPERTS: &'static [Key] = &[Key::Experts, Key::ExpertsUsed, Key::ExpertGroups, Key::Gating];

    /// The keys that llama.cpp's converter writes for most classes.
    pub(super) const USUAL: &'static [Key] =
        joined!(Key::FIRST, &[Key::LayerEpsilon], Key::OF_EXPERTS, &[Key::HeadSizes, Key::FileType]);

    /// The same without sizes of heads and the epsilon of layer norms.
    pub(super) const USUAL_BUT_HEADS: &'static [Key] = joined!(Key::FIRST, Key::OF_EXPERTS, &[Key::FileType]);

    /// The same without groups of experts.
    pub(super) const USUAL_UNGROUPED: &'static [Key] = &[
        Key::Blocks,
        Key::Context,
        Key::Embedding,
        Key::FeedForward,
        Key::Heads,
        Key::KvHeads,
        Key::RopeScaling,
        Key::RopeBase,
        Key::RmsEpsilon,
        Key::Experts,
        Key::ExpertsUsed,
        Key::Gating,
        Key::HeadSizes,
        Key::FileType,
    ];
}
