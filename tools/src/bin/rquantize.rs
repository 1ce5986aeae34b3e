//! `rquantize`: quantizes GGUF models into the files that llama-quantize writes.

use std::process::ExitCode;

use trine_tools::{args, commands};

fn main() -> ExitCode {
    commands::rquantize().start(args::words())
}
