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
            note!("{tool}: error: {}", told(&e));
            ExitCode::FAILURE
        }
    }
}

/// An error and what caused it, in one line. A cause that the words before it end with is not told again.
pub fn told(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no such file").context("cannot open 'x': no such file");
        let error = Err::<(), _>(error).context("--imatrix").unwrap_err();
        assert_eq!(super::told(&error), "--imatrix: cannot open 'x': no such file");
    }
}
