//! `rconvert`: the folder of a Hugging Face checkpoint becomes a GGUF file.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rconvert().start(args::words())
}
