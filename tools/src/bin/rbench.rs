//! `rbench`: how fast models and kernels are.

use std::process::ExitCode;

use trine_tools::bench::args::{Args, SHORT};
use trine_tools::{args, bench, exit};

fn main() -> ExitCode {
    exit::run("rbench", || bench::run(&args::parse::<Args>(SHORT)))
}
