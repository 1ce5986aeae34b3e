//! The command-line programs under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::{fetch, root};

/// Sources of the programs.
const SOURCES: [&str; 7] =
    ["Cargo.lock", "Cargo.toml", "formats/Cargo.toml", "formats/src", "src", "tools/Cargo.toml", "tools/src"];

/// A command that runs a program of `tools`, such as `rquantize`.
///
/// `cargo test` of the whole workspace has built the programs before any test runs. When only this
/// crate is tested they are built here.
///
/// # Errors
/// It does not exist or does not compile.
pub fn program(name: &str) -> Result<Command> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let path = fetch::profile_dir()?.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !is_current(&path)? {
        let built = BUILT.get_or_init(|| build().map_err(|e| format!("{e:#}")));
        if let Err(e) = built {
            anyhow::bail!("{e}");
        }
        ensure!(path.exists(), "there is no program {name}");
    }
    Ok(Command::new(path))
}

/// The path of a program, for those who start it often.
///
/// # Panics
/// When the programs cannot be built.
pub fn path_of(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let rgen = program("rgen").expect("the tools");
        Path::new(rgen.get_program()).parent().expect("a folder").to_owned()
    });
    folder.join(name)
}

/// True if the program is younger than all its sources.
fn is_current(path: &Path) -> Result<bool> {
    let Ok(built) = fs::metadata(path).and_then(|m| m.modified()) else {
        return Ok(false);
    };
    let changed: Vec<SystemTime> =
        SOURCES.iter().map(|source| youngest(&root().join(source))).collect::<Result<_>>()?;
    Ok(changed.iter().all(|at| *at <= built))
}

fn youngest(path: &Path) -> Result<SystemTime> {
    let meta = fs::metadata(path).with_context(|| path.display().to_string())?;
    if !meta.is_dir() {
        return Ok(meta.modified()?);
    }
    let mut at = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(path)? {
        at = at.max(youngest(&entry?.path())?);
    }
    Ok(at)
}

/// Builds all programs in the profile under test. The whole workspace with its test executables is named, so that the
/// dependencies have the features that they have where everything is tested, and nothing is compiled twice.
fn build() -> Result<()> {
    let profile = fetch::profile_dir()?;
    let target = profile.parent().unwrap_or(&profile);
    let name = profile.file_name().and_then(|n| n.to_str());
    let profile = match name {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["test", "--no-run", "--quiet", "--profile", profile])
        .arg("--workspace")
        .arg("--target-dir")
        .arg(target)
        .current_dir(root());
    fetch::run(&mut command).context("cannot build the programs")
}

/// Runs a command that must succeed.
///
/// # Errors
/// It cannot be started or fails; the error shows what it printed.
pub fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

/// Quantizes `source` to `out` as llama-quantize would: falling back to other types where rows are not
/// whole blocks and making ternary what is not. Relative paths in `options` are taken from `dir`.
///
/// # Errors
/// rquantize fails.
pub fn quantize(source: &Path, out: &Path, ty: &str, options: &[String], dir: &Path) -> Result<()> {
    let mut command = program("rquantize")?;
    command.args(["--fallback", "--force"]).args(options).arg(source).arg(out).arg(ty).current_dir(dir);
    succeed(&mut command)?;
    Ok(())
}
