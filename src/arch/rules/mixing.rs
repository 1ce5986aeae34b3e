//! Operations that mix the positions of a sequence.

/// The operations that mix the positions of a sequence, block by block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mixing {
    /// Attention in every block.
    Attention,
    /// A recurrent layer in every block.
    Recurrent(Recurrence),
    /// A recurrent layer in blocks whose `attention.head_count_kv` is 0, attention in others.
    ByHeads(Recurrence),
    /// The same; a block has either this or a feed-forward network, whose width is 0 then.
    ByHeadsAlone(Recurrence),
    /// In blocks without query heads nothing, in those with query heads and without keys the recurrent layer, attention in
    /// others. A block whose `feed_forward_length` is 0 does nothing.
    ByHeadsOrNone(Recurrence),
    /// A recurrent layer in blocks that the list `attention.recurrent_layers` names; without it attention in every
    /// fourth (every eighth beside lightning attention), or as `full_attention_interval` says.
    ByPattern(Recurrence),
    /// Both in every block: they read the same input, and their outputs are added.
    Both(Recurrence),
}

/// The kind of a recurrent layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recurrence {
    /// A matrix, which sees one position alone and keeps no state: Llama Nemotron's linear attention.
    Matrix,
    /// A gated convolution over a few positions: LFM 2.
    Convolution,
    /// Mamba 1: every number of a channel's state decays at its own rate.
    Mamba,
    /// Mamba 2: a head's states decay together.
    Mamba2,
    /// PLaMo 2: Mamba 2's states, with projections as in Mamba 1.
    Plamo,
    /// Gated DeltaNet, where heads that share a key follow each other: Qwen 3 Next.
    DeltaNeighbours,
    /// The same, where all keys have their turn before the first comes again: Qwen 3.5.
    DeltaTurns,
    /// The same, where the gates on the outputs go through the sigmoid instead of SiLU: Qwen 4.
    DeltaSigmoid,
    /// Kimi Delta Attention: every row of a head's state decays by itself.
    Kimi,
    /// The same with decays between 0 and the key `kda.gate_lower_bound`: Ling 3.
    Bounded,
    /// The same where the file has that key, and as [`Recurrence::Kimi`] where it has not: the factors of the decays
    /// are negative in either case. Kimi K3.
    BoundedByRate,
    /// The same, where queries and keys are scaled to length 1 with an epsilon of 1e-6: GLM 5.3 Flash.
    BoundedOfLength,
    /// RWKV 6, whose blocks have mixers of channels beside it.
    Rwkv6,
    /// RWKV 7, the same.
    Rwkv7,
    /// The mixer of positions of RWKV 7, beside gated networks: ARWKV.
    Rwkv7Alone,
    /// The mixer of positions of RWKV 6 as QRWKV has it, beside gated networks: keys that several heads share, and
    /// neither norms of heads nor factors on what a position itself adds.
    Rwkv6Alone,
    /// Linear attention whose past decays by the head and the layer: MiniMax 01.
    Lightning,
}

impl Recurrence {
    /// True for RWKV, whose blocks have norms and a second mixer of their own.
    pub const fn is_rwkv(self) -> bool {
        matches!(self, Recurrence::Rwkv6 | Recurrence::Rwkv7)
    }

    /// True for RWKV's mixers of positions in blocks that are usual otherwise.
    pub const fn is_rwkv_alone(self) -> bool {
        matches!(self, Recurrence::Rwkv6Alone | Recurrence::Rwkv7Alone)
    }

    /// True for the kinds of Gated DeltaNet.
    pub const fn is_delta(self) -> bool {
        use Recurrence::{DeltaNeighbours, DeltaSigmoid, DeltaTurns};
        matches!(self, DeltaNeighbours | DeltaSigmoid | DeltaTurns)
    }

    /// True for the kinds whose factors of decays are negative, whether the decays are bounded or not.
    pub const fn has_negative_factors(self) -> bool {
        matches!(self, Recurrence::BoundedByRate | Recurrence::BoundedOfLength)
    }

    /// True for the kinds of Kimi Delta Attention.
    pub const fn is_kimi(self) -> bool {
        use Recurrence::{Bounded, BoundedByRate, BoundedOfLength, Kimi};
        matches!(self, Kimi | Bounded | BoundedByRate | BoundedOfLength)
    }
}

impl Mixing {
    /// The kind of the recurrent layers, where there are any.
    pub const fn recurrence(self) -> Option<Recurrence> {
        match self {
            Mixing::Attention => None,
            Mixing::Recurrent(kind)
            | Mixing::ByHeads(kind)
            | Mixing::ByHeadsAlone(kind)
            | Mixing::ByHeadsOrNone(kind)
            | Mixing::ByPattern(kind)
            | Mixing::Both(kind) => Some(kind),
        }
    }
}
