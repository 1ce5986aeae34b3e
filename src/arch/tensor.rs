//! A tensor of a model: its name in GGUF and in a checkpoint, its extents, its role.

/// The beginnings of the names of tensors of encoders, and of decoders beside them.
const HALVES: [&str; 2] = ["enc.", "dec."];

/// The name in a file of the tensor that descriptions call `gguf`, of a block or of none.
pub fn full_name(block: Option<usize>, gguf: &str) -> String {
    let Some(block) = block else {
        return gguf.to_owned();
    };
    match HALVES.iter().find(|half| gguf.starts_with(*half)) {
        Some(half) => format!("{half}blk.{block}.{}", &gguf[half.len()..]),
        None => format!("blk.{block}.{gguf}"),
    }
}

/// An extent, by what it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Extent {
    /// Tokens of the vocabulary.
    Vocab,
    /// Width of the residual stream.
    Embd,
    /// Twice that: two rows side by side.
    TwiceEmbd,
    /// Width of the feed-forward network.
    Ff,
    /// Twice that: gate and up projection in one matrix.
    TwiceFf,
    /// Half of it: Qwen 1 counts gate and up.
    HalfFf,
    /// All query heads.
    Q,
    /// All query heads, and a gate on each of their elements.
    QAndGates,
    /// All key heads.
    Keys,
    /// All value heads.
    Values,
    /// The outputs of all query heads, which have the size of values.
    Outputs,
    /// All heads of queries, keys and values.
    QueriesKeysValues,
    /// One head.
    Head,
    /// Two numbers for each of its elements.
    TwiceHead,
    /// Pairs of its elements.
    HeadPairs,
    /// Query heads by number.
    Heads,
    /// Key or value heads by number.
    KvHeads,
    /// A single number.
    One,
    /// Positions of the context the model was trained with.
    Context,
    /// Pairs of elements that RoPE turns.
    RopePairs,
    /// Experts of a block.
    Experts,
    /// Experts that a token goes to.
    ExpertsUsed,
    /// Width of one expert's feed-forward network.
    ExpertFf,
    /// Twice that.
    TwiceExpertFf,
    /// Width of what experts see and give.
    ExpertEmbd,
    /// Experts that groups of others have in common.
    Chunks,
    /// Width of the feed-forward network of one of them.
    ChunkFf,
    /// Width of the feed-forward network of the expert that all tokens go to.
    SharedFf,
    /// Twice that.
    TwiceSharedFf,
    /// Elements of the vector that queries are made of.
    QueryRank,
    /// Elements of the vector that keys and values are made of.
    KvRank,
    /// Those, and the elements of a key that RoPE turns.
    KvRankAndRope,
    /// The elements of a key that RoPE leaves alone.
    LatentStill,
    /// The elements of a key that RoPE turns.
    LatentRope,
    /// Elements of a value of one head.
    LatentValue,
    /// Queries of all heads.
    LatentQueries,
    /// Values of all heads.
    LatentValues,
    /// Keys, but for what RoPE turns, and values of all heads.
    LatentKeysAndValues,
    /// Two numbers.
    Two,
    /// Adapters in the file of the model, and one that adds nothing.
    Slots,
    /// Elements of the vector that they make of their inputs.
    SlotRank,
    /// Buckets of distances.
    Buckets,
    /// Kinds of tokens of which each has a vector.
    TokenTypes,
    /// Rows of an up projection that may hold the gate's too.
    UpOrBoth,
    /// Outputs of the head of a ranking model.
    Classes,
    /// Width between the two projections behind the pooling.
    Projected,
    /// This number.
    Fixed(u64),
    /// Residual streams side by side, by number.
    Streams,
    /// Two numbers for each of them.
    TwiceStreams,
    /// The same, and one for each pair of them.
    StreamMixes,
    /// One for each of them and each.
    StreamPairs,
    /// Residual streams but the first, by number.
    OtherStreams,
    /// All of their elements.
    StreamsTimesEmbd,
    /// Elements of the vector that the gates on them are made of.
    StreamRank,
    /// Elements of a token's vector for a block.
    LayerInput,
    /// The same for all blocks.
    LayerInputs,
    /// Rows of the table of n-grams.
    NgramRows,
    /// Elements of such a row.
    NgramSize,
    /// Positions that the convolution of their values sees.
    NgramKernel,
    /// Groups of query heads whose outputs are projected together.
    OutputGroups,
    /// Elements of the outputs of a group.
    OutputGroup,
    /// Elements of the vector that they are projected to.
    OutputRank,
    /// The same of all groups.
    OutputRanks,
    /// Three times all query heads.
    ThriceQ,
    /// Three times the width of the residual stream.
    ThriceEmbd,
    /// Positions that a convolution sees.
    Kernel,
    /// Channels of a recurrent layer.
    Inner,
    /// Twice that: channels, and the gates on them.
    TwiceInner,
    /// Channels, and what writes and reads the state of every group.
    Channels,
    /// Gates, those, and a time step for every head.
    GateChannelsTimes,
    /// Those and gates.
    ChannelsAndGates,
    /// Numbers of a channel's state.
    State,
    /// Heads of a recurrent layer.
    StateHeads,
    /// Twice that.
    TwiceStateHeads,
    /// Groups of its heads.
    StateGroups,
    /// Channels of a group.
    InnerOfGroup,
    /// Elements of the vector that the shares of the position before are made of.
    MixRank,
    /// Five times that.
    FiveMixRanks,
    /// Keys, and values, of all heads.
    StateKeys,
    /// Elements of the vector that decays are made of.
    DecayRank,
    /// Elements of the vector that rates are made of.
    RateRank,
    /// Elements of the vector that shares of the first block's values are made of.
    ValueRank,
    /// Elements of the vector that gates are made of.
    GateRank,
    /// Elements of the vector that time steps are made of.
    Time,
    /// Those, and what writes and reads the state.
    TimeAndStates,
}

/// The role of a tensor, from which its type and the range of its values follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Role {
    /// The token embedding.
    Embedding,
    /// The output matrix.
    Output,
    /// A matrix of attention or feed-forward network whose inputs are whole (q, k, v, gate, up).
    ByRows,
    /// One whose inputs are split over ranks where a model is trained in parallel (o, down).
    ByColumns,
    /// The matrix that scores experts; it stays in floats.
    Router,
    /// Gains of a norm.
    Norm,
    /// The gains, all 1, of a norm without any: no file has them.
    PlainNorm,
    /// One number per output of a matrix.
    Bias,
    /// Divisors of RoPE's frequencies.
    RopeFactors,
    /// A vector for every position.
    Positions,
    /// Numbers of another kind, one per head or element.
    Vector,
}

impl Role {
    /// True if activations are multiplied by weights of this role, as by a matrix of a block.
    pub const fn is_matrix(self) -> bool {
        matches!(self, Role::ByRows | Role::ByColumns | Role::Router)
    }
}

/// One tensor: of the model, or of every block.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// Name in GGUF, for those of a block without `blk.N.`; `enc.REST` stands for `enc.blk.N.REST`.
    pub gguf: &'static str,
    /// Name in a Hugging Face checkpoint of LLaMA's kind without `model.`, for those of a block without
    /// `model.layers.N.`; empty where such a checkpoint has no such tensor. Classes may have names of their own
    /// ([`Checkpoint::names`](super::Checkpoint::names)).
    pub hf: &'static str,
    /// Extents, outermost first: rows and columns, or the length.
    pub shape: &'static [Extent],
    /// Its role.
    pub role: Role,
    /// The name that the interpreter knows it by, where that is not the one in GGUF: some architectures call the norm
    /// before the feed-forward network by another's name.
    pub stands_for: &'static str,
    /// True if a model without it is damaged.
    pub required: bool,
    /// Rows of each head are paired for RoPE: the first half with the second in the checkpoint, neighbours in GGUF
    /// where [`Pairing::Adjacent`](crate::arch::Pairing) turns them.
    pub rope_rows: bool,
}

impl Tensor {
    /// A required tensor.
    pub const fn new(gguf: &'static str, hf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
        Tensor { gguf, hf, shape, role, stands_for: "", required: true, rope_rows: false }
    }

    /// The same, where models may lack it.
    pub const fn optional(self) -> Tensor {
        Tensor { required: false, ..self }
    }

    /// The same tensor, standing for the one named `place`.
    pub const fn stands_for(self, place: &'static str) -> Tensor {
        Tensor { stands_for: place, ..self }
    }

    /// The name that the interpreter knows it by.
    pub const fn place(&self) -> &'static str {
        if self.stands_for.is_empty() { self.gguf } else { self.stands_for }
    }

    /// The same, with rows that RoPE pairs.
    pub const fn rope_rows(self) -> Tensor {
        Tensor { rope_rows: true, ..self }
    }
}
