//! The products once more under compute-sanitizer, where it is installed.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{Options, Report};

/// Its tools.
const TOOLS: &[&str] = &["memcheck", "racecheck", "initcheck", "synccheck"];
/// Its exit code where it has found something.
const FOUND: &str = "86";

/// Runs the small products under each of its tools.
///
/// # Errors
/// This program cannot be found.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let program = std::env::current_exe().context("this program's path")?;
    for tool in TOOLS {
        let mut command = Command::new("compute-sanitizer");
        command
            .args(["--tool", tool, "--error-exitcode", FOUND])
            .arg(&program)
            .args(["--small", "--only-checks", "--device", &options.device.to_string(), "--out"])
            .arg(options.out.with_extension(format!("{tool}.json")))
            .stdout(Stdio::null());
        match command.status() {
            Ok(status) => {
                let about = json!({"exit": status.code()});
                report.check(&format!("compute-sanitizer {tool}"), status.success(), about)?;
            }
            Err(e) => {
                report.set("sanitizer", json!(format!("not run: compute-sanitizer: {e}")))?;
                break;
            }
        }
    }
    Ok(())
}
