//! llama.cpp's mixtures: which tensor gets more or fewer bits than the file type is named after.
//!
//! Rules are stated per role. Two counters advance with the tensors in output order: how many value
//! projections and how many `ffn_down` have been seen. Facts: `llama_tensor_get_type_impl`. Files of ik_llama.cpp's types
//! have the type throughout but for the output, for value projections that four heads or more share, and for embeddings of
//! two bits.

use thiserror::Error;
use trine_formats::types::TypeId;

use super::category::Category;
use super::facts::Facts;
use super::ftype::Ftype::{self, *};

/// A tensor name that does not fit the model.
#[derive(Error, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MixtureError {
    /// Experts are counted by layer, and the name has none.
    #[error("{0}: no layer number in the name (blk.N.), which a model with experts needs")]
    NoLayer(String),
    /// The layer is beyond `block_count`.
    #[error("{name}: layer {layer} is not below the model's block_count of {layers}")]
    BadLayer {
        /// Tensor.
        name: String,
        /// Layer in its name.
        layer: i64,
        /// `block_count`.
        layers: i64,
    },
}

/// The facts about a tensor that a rule may look at.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Name in the output.
    pub name: &'a str,
    /// Role.
    pub category: Category,
    /// Weights per row.
    pub columns: u64,
    /// More than two dimensions, as stacked experts have.
    pub stacked: bool,
}

/// The state of one pass over the tensors of a model.
pub struct Mixture<'a> {
    facts: &'a Facts,
    ftype: Ftype,
    has_imatrix: bool,
    tied: bool,
    output_type: Option<TypeId>,
    n_attn_v: i64,
    seen_attn_v: i64,
    seen_ffn_down: i64,
    seen_ffn_gate: i64,
    seen_ffn_up: i64,
}

/// Layers at both ends, and every third between, are given more bits.
fn more_bits(i: i64, n: i64) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// File types of two bits and less, whose rules are their own.
fn is_low(ftype: Ftype) -> bool {
    matches!(ftype, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ2_M)
}

impl<'a> Mixture<'a> {
    /// Starts a pass. `names` are all output tensors, those that stay as they are included.
    pub fn new<'n>(
        facts: &'a Facts,
        ftype: Ftype,
        has_imatrix: bool,
        output_type: Option<TypeId>,
        names: impl Iterator<Item = &'n str>,
    ) -> Mixture<'a> {
        let (mut n_attn_v, mut tied) = (0, true);
        for name in names {
            match Category::of(name) {
                Category::AttnV => n_attn_v += 1,
                Category::Output => tied = false,
                _ => {}
            }
        }
        Mixture {
            facts,
            ftype,
            has_imatrix,
            tied,
            output_type,
            n_attn_v,
            seen_attn_v: 0,
            seen_ffn_down: 0,
            seen_ffn_gate: 0,
            seen_ffn_up: 0,
        }
    }

    /// True if the token embeddings also serve as the output matrix.
    pub fn tied(&self) -> bool {
        self.tied
    }

    /// The type of the next tensor. `base` is the file type's default.
    pub fn next(&mut self, tensor: Tensor, base: TypeId) -> Result<TypeId, MixtureError> {
        let arch = self.facts.arch.as_str();
        let floor = ["attn_q_a", "attn_q_b", "nextn.eh_proj"];
        if arch == "glm5-next" && floor.iter().any(|part| tensor.name.contains(part)) {
            let float = matches!(base, TypeId::F32 | TypeId::F16 | TypeId::BF16);
            return Ok(if float { base } else { TypeId::Q8_0 });
        }
        let is_output = tensor.category == Category::Output || (self.tied && tensor.category == Category::TokenEmbd);
        if is_output {
            return Ok(self.output(tensor, base));
        }
        if self.ftype == MXFP4_MOE {
            let ffn = matches!(tensor.category, Category::FfnUp | Category::FfnGate | Category::FfnDown);
            let expert = tensor.stacked && (arch != "bailingmoe3" || ffn);
            return Ok(if expert { TypeId::MXFP4 } else { TypeId::Q8_0 });
        }
        match tensor.category {
            Category::TokenEmbd => Ok(self.token_embd(base)),
            category if is_low(self.ftype) => Ok(self.low(category, base)),
            Category::AttnV => Ok(self.attn_v(base)),
            Category::AttnK if self.facts.n_expert == 8 => Ok(TypeId::Q8_0),
            Category::AttnK | Category::AttnQ => Ok(match self.ftype {
                IQ3_XS => TypeId::IQ3_XXS,
                IQ3_XXS => TypeId::IQ2_S,
                _ => base,
            }),
            Category::FfnDown => {
                let i = self.layer(self.seen_ffn_down, tensor.name)?;
                self.seen_ffn_down += 1;
                Ok(self.ffn_down(i, base))
            }
            Category::AttnOutput => Ok(self.attn_output(base)),
            Category::FfnGate => {
                let i = self.layer(self.seen_ffn_gate, tensor.name)?;
                self.seen_ffn_gate += 1;
                Ok(self.ffn_gate_up(i, base))
            }
            Category::FfnUp => {
                let i = self.layer(self.seen_ffn_up, tensor.name)?;
                self.seen_ffn_up += 1;
                Ok(self.ffn_gate_up(i, base))
            }
            Category::Output | Category::Other => Ok(base),
        }
    }

    fn falcon(&self) -> bool {
        self.facts.arch == "falcon"
    }

    /// The layer a feed-forward tensor belongs to: a count, or with experts the number in its name.
    fn layer(&self, seen: i64, name: &str) -> Result<i64, MixtureError> {
        if self.facts.n_expert <= 1 {
            return Ok(seen);
        }
        let layer = super::order::layer(name).ok_or_else(|| MixtureError::NoLayer(name.into()))?;
        let (layer, layers) = (i64::from(layer), self.facts.n_layer);
        if !(0..layers).contains(&layer) {
            return Err(MixtureError::BadLayer { name: name.into(), layer, layers });
        }
        Ok(layer)
    }

    fn output(&self, tensor: Tensor, base: TypeId) -> TypeId {
        if let Some(ty) = self.output_type {
            return ty;
        }
        let block = base.info().map_or(1, |t| t.block as u64);
        match self.ftype {
            MXFP4_MOE => TypeId::Q8_0,
            _ if self.falcon() || !tensor.columns.is_multiple_of(block) => TypeId::Q8_0,
            IQ3_XXS => TypeId::Q5_K,
            ftype if is_low(ftype) => TypeId::Q5_K,
            _ if base == TypeId::Q8_0 => TypeId::Q8_0,
            _ => TypeId::Q6_K,
        }
    }

    fn token_embd(&self, base: TypeId) -> TypeId {
        match self.ftype {
            IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS => TypeId::Q2_K,
            IQ2_S | IQ2_M | IQ3_XXS => TypeId::IQ3_S,
            IQ2_KS | IQ2_K | IQ2_KL => TypeId::IQ3_K,
            TQ1_0 | TQ2_0 | Q2_0 => TypeId::Q4_K,
            _ => base,
        }
    }

    /// Every tensor of a file of two bits or less but embeddings and output.
    fn low(&mut self, category: Category, base: TypeId) -> TypeId {
        let (n_gqa, n_expert) = (self.facts.n_gqa, self.facts.n_expert);
        let wider = matches!(self.ftype, IQ2_S | IQ2_M);
        let sensitive = if wider { TypeId::IQ3_S } else { TypeId::Q2_K };
        match category {
            Category::AttnV => {
                self.seen_attn_v += 1;
                if n_gqa >= 4 || n_expert >= 4 { TypeId::Q4_K } else { sensitive }
            }
            Category::AttnK if n_expert == 8 => TypeId::Q4_K,
            Category::FfnDown => {
                let early = self.seen_ffn_down < self.facts.n_layer / 8;
                self.seen_ffn_down += 1;
                if early { sensitive } else { base }
            }
            Category::AttnOutput if n_expert == 8 => TypeId::Q5_K,
            Category::AttnOutput => match self.ftype {
                IQ1_S | IQ1_M => TypeId::IQ2_XXS,
                IQ2_S | IQ2_M => TypeId::IQ3_S,
                _ => base,
            },
            _ => base,
        }
    }

    fn attn_v(&mut self, base: TypeId) -> TypeId {
        let (i, n, shared) = (self.seen_attn_v, self.n_attn_v, self.facts.n_gqa >= 4);
        self.seen_attn_v += 1;
        let mut ty = match self.ftype {
            Q2_K if shared => TypeId::Q4_K,
            Q2_K => TypeId::Q3_K,
            Q2_K_S | IQ3_XS | IQ3_S | IQ3_XXS if shared => TypeId::Q4_K,
            IQ3_XXS if !self.has_imatrix => TypeId::IQ3_S,
            IQ3_XXS => TypeId::IQ3_XXS,
            IQ3_M => TypeId::Q4_K,
            Q3_K_M if i < 2 => TypeId::Q5_K,
            Q3_K_M => TypeId::Q4_K,
            Q3_K_L => TypeId::Q5_K,
            IQ4_NL | IQ4_XS if shared => TypeId::Q5_K,
            IQ2_KS | IQ2_K | IQ2_KL if shared => TypeId::IQ3_K,
            IQ3_KS | IQ3_K if shared => TypeId::IQ4_K,
            IQ4_KS | IQ4_K if shared => TypeId::IQ5_K,
            Q4_K_M | Q5_K_M if more_bits(i, n) => TypeId::Q6_K,
            Q4_K_S if i < 4 => TypeId::Q5_K,
            _ => base,
        };
        // a matrix that 8 heads share is small: more bits cost little
        if self.facts.is_70b && matches!(ty, TypeId::Q3_K | TypeId::Q4_K) {
            ty = TypeId::Q5_K;
        }
        if self.facts.n_expert == 8 { TypeId::Q8_0 } else { ty }
    }

    fn ffn_down(&self, i: i64, base: TypeId) -> TypeId {
        let n = self.facts.n_layer;
        let falcon = self.falcon();
        match self.ftype {
            Q2_K => TypeId::Q3_K,
            Q2_K_S if i < n / 8 => TypeId::Q4_K,
            IQ3_XXS if !self.has_imatrix => {
                if i < n / 8 {
                    TypeId::Q4_K
                } else {
                    TypeId::Q3_K
                }
            }
            Q3_K_M if i < n / 16 => TypeId::Q5_K,
            Q3_K_M if !falcon || more_bits(i, n) => TypeId::Q4_K,
            Q3_K_M => TypeId::Q3_K,
            IQ3_M if i < n / 8 || (self.facts.n_expert == 8 && more_bits(i, n)) => TypeId::Q4_K,
            Q3_K_L if falcon => TypeId::Q4_K,
            Q3_K_L => TypeId::Q5_K,
            Q4_K_M if falcon && i < n / 16 => TypeId::Q6_K,
            Q4_K_M if falcon && more_bits(i, n) => TypeId::Q5_K,
            Q4_K_M if falcon => TypeId::Q4_K,
            Q4_K_M | Q5_K_M if more_bits(i, n) => TypeId::Q6_K,
            IQ4_NL | IQ4_XS if i < n / 8 && !self.has_imatrix => TypeId::Q5_K,
            Q4_K_S if i < n / 8 && !falcon => TypeId::Q5_K,
            // the first layers can go astray with an importance matrix and no minimum
            Q4_0 if i < n / 8 && self.has_imatrix => TypeId::Q4_1,
            Q5_0 if i < n / 8 && self.has_imatrix => TypeId::Q5_1,
            _ => base,
        }
    }

    fn attn_output(&self, base: TypeId) -> TypeId {
        if self.falcon() {
            return if self.ftype == Q3_K_L { TypeId::Q4_K } else { base };
        }
        if self.facts.n_expert == 8 {
            return match self.ftype {
                Q2_K | Q3_K_S | Q3_K_M | Q4_K_S | Q4_K_M | IQ3_XXS | IQ3_XS | IQ3_S | IQ3_M | IQ4_NL | IQ4_XS => {
                    TypeId::Q5_K
                }
                _ => base,
            };
        }
        match self.ftype {
            Q2_K => TypeId::Q3_K,
            IQ3_XXS => TypeId::IQ3_S,
            Q3_K_M | IQ3_M => TypeId::Q4_K,
            Q3_K_L => TypeId::Q5_K,
            _ => base,
        }
    }

    fn ffn_gate_up(&self, i: i64, base: TypeId) -> TypeId {
        let n = self.facts.n_layer;
        let middle = i >= n / 8 && i < 7 * n / 8;
        if self.ftype == IQ3_XS && middle { TypeId::IQ3_XXS } else { base }
    }
}

/// The type that llama.cpp takes instead of `wanted` when a row of `columns` weights is not whole blocks; of
/// ik_llama.cpp's types, what that takes, and Q5_1 where it has a type of its own of 6 bits.
/// `None`: it has no replacement and gives up.
pub fn replacement(wanted: TypeId, columns: u64) -> Option<TypeId> {
    let smaller = of_smaller_blocks(wanted)?;
    Some(if columns.is_multiple_of(block(smaller)) { smaller } else { TypeId::F16 })
}

fn block(ty: TypeId) -> u64 {
    ty.info().map_or(1, |t| t.block as u64)
}

/// The type of smaller blocks in the place of `wanted`, which is its own where its blocks are small.
pub(super) fn of_smaller_blocks(wanted: TypeId) -> Option<TypeId> {
    Some(match wanted {
        TypeId::IQ1_S
        | TypeId::IQ1_M
        | TypeId::IQ2_XXS
        | TypeId::IQ2_XS
        | TypeId::IQ2_S
        | TypeId::IQ3_XXS
        | TypeId::IQ3_S
        | TypeId::IQ4_XS
        | TypeId::IQ2_KS
        | TypeId::IQ2_K
        | TypeId::IQ2_KL
        | TypeId::IQ3_KS
        | TypeId::IQ3_K
        | TypeId::IQ4_KS => TypeId::IQ4_NL,
        TypeId::Q2_0 | TypeId::Q2_K | TypeId::Q3_K | TypeId::TQ1_0 | TypeId::TQ2_0 => TypeId::Q4_0,
        TypeId::Q4_K | TypeId::IQ4_K | TypeId::IQ5_KS => TypeId::Q5_0,
        TypeId::Q5_K | TypeId::IQ5_K => TypeId::Q5_1,
        TypeId::Q6_K | TypeId::IQ6_K => TypeId::Q8_0,
        other if block(other) <= 32 => other,
        _ => return None,
    })
}
