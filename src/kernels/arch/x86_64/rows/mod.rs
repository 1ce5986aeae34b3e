//! Products of packed rows, 16 or 32 side by side: kernels that are written once, in the registers of [`lanes`], and
//! compiled for each instruction set. The bytes are those of [`crate::shared::packed`].

pub(super) mod block32;
pub(super) mod chains;
pub(super) mod k16;
pub(super) mod k32;
pub(super) mod lanes;
pub(super) mod nested;
pub(super) mod q2_k;
pub(super) mod q3_k;
pub(super) mod q6_k;
