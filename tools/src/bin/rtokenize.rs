//! `rtokenize`: shows the tokens of a text.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rtokenize().start(args::words())
}
