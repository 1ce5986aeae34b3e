//! RWKV 6 and 7, and ARWKV with gated networks: no attention; a matrix for every head that decays with every position.

use crate::arch::Arch;
use crate::arch::parts::{
    ATTN_NORM, ENDS, FFN_NORM, GATED_FFN, Group, OUTPUT_NORM_BIAS, OUTPUT_NORM_BIAS_OPTIONAL, OUTPUT_REQUIRED,
    TOKEN_NORM,
};
use crate::arch::rules::{Mixing, NormKind, Recurrence, RopeRule};
use crate::arch::rwkv_parts::{
    CHANNEL_GATE, CHANNEL_MIX, RWKV_NORMS, SHARED_KEYS, TIME_MIX, TIME_MIX_6, TIME_MIX_6_ALONE, TIME_MIX_7,
    TIME_MIX_7_ALONE,
};

/// Tensors outside the blocks.
const RWKV_ENDS: &[Group] = &[ENDS, TOKEN_NORM, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED];

/// `rwkv7`.
pub const RWKV7: Arch = Arch {
    name: "rwkv7",
    models: "RWKV 7",
    ends: RWKV_ENDS,
    block: &[RWKV_NORMS, TIME_MIX, TIME_MIX_7, CHANNEL_MIX],
    norm: NormKind::Layer,
    mixing: Mixing::Recurrent(Recurrence::Rwkv7),
    rope: RopeRule::NONE,
    scaled: &[],
    // those of the first block, whose values are its own
    ignored: &["time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"],
    fixed_keys: &[("token_shift_count", 2)],
    ..Arch::DENSE
};

/// `arwkv7`.
pub const ARWKV7: Arch = Arch {
    name: "arwkv7",
    models: "ARWKV 7",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, TIME_MIX_7_ALONE, FFN_NORM, GATED_FFN],
    norm: NormKind::Rms,
    mixing: Mixing::Recurrent(Recurrence::Rwkv7Alone),
    fixed_keys: &[("token_shift_count", 1)],
    ..RWKV7
};

/// `rwkv6qwen2`.
pub const RWKV6QWEN2: Arch = Arch {
    name: "rwkv6qwen2",
    models: "QRWKV 6",
    ends: &[ENDS, OUTPUT_NORM_BIAS_OPTIONAL, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, SHARED_KEYS, TIME_MIX_6_ALONE, FFN_NORM, GATED_FFN],
    mixing: Mixing::Recurrent(Recurrence::Rwkv6Alone),
    ignored: &[],
    ..ARWKV7
};

/// `rwkv6`.
pub const RWKV6: Arch = Arch {
    name: "rwkv6",
    models: "RWKV 6",
    block: &[RWKV_NORMS, TIME_MIX, TIME_MIX_6, CHANNEL_MIX, CHANNEL_GATE],
    mixing: Mixing::Recurrent(Recurrence::Rwkv6),
    ignored: &[],
    ..RWKV7
};
