//! Groups of tensors of RWKV.

use super::parts::Group;
use super::tensor::Extent::{
    DecayRank, Embd, Ff, FiveMixRanks, Fixed, GateRank, MixRank, One, RateRank, State, StateHeads, StateKeys, ValueRank,
};
use super::tensor::Role::{Bias, ByColumns, ByRows, Norm, Vector};
use super::tensor::{Extent, Role, Tensor};

const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

/// Norms before both mixers.
pub const RWKV_NORMS: Group = &[
    tensor("attn_norm.weight", &[Embd], Norm),
    tensor("attn_norm.bias", &[Embd], Bias),
    tensor("attn_norm_2.weight", &[Embd], Norm),
    tensor("attn_norm_2.bias", &[Embd], Bias),
];
/// Queries, keys, values and outputs, and the norm of every head's output.
pub const TIME_MIX: Group = &[
    tensor("time_mix_receptance.weight", &[Embd, Embd], ByRows),
    tensor("time_mix_key.weight", &[Embd, Embd], ByRows),
    tensor("time_mix_value.weight", &[Embd, Embd], ByRows),
    tensor("time_mix_output.weight", &[Embd, Embd], ByColumns).stands_for("attn_output.weight"),
    tensor("time_mix_ln.weight", &[Embd], Norm),
    tensor("time_mix_ln.bias", &[Embd], Bias),
];
/// RWKV 6's shares of the position before, decays, gates, and factors on what a position itself adds.
pub const TIME_MIX_6: Group = &[
    tensor("time_mix_lerp_x.weight", &[One, One, Embd], Vector),
    tensor("time_mix_lerp_fused.weight", &[Fixed(5), One, One, Embd], Vector).optional(),
    tensor("time_mix_lerp_w.weight", &[One, One, Embd], Vector).optional(),
    tensor("time_mix_lerp_k.weight", &[One, One, Embd], Vector).optional(),
    tensor("time_mix_lerp_v.weight", &[One, One, Embd], Vector).optional(),
    tensor("time_mix_lerp_r.weight", &[One, One, Embd], Vector).optional(),
    tensor("time_mix_lerp_g.weight", &[One, One, Embd], Vector).optional(),
    tensor("time_mix_w1.weight", &[FiveMixRanks, Embd], ByRows),
    tensor("time_mix_w2.weight", &[Fixed(5), Embd, MixRank], ByRows),
    tensor("time_mix_gate.weight", &[Embd, Embd], ByRows),
    tensor("time_mix_decay.weight", &[Embd], Vector),
    tensor("time_mix_decay_w1.weight", &[DecayRank, Embd], ByRows),
    tensor("time_mix_decay_w2.weight", &[Embd, DecayRank], ByRows),
    tensor("time_mix_first.weight", &[StateHeads, State], Vector),
];
/// QRWKV's queries, keys, values and outputs.
pub const SHARED_KEYS: Group = &[
    TIME_MIX[0],
    tensor("time_mix_receptance.bias", &[Embd], Bias).optional(),
    tensor("time_mix_key.weight", &[StateKeys, Embd], ByRows),
    tensor("time_mix_key.bias", &[StateKeys], Bias).optional(),
    tensor("time_mix_value.weight", &[StateKeys, Embd], ByRows),
    tensor("time_mix_value.bias", &[StateKeys], Bias).optional(),
    TIME_MIX[3],
];
/// Its shares of the position before, decays and gates.
pub const TIME_MIX_6_ALONE: Group = &[
    TIME_MIX_6[0],
    tensor("time_mix_lerp_fused.weight", &[Fixed(5), One, One, Embd], Vector),
    TIME_MIX_6[7],
    TIME_MIX_6[8],
    TIME_MIX_6[9],
    TIME_MIX_6[10],
    TIME_MIX_6[11],
    TIME_MIX_6[12],
];
/// RWKV 7's shares of the position before, decays, rates, shares of the first block's values, gates, and factors on
/// keys.
pub const TIME_MIX_7: Group = &[
    tensor("time_mix_lerp_fused.weight", &[Fixed(6), One, One, Embd], Vector),
    tensor("time_mix_w0.weight", &[Embd], Vector),
    tensor("time_mix_w1.weight", &[DecayRank, Embd], ByRows),
    tensor("time_mix_w2.weight", &[Embd, DecayRank], ByRows),
    tensor("time_mix_a0.weight", &[Embd], Vector),
    tensor("time_mix_a1.weight", &[RateRank, Embd], ByRows),
    tensor("time_mix_a2.weight", &[Embd, RateRank], ByRows),
    tensor("time_mix_v0.weight", &[Embd], Vector),
    tensor("time_mix_v1.weight", &[ValueRank, Embd], ByRows),
    tensor("time_mix_v2.weight", &[Embd, ValueRank], ByRows),
    tensor("time_mix_g1.weight", &[GateRank, Embd], ByRows),
    tensor("time_mix_g2.weight", &[Embd, GateRank], ByRows),
    tensor("time_mix_k_k.weight", &[Embd], Vector),
    tensor("time_mix_k_a.weight", &[Embd], Vector),
    tensor("time_mix_r_k.weight", &[Embd], Vector),
];
/// The same where a model may have no gates, and no norm of heads.
pub const TIME_MIX_7_ALONE: Group = &[
    TIME_MIX[0],
    TIME_MIX[1],
    TIME_MIX[2],
    TIME_MIX[3],
    TIME_MIX[4].optional(),
    TIME_MIX[5].optional(),
    TIME_MIX_7[0],
    tensor("time_mix_lerp_fused.weight", &[Fixed(5), One, One, Embd], Vector)
        .stands_for("time_mix_lerp_ungated.weight"),
    TIME_MIX_7[1],
    TIME_MIX_7[2],
    TIME_MIX_7[3],
    TIME_MIX_7[4],
    TIME_MIX_7[5],
    TIME_MIX_7[6],
    TIME_MIX_7[7],
    TIME_MIX_7[8],
    TIME_MIX_7[9],
    TIME_MIX_7[10].optional(),
    TIME_MIX_7[11].optional(),
    TIME_MIX_7[12],
    TIME_MIX_7[13],
    TIME_MIX_7[14],
];
/// The mixer of channels.
pub const CHANNEL_MIX: Group = &[
    tensor("channel_mix_lerp_k.weight", &[One, One, Embd], Vector),
    tensor("channel_mix_key.weight", &[Ff, Embd], ByRows),
    tensor("channel_mix_value.weight", &[Embd, Ff], ByColumns),
];
/// Its gate in RWKV 6.
pub const CHANNEL_GATE: Group = &[
    tensor("channel_mix_lerp_r.weight", &[One, One, Embd], Vector),
    tensor("channel_mix_receptance.weight", &[Embd, Embd], ByRows),
];
