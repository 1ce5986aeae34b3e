//! `rperplexity`: measures how well a model predicts a text.

use std::process::ExitCode;

use trine_tools::evaluate::args::{Args, SHORT};
use trine_tools::{args, evaluate, exit};

fn main() -> ExitCode {
    exit::run("rperplexity", || evaluate::run(&args::parse::<Args>(SHORT)))
}
