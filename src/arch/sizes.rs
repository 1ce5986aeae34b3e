//! The sizes of one model, which give every extent its number.

use super::tensor::{Extent, Tensor};

/// The sizes of one model, which give every extent its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Tokens of the vocabulary.
    pub vocab: u64,
    /// Width of the residual stream.
    pub embd: u64,
    /// Width of the feed-forward network.
    pub ff: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of a query or key head.
    pub head_dim: u64,
    /// Elements of a value head.
    pub value_dim: u64,
    /// Elements of a head that RoPE turns.
    pub rope_dim: u64,
    /// Experts of a block; 0 without a mixture.
    pub experts: u64,
    /// Experts that a token goes to.
    pub experts_used: u64,
    /// Width of one expert's feed-forward network.
    pub expert_ff: u64,
    /// Width of what experts see and give: that of the residual stream, or a narrower one.
    pub expert_embd: u64,
    /// Width of the feed-forward network of the expert that all tokens go to; 0 without one.
    pub shared_ff: u64,
    /// Experts that groups of others have in common.
    pub chunks: u64,
    /// Width of the feed-forward network of one of them.
    pub chunk_ff: u64,
    /// Positions of the context the model was trained with.
    pub context: u64,
    /// Residual streams side by side; 0 where there is one.
    pub streams: u64,
    /// Kinds of tokens of which each has a vector; 0 where there are none.
    pub token_types: u64,
    /// Buckets of distances; 0 without biases by them.
    pub buckets: u64,
    /// Rows of an up projection that may hold the gate's too.
    pub up: u64,
    /// Outputs of the head of a ranking model.
    pub classes: u64,
    /// Width between the two projections behind the pooling; 0 without them.
    pub projected: u64,
    /// Elements of the vector that gates on residual streams are made of; 0 without any.
    pub stream_rank: u64,
    /// A token's vector for a block: its elements, those of all blocks; zeros without one.
    pub layer_input: [u64; 2],
    /// Embeddings of n-grams: rows of their table, elements of a row, and positions that their convolution sees.
    pub ngrams: [u64; 3],
    /// Groups of query heads whose outputs are projected to a narrow vector each; 0 where there are none.
    pub output_groups: u64,
    /// Elements of that vector.
    pub output_rank: u64,
    /// Adapters in the file of the model, one that adds nothing included, and the elements of the vector that they make of
    /// their inputs; zeros without any.
    pub slots: [u64; 2],
    /// Latent attention; zeros without it.
    pub latent: Latent,
    /// Layers with a recurrent state; zeros without any.
    pub recurrent: Recurrent,
    /// The narrow vectors of RWKV; zeros without them.
    pub rwkv: Rwkv,
}

/// Elements of the narrow vectors that RWKV's factors are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rwkv {
    /// For the shares of the position before.
    pub mix: usize,
    /// For the decays.
    pub decay: usize,
    /// For the rates.
    pub rate: usize,
    /// For the shares of the first block's values.
    pub value: usize,
    /// For the gates.
    pub gate: usize,
}

impl Rwkv {
    /// None.
    pub const NONE: Rwkv = Rwkv { mix: 0, decay: 0, rate: 0, value: 0, gate: 0 };
}

/// Sizes of latent attention: queries, and keys and values, are made of narrow vectors that all heads share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latent {
    /// Elements of the vector that queries are made of; 0 where they are made of the block's input.
    pub query_rank: usize,
    /// Elements of the vector that keys and values are made of.
    pub rank: usize,
    /// Elements of a key and of a query of one head.
    pub key: usize,
    /// Elements of a value of one head.
    pub value: usize,
    /// The last elements of a key, which RoPE turns and all heads share.
    pub rope: usize,
    /// True if the KV cache holds the latent vector instead of keys and values: the queries are multiplied by the
    /// matrix that would expand it to keys, and the output of attention by the one that expands it to values.
    pub absorbed: bool,
}

/// Sizes of layers with a recurrent state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recurrent {
    /// Positions that a convolution sees, its own included.
    pub kernel: usize,
    /// Channels.
    pub inner: usize,
    /// Numbers of a channel's state.
    pub state: usize,
    /// Heads: channels that decay together; for Mamba 1 elements of the vector that time steps are made of.
    pub heads: usize,
    /// Groups of heads that share what writes the state and reads it.
    pub groups: usize,
    /// Elements of the vector that PLaMo's time steps are made of.
    pub time: usize,
}

impl Latent {
    /// No latent attention.
    pub const NONE: Latent = Latent { query_rank: 0, rank: 0, key: 0, value: 0, rope: 0, absorbed: false };

    /// The first elements of a key, which RoPE leaves alone.
    pub const fn still(&self) -> usize {
        self.key.saturating_sub(self.rope)
    }
}

impl Recurrent {
    /// No such layers.
    pub const NONE: Recurrent = Recurrent { kernel: 0, inner: 0, state: 0, heads: 0, groups: 0, time: 0 };

    /// Number of channels of the convolution: the inner ones, and `b` and `c` of every group, which write and read the
    /// state.
    pub const fn channels(&self) -> usize {
        self.inner + 2 * self.groups * self.state
    }
}

impl Sizes {
    /// The number that an extent stands for; products of absurd sizes saturate.
    pub const fn extent(&self, extent: Extent) -> u64 {
        match extent {
            Extent::Vocab => self.vocab,
            Extent::Embd => self.embd,
            Extent::TwiceEmbd => self.embd.saturating_mul(2),
            Extent::Ff => self.ff,
            Extent::TwiceFf => self.ff.saturating_mul(2),
            Extent::HalfFf => self.ff / 2,
            Extent::Q => self.heads.saturating_mul(self.head_dim),
            Extent::QAndGates => self.heads.saturating_mul(2 * self.head_dim),
            Extent::Keys => self.kv_heads.saturating_mul(self.head_dim),
            Extent::Values => self.kv_heads.saturating_mul(self.value_dim),
            Extent::Outputs => self.heads.saturating_mul(self.value_dim),
            Extent::QueriesKeysValues => {
                let turned = self.heads.saturating_add(self.kv_heads).saturating_mul(self.head_dim);
                turned.saturating_add(self.kv_heads.saturating_mul(self.value_dim))
            }
            Extent::Head => self.head_dim,
            Extent::TwiceHead => self.head_dim.saturating_mul(2),
            Extent::HeadPairs => self.head_dim / 2,
            Extent::Heads => self.heads,
            Extent::KvHeads => self.kv_heads,
            Extent::One => 1,
            Extent::Context => self.context,
            Extent::RopePairs => self.rope_dim / 2,
            Extent::Experts => self.experts,
            Extent::ExpertsUsed => self.experts_used,
            Extent::ExpertFf => self.expert_ff,
            Extent::ExpertEmbd => self.expert_embd,
            Extent::TwiceExpertFf => self.expert_ff.saturating_mul(2),
            Extent::Chunks => self.chunks,
            Extent::ChunkFf => self.chunk_ff,
            Extent::SharedFf => self.shared_ff,
            Extent::TwiceSharedFf => self.shared_ff.saturating_mul(2),
            Extent::QueryRank => self.latent.query_rank as u64,
            Extent::KvRank => self.latent.rank as u64,
            Extent::KvRankAndRope => (self.latent.rank + self.latent.rope) as u64,
            Extent::LatentStill => self.latent.still() as u64,
            Extent::LatentRope => self.latent.rope as u64,
            Extent::LatentValue => self.latent.value as u64,
            Extent::LatentQueries => self.heads.saturating_mul(self.latent.key as u64),
            Extent::LatentValues => self.heads.saturating_mul(self.latent.value as u64),
            Extent::LatentKeysAndValues => {
                let of_head = self.latent.still() + self.latent.value;
                self.heads.saturating_mul(of_head as u64)
            }
            Extent::Streams => self.streams,
            Extent::TwiceStreams => self.streams.saturating_mul(2),
            Extent::StreamMixes => self.streams.saturating_mul(self.streams.saturating_add(2)),
            Extent::StreamPairs => self.streams.saturating_mul(self.streams),
            Extent::OtherStreams => self.streams.saturating_sub(1),
            Extent::LayerInput => self.layer_input[0],
            Extent::LayerInputs => self.layer_input[1],
            Extent::StreamRank => self.stream_rank,
            Extent::NgramRows => self.ngrams[0],
            Extent::NgramSize => self.ngrams[1],
            Extent::NgramKernel => self.ngrams[2],
            Extent::StreamsTimesEmbd => self.streams.saturating_mul(self.embd),
            Extent::Two => 2,
            Extent::Slots => self.slots[0],
            Extent::SlotRank => self.slots[1],
            Extent::Buckets => self.buckets,
            Extent::TokenTypes => self.token_types,
            Extent::UpOrBoth => self.up,
            Extent::Classes => self.classes,
            Extent::Projected => self.projected,
            Extent::Fixed(n) => n,
            Extent::OutputGroups => self.output_groups,
            Extent::OutputGroup => match self.output_groups {
                0 => 0,
                groups => self.heads.saturating_mul(self.head_dim) / groups,
            },
            Extent::OutputRank => self.output_rank,
            Extent::OutputRanks => self.output_groups.saturating_mul(self.output_rank),
            Extent::ThriceQ => self.heads.saturating_mul(self.head_dim.saturating_mul(3)),
            Extent::ThriceEmbd => self.embd.saturating_mul(3),
            Extent::Kernel => self.recurrent.kernel as u64,
            Extent::Inner => self.recurrent.inner as u64,
            Extent::TwiceInner => 2 * self.recurrent.inner as u64,
            Extent::Channels => self.recurrent.channels() as u64,
            Extent::GateChannelsTimes => {
                let Recurrent { inner, heads, .. } = self.recurrent;
                (inner + self.recurrent.channels() + heads) as u64
            }
            Extent::ChannelsAndGates => (self.recurrent.channels() + self.recurrent.inner) as u64,
            Extent::TwiceStateHeads => 2 * self.recurrent.heads as u64,
            Extent::State => self.recurrent.state as u64,
            Extent::StateHeads => self.recurrent.heads as u64,
            Extent::StateGroups => self.recurrent.groups as u64,
            Extent::InnerOfGroup => match self.recurrent.groups {
                0 => 0,
                groups => (self.recurrent.inner / groups) as u64,
            },
            Extent::StateKeys => self.recurrent.groups.saturating_mul(self.recurrent.state) as u64,
            Extent::MixRank => self.rwkv.mix as u64,
            Extent::FiveMixRanks => 5 * self.rwkv.mix as u64,
            Extent::DecayRank => self.rwkv.decay as u64,
            Extent::RateRank => self.rwkv.rate as u64,
            Extent::ValueRank => self.rwkv.value as u64,
            Extent::GateRank => self.rwkv.gate as u64,
            Extent::Time => self.recurrent.time as u64,
            Extent::TimeAndStates => (self.recurrent.time + 2 * self.recurrent.state) as u64,
        }
    }

    /// The shape of a tensor, outermost extent first as in a checkpoint.
    pub fn shape(&self, tensor: &Tensor) -> Vec<u64> {
        tensor.shape.iter().map(|&e| self.extent(e)).collect()
    }

    /// The shape of a tensor, innermost extent first as in GGUF.
    pub fn gguf_shape(&self, tensor: &Tensor) -> Vec<u64> {
        tensor.shape.iter().rev().map(|&e| self.extent(e)).collect()
    }
}
