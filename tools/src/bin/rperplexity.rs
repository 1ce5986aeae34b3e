//! `rperplexity`: measures how well a model predicts a text.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rperplexity().start(args::words())
}
