//! Result of a tool that has run: its output, or its refusal.

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Returns a process of a tool that is to be started. Where a test gives no seed there is one all the same, so that a
/// text that a test looks at is the same in every run. Models by name are looked for on this machine alone.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("TRINE_SEED", "7").env("HF_HUB_OFFLINE", "1");
    command
}

/// Standard output and standard error of a run that must have succeeded.
#[track_caller]
pub fn texts(output: Output) -> (String, String) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {stderr}", output.status);
    (String::from_utf8(output.stdout).expect("UTF-8"), stderr)
}

/// Standard output of a run that must have succeeded.
#[track_caller]
pub fn stdout(output: Output) -> String {
    texts(output).0
}

/// Message of a refusal.
pub struct Refusal {
    /// The error, without the tool's name.
    pub error: String,
    /// The lines on standard error before it.
    pub before: Vec<String>,
    /// Standard output.
    pub stdout: String,
}

/// A run that must have failed with code 1, and `tool: error: …` as its last line on standard error.
#[track_caller]
pub fn refusal(tool: &str, output: Output) -> Refusal {
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let mut before: Vec<String> = stderr.lines().map(str::to_owned).collect();
    let last = before.pop().unwrap_or_default();
    let error = last.strip_prefix(&format!("{tool}: error: "));
    Refusal {
        error: error.unwrap_or_else(|| panic!("{stderr}")).to_owned(),
        before,
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
    }
}

/// The error of a run that must have failed with it as its only line, and no output.
#[track_caller]
pub fn only_error(tool: &str, output: Output) -> String {
    let refusal = refusal(tool, output);
    assert_eq!(refusal.before, [""; 0]);
    assert_eq!(refusal.stdout, "");
    refusal.error
}

/// The argument of `kill` for Ctrl-C, or for another request to end where Ctrl-C is ignored, as in programs that a
/// shell has started in the background: programs that they start ignore it too, and rightly so.
pub fn end_signal() -> &'static str {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGINT is the second signal.
    match ignored.is_some_and(|mask| mask & 2 != 0) {
        true => "-TERM",
        false => "-INT",
    }
}
