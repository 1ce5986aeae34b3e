//! `rconvert`: the folder of a Hugging Face checkpoint becomes a GGUF file.

use std::process::ExitCode;

use trine_tools::convert::args::Args;
use trine_tools::{args, convert, exit};

fn main() -> ExitCode {
    exit::run("rconvert", || convert::run(&args::parse::<Args>(&[])))
}
