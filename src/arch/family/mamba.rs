//! Mamba 1 and 2, and Jamba: Mamba 1 with attention in some blocks and experts in some.

use crate::arch::Arch;
use crate::arch::expert_parts::EXPERTS;
use crate::arch::factors::SSM_SCALES;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, GATED_FFN, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS, GROUP_NORM, MAMBA, MAMBA_2, MAMBA_NORMS};
use crate::arch::rules::{ExpertLayers, ExpertRule, Mixing, Normalize, Recurrence, RopeRule};

/// `mamba`.
pub const MAMBA_1: Arch = Arch {
    name: "mamba",
    models: "Mamba, Falcon Mamba",
    block: &[ATTN_NORM, MAMBA],
    mixing: Mixing::Recurrent(Recurrence::Mamba),
    rope: RopeRule::NONE,
    scaled: SSM_SCALES,
    ..Arch::DENSE
};

/// `mamba2`.
pub const MAMBA2: Arch = Arch {
    name: "mamba2",
    models: "Mamba 2, Codestral Mamba",
    block: &[ATTN_NORM, MAMBA_2, CONVOLUTION_BIAS, GROUP_NORM],
    mixing: Mixing::Recurrent(Recurrence::Mamba2),
    ..MAMBA_1
};

/// `jamba`.
pub const JAMBA: Arch = Arch {
    name: "jamba",
    models: "Jamba",
    block: &[ATTN_NORM, QKV, ATTN_OUT, MAMBA, MAMBA_NORMS, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, MAMBA, MAMBA_NORMS, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    mixing: Mixing::ByHeads(Recurrence::Mamba),
    experts: ExpertRule { normalize: Normalize::Never, layers: ExpertLayers::Routed, ..ExpertRule::USUAL },
    ..MAMBA_1
};
