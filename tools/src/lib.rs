//! What the command-line tools share.

pub mod open;
pub mod progress;
