//! Groups of tensors of blocks with experts.

use super::parts::Group;
use super::tensor::Extent::{
    ChunkFf, Chunks, Embd, ExpertEmbd, ExpertFf, Experts, ExpertsUsed, One, SharedFf, TwiceExpertFf, TwiceSharedFf,
    Vocab,
};
use super::tensor::Role::{Bias, ByColumns, ByRows, Norm, PlainNorm, Router, Vector};
use super::tensor::{Extent, Role, Tensor};

const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

const ROUTER: Tensor = tensor("ffn_gate_inp.weight", &[Experts, Embd], Router);
const GATE: Tensor = tensor("ffn_gate_exps.weight", &[Experts, ExpertFf, Embd], ByRows);
const UP: Tensor = tensor("ffn_up_exps.weight", &[Experts, ExpertFf, Embd], ByRows);
const DOWN: Tensor = tensor("ffn_down_exps.weight", &[Experts, Embd, ExpertFf], ByColumns);

/// A router and the matrices of all experts, `[experts][rows][columns]`. Checkpoints have a matrix per expert.
pub const EXPERTS: Group = &[ROUTER, GATE, UP, DOWN];
/// The same where a file may have gate and up projection in one.
pub const EXPERTS_OR_FUSED: Group = &[
    ROUTER,
    tensor("ffn_gate_up_exps.weight", &[Experts, TwiceExpertFf, Embd], ByRows).optional(),
    GATE.optional(),
    UP.optional(),
    DOWN,
];
/// The same where experts may see and give narrower vectors: with the matrices to and from these, and the norm before
/// the latter.
pub const NARROW_EXPERTS: Group = &[
    ROUTER,
    tensor("ffn_gate_exps.weight", &[Experts, ExpertFf, ExpertEmbd], ByRows),
    tensor("ffn_up_exps.weight", &[Experts, ExpertFf, ExpertEmbd], ByRows),
    tensor("ffn_down_exps.weight", &[Experts, ExpertEmbd, ExpertFf], ByColumns),
    tensor("ffn_routed_down.weight", &[ExpertEmbd, Embd], ByRows).optional(),
    tensor("ffn_routed_up.weight", &[Embd, ExpertEmbd], ByRows).optional(),
    tensor("ffn_routed_norm.weight", &[ExpertEmbd], Norm).optional(),
];
/// The same without gates, where the matrices to and from narrower vectors have other names.
pub const NARROW_PLAIN_EXPERTS: Group = &[
    ROUTER,
    NARROW_EXPERTS[2],
    NARROW_EXPERTS[3],
    tensor("ffn_latent_down.weight", &[ExpertEmbd, Embd], ByRows).optional().stands_for("ffn_routed_down.weight"),
    tensor("ffn_latent_up.weight", &[Embd, ExpertEmbd], ByRows).optional().stands_for("ffn_routed_up.weight"),
];
/// Biases of router and experts.
pub const EXPERT_BIASES: Group = &[
    tensor("ffn_gate_inp.bias", &[Experts], Bias),
    tensor("ffn_gate_exps.bias", &[Experts, ExpertFf], Bias),
    tensor("ffn_up_exps.bias", &[Experts, ExpertFf], Bias),
    tensor("ffn_down_exps.bias", &[Experts, Embd], Bias),
];

/// Small experts that groups of others have in common.
pub const CHUNKS: Group = &[
    tensor("ffn_gate_chexps.weight", &[Chunks, ChunkFf, Embd], ByRows),
    tensor("ffn_up_chexps.weight", &[Chunks, ChunkFf, Embd], ByRows),
    tensor("ffn_down_chexps.weight", &[Chunks, Embd, ChunkFf], ByColumns),
];

const CHOICE_BIAS: Tensor = tensor("exp_probs_b.bias", &[Experts], Bias);
/// Bias on the probabilities, used for the choice of experts only.
pub const CHOICE_BIAS_REQUIRED: Group = &[CHOICE_BIAS];
/// The same, which some models have.
pub const CHOICE_BIAS_OPTIONAL: Group = &[CHOICE_BIAS.optional()];
/// The same where the name ends too early: Hunyuan 3.
pub const CHOICE_BIAS_BARE: Group =
    &[tensor("exp_probs_b", &[Experts], Bias).optional().stands_for("exp_probs_b.bias")];

/// The experts of every token, in layers where the router does not choose them.
pub const EXPERTS_OF_TOKENS: Group = &[tensor("ffn_gate_tid2eid.weight", &[Vocab, ExpertsUsed], Vector).optional()];

const SHARED_DOWN: Tensor = tensor("ffn_down_shexp.weight", &[Embd, SharedFf], ByColumns);
/// The expert that all tokens go to.
pub const SHARED: Group = &[
    tensor("ffn_gate_shexp.weight", &[SharedFf, Embd], ByRows),
    tensor("ffn_up_shexp.weight", &[SharedFf, Embd], ByRows),
    SHARED_DOWN,
];
/// The same without a gate.
pub const SHARED_PLAIN: Group = &[SHARED[1], SHARED_DOWN];
/// The same with gate and up projection in one.
pub const SHARED_FUSED: Group = &[tensor("ffn_up_shexp.weight", &[TwiceSharedFf, Embd], ByRows), SHARED_DOWN];
/// The gate on the output of the shared expert.
pub const SHARED_GATE: Group = &[tensor("ffn_gate_inp_shexp.weight", &[One, Embd], Router)];
/// Norms of what experts see and give, and of what the network beside them gives; the norm that the router reads, and
/// the factors on it.
pub const EXPERTS_APART: Group = &[
    tensor("pre_ffw_norm_2.weight", &[Embd], Norm),
    tensor("post_ffw_norm_1.weight", &[Embd], Norm),
    tensor("post_ffw_norm_2.weight", &[Embd], Norm),
    tensor("ffn_router_norm.weight", &[Embd], PlainNorm),
    tensor("ffn_gate_inp.scale", &[Embd], Vector),
];
/// The norm of what experts see, where that is the block's input.
pub const EXPERT_NORM: Group = &[tensor("ffn_norm_exps.weight", &[Embd], Norm)];
