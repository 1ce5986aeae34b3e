//! `rquantize`: quantizes GGUF models into the files that llama-quantize writes.

use std::process::ExitCode;

use trine_tools::quantize::args::Args;
use trine_tools::{args, exit, interrupt, quantize};

fn main() -> ExitCode {
    exit::run("rquantize", || {
        let args = args::parse::<Args>(&[]);
        interrupt::writes_files();
        quantize::run(&args)
    })
}
