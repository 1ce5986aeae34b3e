//! Instructions that each lane computes by itself.
//!
//! Registers hold bits, filled up with zeros to 64. A formula takes as much of an operand as its type has, and gives
//! a result that is filled up in the same way. It computes all lanes, those that take no part too, whose results nobody keeps.

mod convert;
mod float;
mod formula;
mod integer;

pub(super) use formula::{LANES, Lanes, Scalar, each};
use formula::{four, one, three, two};

/// The number of operands and the formula of an opcode, or `None` when the emulator has none.
pub(super) fn find(opcode: &str) -> Option<(usize, Scalar)> {
    integer::find(opcode).or_else(|| float::find(opcode)).or_else(|| convert::find(opcode))
}
