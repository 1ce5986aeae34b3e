//! `rtokenize`: shows the tokens of a text.

use std::process::ExitCode;

use trine_tools::tokenize::Args;
use trine_tools::{args, exit, tokenize};

fn main() -> ExitCode {
    exit::run("rtokenize", || tokenize::run(&args::parse::<Args>(&[])))
}
