//! `rserve`: serves a model over HTTP.

use std::process::ExitCode;

use trine_serve::args::{Args, SHORT};
use trine_serve::run;
use trine_tools::{args, exit};

fn main() -> ExitCode {
    exit::run("rserve", || run::run(&args::parse::<Args>(SHORT)))
}
