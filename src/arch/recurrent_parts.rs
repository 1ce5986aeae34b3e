//! Groups of tensors of layers with a recurrent state.

use super::parts::Group;
use super::tensor::Extent::{
    Channels, ChannelsAndGates, Embd, GateChannelsTimes, Inner, InnerOfGroup, Kernel, One, Q, State, StateGroups,
    StateHeads, ThriceEmbd, ThriceQ, Time, TimeAndStates, TwiceInner, TwiceStateHeads,
};
use super::tensor::Role::{Bias, ByColumns, ByRows, Norm, Vector};
use super::tensor::{Extent, Role, Tensor};

const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

/// LFM 2's gated convolution: the projection to two gates and what is convolved, the weights of the positions that
/// every element sees, and the output projection.
pub const CONVOLUTION: Group = &[
    tensor("shortconv.in_proj.weight", &[ThriceEmbd, Embd], ByRows),
    tensor("shortconv.conv.weight", &[Embd, Kernel], Vector),
    tensor("shortconv.out_proj.weight", &[Embd, Embd], ByColumns),
];

const OUT: Tensor = tensor("ssm_out.weight", &[Embd, Inner], ByColumns);
const IN_BOTH: Tensor = tensor("ssm_in.weight", &[TwiceInner, Embd], ByRows);
const CONV_INNER: Tensor = tensor("ssm_conv1d.weight", &[Inner, Kernel], Vector);
const FROM_INNER: Tensor = tensor("ssm_x.weight", &[TimeAndStates, Inner], ByRows);

/// Mamba 1: the projection to channels and gates, the convolution, the projections to time steps and to what writes and
/// reads the state, rates of decay, the channels' own share, and the output projection.
pub const MAMBA: Group = &[
    IN_BOTH,
    CONV_INNER,
    tensor("ssm_conv1d.bias", &[Inner], Bias),
    FROM_INNER,
    tensor("ssm_dt.weight", &[Inner, StateHeads], ByRows),
    tensor("ssm_dt.bias", &[Inner], Bias),
    tensor("ssm_a", &[Inner, State], Vector),
    tensor("ssm_d", &[Inner], Vector),
    OUT,
];
/// Norms of time steps and of what writes and reads the state.
pub const MAMBA_NORMS: Group = &[
    tensor("ssm_dt_norm.weight", &[StateHeads], Norm),
    tensor("ssm_b_norm.weight", &[State], Norm),
    tensor("ssm_c_norm.weight", &[State], Norm),
];

const CONV_BIAS: Tensor = tensor("ssm_conv1d.bias", &[Channels], Bias);
const STATE_NORM: Tensor = tensor("ssm_norm.weight", &[StateGroups, InnerOfGroup], Norm);
/// Mamba 2: one projection to gates, channels, what writes and reads the state, and time steps.
pub const MAMBA_2: Group = &[
    tensor("ssm_in.weight", &[GateChannelsTimes, Embd], ByRows),
    tensor("ssm_conv1d.weight", &[Channels, Kernel], Vector),
    tensor("ssm_dt.bias", &[StateHeads], Bias),
    tensor("ssm_a", &[StateHeads, One], Vector),
    tensor("ssm_d", &[StateHeads, One], Vector),
    OUT,
];
/// The bias of the convolution.
pub const CONVOLUTION_BIAS: Group = &[CONV_BIAS];
/// The norm of what every group gives.
pub const GROUP_NORM: Group = &[STATE_NORM];
/// The same, which some models have.
pub const GROUP_NORM_OPTIONAL: Group = &[STATE_NORM.optional()];

/// PLaMo 2: Mamba 1's projections and norms, whose names end too early, and a rate of decay for every head.
pub const PLAMO_MAMBA: Group = &[
    IN_BOTH,
    CONV_INNER,
    FROM_INNER,
    tensor("ssm_dt.weight", &[StateHeads, Time], ByRows),
    tensor("ssm_dt.bias", &[StateHeads], Bias),
    tensor("ssm_a", &[StateHeads], Vector),
    tensor("ssm_d", &[StateHeads], Vector),
    tensor("ssm_dt_norm", &[Time], Norm).stands_for("ssm_dt_norm.weight"),
    tensor("ssm_b_norm", &[State], Norm).stands_for("ssm_b_norm.weight"),
    tensor("ssm_c_norm", &[State], Norm).stands_for("ssm_c_norm.weight"),
    OUT,
];

const DELTA_QKV: Tensor = tensor("attn_qkv.weight", &[Channels, Embd], ByRows).stands_for("delta_qkv.weight");
const DELTA_GATE: Tensor = tensor("attn_gate.weight", &[Inner, Embd], ByRows).stands_for("delta_gate.weight");
const DELTA_CONV: Tensor = tensor("ssm_conv1d.weight", &[Channels, Kernel], Vector);
const DELTA_NORM: Tensor = tensor("ssm_norm.weight", &[State], Norm);
/// Gated DeltaNet: the projections to queries, keys and values and to the gates on the outputs, the convolution of the
/// former, factors and biases of the decay, the norm of every head's output, and the output projection.
pub const DELTA: Group = &[
    DELTA_QKV,
    DELTA_GATE,
    DELTA_CONV,
    tensor("ssm_dt.bias", &[StateHeads], Bias),
    tensor("ssm_a", &[StateHeads], Vector),
    DELTA_NORM,
    OUT,
];
/// The same with one projection to queries, keys, values and gates of every key's heads, in older files.
pub const DELTA_EITHER: Group = &[
    DELTA_QKV.optional(),
    DELTA_GATE.optional(),
    tensor("ssm_in.weight", &[ChannelsAndGates, Embd], ByRows).optional(),
    DELTA_CONV,
    DELTA[3],
    DELTA[4],
    DELTA_NORM,
    OUT,
];
/// Strengths and decays, in one projection by key.
pub const DELTA_STEPS_IN_ONE: Group = &[tensor("ssm_ba.weight", &[TwiceStateHeads, Embd], ByRows)];
/// The same in two.
pub const DELTA_STEPS: Group =
    &[tensor("ssm_beta.weight", &[StateHeads, Embd], ByRows), tensor("ssm_alpha.weight", &[StateHeads, Embd], ByRows)];

/// Lightning attention: queries, keys and values in one matrix, gates on the outputs, and the norm of the outputs. The
/// output projection is that of attention.
pub const LIGHTNING: Group = &[
    tensor("attn_qkv.weight", &[ThriceQ, Embd], ByRows).stands_for("lightning_qkv.weight"),
    tensor("attn_gate.weight", &[Q, Embd], ByRows).stands_for("lightning_gate.weight"),
    tensor("attn_norm_2.weight", &[Q], Norm).stands_for("lightning_norm.weight"),
];

/// Kimi Delta Attention's projections to the decays and to the gates on the outputs, two in a row each.
pub const KIMI_GATES: Group = &[
    tensor("ssm_f_a.weight", &[State, Embd], ByRows),
    tensor("ssm_f_b.weight", &[Inner, State], ByRows),
    tensor("ssm_g_a.weight", &[State, Embd], ByRows),
    tensor("ssm_g_b.weight", &[Inner, State], ByRows),
];
/// The same, one each.
pub const WIDE_GATES: Group =
    &[tensor("ssm_f_a.weight", &[Inner, Embd], ByRows), tensor("ssm_g_a.weight", &[Inner, Embd], ByRows)];
/// The same, two in a row to the decays and one to the gates.
pub const WIDE_OUTPUT_GATE: Group =
    &[KIMI_GATES[0], KIMI_GATES[1], tensor("ssm_g.weight", &[Inner, Embd], ByRows).stands_for("ssm_g_a.weight")];
/// Kimi Delta Attention without these and the decays' factors: queries, keys and values, each with a convolution,
/// strengths, the norm of every head's output, and the output projection.
pub const KIMI: Group = &[
    tensor("attn_qkv.weight", &[Channels, Embd], ByRows).stands_for("kda_qkv.weight").optional(),
    tensor("attn_q.weight", &[Inner, Embd], ByRows).stands_for("kda_q.weight"),
    tensor("attn_k.weight", &[Inner, Embd], ByRows).stands_for("kda_k.weight"),
    tensor("attn_v.weight", &[Inner, Embd], ByRows).stands_for("kda_v.weight"),
    tensor("ssm_conv1d_q.weight", &[Inner, One, Kernel], Vector),
    tensor("ssm_conv1d_k.weight", &[Inner, One, Kernel], Vector),
    tensor("ssm_conv1d_v.weight", &[Inner, One, Kernel], Vector),
    tensor("ssm_beta.weight", &[StateHeads, Embd], ByRows),
    tensor("ssm_dt.bias", &[Inner], Bias),
    DELTA_NORM,
    tensor("attn_output.weight", &[Embd, Inner], ByColumns).stands_for("kda_output.weight"),
];
/// Its factors on the decays.
pub const KIMI_RATES: Group = &[tensor("ssm_a", &[StateHeads, One], Vector)];
/// The same in one row.
pub const KIMI_RATES_FLAT: Group = &[tensor("ssm_a", &[StateHeads], Vector)];
