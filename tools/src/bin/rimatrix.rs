//! `rimatrix`: measures which weights matter.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rimatrix().start(args::words())
}
