//! How a tool begins and ends: signals are heard, an error is one line on standard error, and there is a code.
//!
//! | code | meaning |
//! |------|---------|
//! | 0    | everything was done, and the files that were asked for are there |
//! | 1    | refused or failed; the last line on standard error says why |
//! | 2    | the command line is wrong |
//! | 130  | ended by Ctrl-C, SIGTERM or SIGHUP |
//! | 141  | (by SIGPIPE) nobody read the output any more |

use std::process::ExitCode;

use anyhow::Result;

use crate::{interrupt, isolate};

/// Runs a tool: `fn main() -> ExitCode { exit::run("rinspect", main_in_anyhow) }`.
///
/// An error becomes one line, `TOOL: error: what: why: why`, and exit code 1.
pub fn run(tool: &'static str, main: impl FnOnce() -> Result<()>) -> ExitCode {
    if let Some(code) = isolate::serve() {
        return code;
    }
    interrupt::start(tool);
    match main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            note!("{tool}: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
