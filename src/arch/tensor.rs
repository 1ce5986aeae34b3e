//! What a tensor of a model is: its name in GGUF and in a checkpoint, its extents, its role.

/// An extent, by what it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Extent {
    /// Tokens of the vocabulary.
    Vocab,
    /// Width of the residual stream.
    Embd,
    /// Width of the feed-forward network.
    Ff,
    /// All query heads.
    Q,
    /// All key or value heads.
    Kv,
    /// One head.
    Head,
    /// Pairs of elements that RoPE turns.
    RopePairs,
    /// Experts of a block.
    Experts,
    /// Width of one expert's feed-forward network.
    ExpertFf,
}

/// What a tensor is, as far as its type and values go.
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
    /// One number per output of a matrix.
    Bias,
    /// Divisors of RoPE's frequencies.
    RopeFactors,
}

impl Role {
    /// Whether weights of this role are multiplied with activations as a matrix of a block.
    pub const fn is_matrix(self) -> bool {
        matches!(self, Role::ByRows | Role::ByColumns | Role::Router)
    }
}

/// One tensor: of the model, or of every block.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// Name in GGUF, for those of a block without `blk.N.`.
    pub gguf: &'static str,
    /// Name in a Hugging Face checkpoint, for those of a block without `model.layers.N.`; empty where a checkpoint has no
    /// such tensor.
    pub hf: &'static str,
    /// Extents, outermost first: rows and columns, or the length.
    pub shape: &'static [Extent],
    /// What it is.
    pub role: Role,
    /// Whether a model without it is damaged.
    pub required: bool,
    /// Rows of each head are paired for RoPE: halves in the checkpoint, neighbours in GGUF where
    /// [`Pairing::Adjacent`](crate::ops::rope::Pairing) turns them.
    pub rope_rows: bool,
}

impl Tensor {
    /// A required tensor.
    pub const fn new(
        gguf: &'static str,
        hf: &'static str,
        shape: &'static [Extent],
        role: Role,
    ) -> Tensor {
        Tensor {
            gguf,
            hf,
            shape,
            role,
            required: true,
            rope_rows: false,
        }
    }

    /// The same, where models may lack it.
    pub const fn optional(self) -> Tensor {
        Tensor {
            required: false,
            ..self
        }
    }

    /// The same, with rows that RoPE pairs.
    pub const fn rope_rows(self) -> Tensor {
        Tensor {
            rope_rows: true,
            ..self
        }
    }
}

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
    /// Elements of a head.
    pub head_dim: u64,
    /// Elements of a head that RoPE turns.
    pub rope_dim: u64,
    /// Experts of a block; 0 without a mixture.
    pub experts: u64,
    /// Width of one expert's feed-forward network.
    pub expert_ff: u64,
}

impl Sizes {
    /// The number that an extent stands for; products of absurd sizes saturate.
    pub const fn extent(&self, extent: Extent) -> u64 {
        match extent {
            Extent::Vocab => self.vocab,
            Extent::Embd => self.embd,
            Extent::Ff => self.ff,
            Extent::Q => self.heads.saturating_mul(self.head_dim),
            Extent::Kv => self.kv_heads.saturating_mul(self.head_dim),
            Extent::Head => self.head_dim,
            Extent::RopePairs => self.rope_dim / 2,
            Extent::Experts => self.experts,
            Extent::ExpertFf => self.expert_ff,
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
