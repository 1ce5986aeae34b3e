//! `rbench`: how fast models and kernels are.

use std::process::ExitCode;

use trine_formats::gguf::write::remove_unfinished;
use trine_tools::bench::args::{Args, SHORT};
use trine_tools::{args, bench, exit, interrupt};

fn main() -> ExitCode {
    exit::run("rbench", || {
        let args = args::parse::<Args>(SHORT);
        // A file that is being saved goes; nothing else is left behind.
        let handler = ctrlc::set_handler(|| {
            remove_unfinished();
            std::process::exit(interrupt::EXIT_CODE);
        });
        if let Err(e) = handler {
            eprintln!("warning: an interrupt will leave a temporary file behind: {e}");
        }
        bench::run(&args)
    })
}
