//! `rgen`: continues a text, or chats.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rgen().start(args::words())
}
