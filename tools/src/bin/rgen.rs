//! `rgen`: continues a text, or chats.

use std::process::ExitCode;

use trine_tools::generate::args::{Args, SHORT};
use trine_tools::{args, exit, generate};

fn main() -> ExitCode {
    exit::run("rgen", || generate::run(&args::parse::<Args>(SHORT)))
}
