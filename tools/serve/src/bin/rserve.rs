//! `rserve`: serves a model over HTTP.

use std::process::ExitCode;

use trine_tools::args;

fn main() -> ExitCode {
    trine_serve::tool().start(args::words())
}
