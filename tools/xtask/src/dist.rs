//! `cargo xtask dist`: the archive that users get.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{archive, licences};

/// The package of the program, and the program.
const PACKAGE: &str = "trine-cli";
const PROGRAM: &str = "trine";

/// Files that go beside the documentation in `docs`, from the root of the repository.
const PAPERS: [&str; 6] = ["README.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff", "LICENSE-MIT", "LICENSE-APACHE"];

/// Makes the archive and says where it is.
///
/// # Errors
/// A step that failed, or a crate without a licence.
pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let triple = triple()?;
    let format = ["metadata", "--format-version", "1", "--locked"];
    let metadata = output(cargo(&root).args(format).args(["--filter-platform", &triple]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let name = format!("{PROGRAM}-{}-{triple}", env!("CARGO_PKG_VERSION"));
    let target = metadata["target_directory"].as_str();
    let folder = Path::new(target.context("cargo metadata names no target folder")?).join("dist");

    let build = ["build", "--locked", "--profile", "dist", "--bin", PROGRAM];
    succeed(cargo(&root).args(build).args(["--package", PACKAGE]))?;
    let stage = folder.join("stage").join(&name);
    if stage.exists() {
        fs::remove_dir_all(&stage).context("cannot remove what an earlier run left")?;
    }
    fs::create_dir_all(&stage)?;
    output(Command::new(folder.join(PROGRAM)).arg("--install").arg(&stage))?;
    papers(&root, &stage, &licences::collect(&metadata, PACKAGE)?)?;

    let path = folder.join(format!("{name}.tar.gz"));
    archive::write(&stage, &name, time(&root)?, &path)?;
    let file = format!("{name}.tar.gz");
    fs::write(folder.join(format!("{file}.sha256")), archive::sum(&path, &file)?)?;
    for path in [&stage.join("bin").join(PROGRAM), &path] {
        let size = fs::metadata(path)?.len() as f64 / 1e6;
        println!("{size:6.1} MB  {}", path.display());
    }
    Ok(())
}

/// Documentation, licences and the sums of all files.
fn papers(root: &Path, stage: &Path, licences: &str) -> Result<()> {
    let shelf = stage.join("share/doc").join(PROGRAM);
    fs::create_dir_all(shelf.join("docs"))?;
    for name in PAPERS {
        copy(&root.join(name), &shelf.join(name))?;
    }
    let docs = archive::below(&root.join("docs"))?;
    for path in docs.iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        copy(&root.join("docs").join(path), &shelf.join("docs").join(path))?;
    }
    fs::write(shelf.join("LICENCES-OF-DEPENDENCIES"), licences)?;
    let mut sums = String::new();
    for path in archive::below(stage)? {
        let path = path.to_str().context("a path that is no text")?;
        sums += &archive::sum(&stage.join(path), path)?;
    }
    fs::write(shelf.join("SHA256SUMS"), sums)?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let copied = fs::copy(from, to);
    copied.with_context(|| format!("cannot copy '{}'", from.display()))?;
    Ok(())
}

/// The cargo that runs this program.
fn cargo(root: &Path) -> Command {
    let path = env::var_os("CARGO").unwrap_or(OsString::from("cargo"));
    let mut command = Command::new(PathBuf::from(path));
    command.current_dir(root);
    command
}

/// The machine that is compiled for: this one.
fn triple() -> Result<String> {
    let about = output(Command::new("rustc").arg("-vV"))?;
    let line = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc -vV names no host")?.to_owned())
}

/// When the files in the archive were made, in seconds since 1970: when somebody says, or with the commit.
fn time(root: &Path) -> Result<u64> {
    let said = match env::var("SOURCE_DATE_EPOCH") {
        Ok(said) => said,
        Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))
            .context("the time of the commit; SOURCE_DATE_EPOCH can be set instead")?,
    };
    let seconds = said.trim().parse();
    seconds.with_context(|| format!("'{}' is no number of seconds since 1970", said.trim()))
}

/// Runs a command that shows what it does.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs a command; gives what it writes to standard output.
fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}
