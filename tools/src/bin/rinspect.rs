//! `rinspect`: what is in a GGUF file.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rinspect().start(args::words())
}
