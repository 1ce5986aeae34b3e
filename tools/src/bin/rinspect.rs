//! `rinspect`: what is in a GGUF file.

use std::process::ExitCode;

use trine_tools::inspect::command::{Args, run};
use trine_tools::{args, exit};

fn main() -> ExitCode {
    exit::run("rinspect", || run(&args::parse::<Args>(&[])))
}
