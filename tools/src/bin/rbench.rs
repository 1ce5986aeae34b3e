//! `rbench`: how fast models and kernels are.

use std::process::ExitCode;

use trine_tools::bench::args::{Args, SHORT};
use trine_tools::{args, bench, exit, interrupt};

fn main() -> ExitCode {
    exit::run("rbench", || {
        let args = args::parse::<Args>(SHORT);
        interrupt::end_at_once(None);
        bench::run(&args)
    })
}
