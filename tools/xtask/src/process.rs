//! Programs that commands of the project run.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cargo that runs this program, at the root.
pub fn cargo() -> Command {
    let path = env::var_os("CARGO").unwrap_or(OsString::from("cargo"));
    let mut command = Command::new(PathBuf::from(path));
    command.current_dir(root());
    command
}

/// Runs a command that shows what it does.
///
/// # Errors
/// A command that cannot be run or fails.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs a command; gives what it writes to standard output.
///
/// # Errors
/// A command that cannot be run or fails, or does not write text.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The machine that is compiled for: this one.
///
/// # Errors
/// A compiler that does not say it.
pub fn triple() -> Result<String> {
    let about = output(Command::new("rustc").arg("-vV"))?;
    let line = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc -vV names no host")?.to_owned())
}

/// All packages that cargo knows and their dependencies on `triple`.
///
/// # Errors
/// Everything that `cargo metadata` refuses.
pub fn metadata(triple: &str) -> Result<Value> {
    let format = ["metadata", "--format-version=1", "--locked", "--filter-platform", triple];
    serde_json::from_str(&output(cargo().args(format))?).context("cargo metadata")
}
