//! Moves ternary weights between formats without changing one: codes are moved, never rounded again.
//!
//! A ternary matrix is codes -1, 0, +1 and scales. The formats differ in how they pack the codes and in how
//! far a scale reaches and what it is stored in:
//!
//! | type | one scale for | as |
//! |---|---|---|
//! | I2_S, TL1, TL2 | the tensor | f32 |
//! | TQ1_0, TQ2_0 | 256 weights | f16 |
//! | Q2_0 | 64 weights | f16 |
//! | PQ2_0, Q2_0_G128, PTQ1_0 of PrismML's fork | 128 weights | f16 |
//! | STQ1_0 of Tencent, one zero in four | 256 weights | f16 |
//! | IQ1_BN, IQ2_BN of ik_llama.cpp | the row | f16, f32 |
//! | F32, F16, BF16 | every weight | itself |
//!
//! So a matrix can be moved when its scales fit the target: equal over what shares one there, and a number
//! that is stored there exactly. A span of zeros takes any scale. Whether nothing changed is not concluded
//! but found out: the output is decoded again and compared with the decoded input (`compare`). A zero's
//! sign is the only thing that codes cannot hold: -0 becomes +0, and is counted.
//!
//! From floats to TQ1_0, TQ2_0 and Q2_0 the quantizer's usual way applies, which writes llama-quantize's bytes.

mod carry;
mod choose;
mod codes;
mod compare;
mod decode;
mod method;
mod report;
mod tiles;
mod types;
mod verify;

pub use super::packed::Packed;
pub use super::row::Move;
pub use carry::MoveFault;
pub(super) use choose::{Context, choose_packed, keeps, plan_move};
pub use compare::{Comparison, Difference};
pub use method::Moves;
pub use report::{Inexact, MoveReport, Moved, NotExact, Why};
pub use types::is_ternary;
pub(super) use types::{is_packed, is_ternary_model, moves};
pub use verify::{Checked, Verdict, Verification, VerifyError, verify};
