//! What the command-line tools share.

pub mod exit;
pub mod inspect;
pub mod open;
pub mod progress;
pub mod quantize;
