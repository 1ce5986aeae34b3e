//! `rbench`: how fast models and kernels are.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rbench().start(args::words())
}
