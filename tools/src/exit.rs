//! How a tool ends: one line on stderr and a code.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;

/// Runs a tool: `fn main() -> ExitCode { exit::run("rinspect", main_in_anyhow) }`.
///
/// An error becomes one line, `TOOL: error: what: why: why`, and exit code 1. A reader that closes our
/// output early (`| head`) is no error: the tool ends silently with code 0. Tools therefore write with
/// `writeln!` and `?`, never with `println!`, which panics there.
pub fn run(tool: &str, main: impl FnOnce() -> Result<()>) -> ExitCode {
    match main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            // When stderr is closed too there is nobody left to tell.
            let _ = writeln!(
                io::stderr(),
                "{tool}: error: {}",
                one_line(&format!("{e:#}"))
            );
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// The text without line breaks and other control characters.
fn one_line(text: &str) -> String {
    text.split(char::is_control)
        .filter(|s| !s.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("a\n\tb\u{1b}[31mc"), "a b [31mc");
    }

    #[test]
    fn a_closed_pipe_is_found_anywhere_in_the_chain() {
        let e = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing");
        assert!(is_broken_pipe(&e));
        assert!(!is_broken_pipe(&anyhow::anyhow!("broken pipe")));
    }
}
