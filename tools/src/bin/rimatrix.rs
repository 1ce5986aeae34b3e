//! `rimatrix`: measures which weights matter.

use std::process::ExitCode;

use trine_tools::imatrix::args::{Args, SHORT};
use trine_tools::{args, exit, imatrix};

fn main() -> ExitCode {
    exit::run("rimatrix", || imatrix::run(&args::parse::<Args>(SHORT)))
}
