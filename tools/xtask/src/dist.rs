//! `cargo xtask dist`: the archive that users get.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::crates::PACKAGE;
use crate::process::{cargo, metadata, output, root, succeed, triple};
use crate::{archive, licences, sbom};
use anyhow::{Context, Result, bail};

/// The program.
const PROGRAM: &str = "trine";

/// Files that go beside the documentation in `docs`, from the root of the repository.
const PAPERS: [&str; 6] = ["README.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff", "LICENSE-MIT", "LICENSE-APACHE"];

/// Makes the archive for `wanted`, or else for the machine that the compiler is for, and says where it is.
///
/// # Errors
/// A step that failed, or a crate without a licence.
pub fn run(wanted: Option<&str>) -> Result<()> {
    let root = root().canonicalize()?;
    let triple = wanted.map_or_else(triple, |triple| Ok(triple.to_owned()))?;
    let metadata = metadata(&triple)?;
    let name = format!("{PROGRAM}-{}-{triple}", env!("CARGO_PKG_VERSION"));
    let target = metadata["target_directory"].as_str();
    let target = Path::new(target.context("cargo metadata names no target folder")?);
    let folder = target.join("dist");
    // What is missing is told before the minutes that a build takes.
    let licences = licences::collect(&metadata, PACKAGE, &root)?;
    let bill = sbom::write(&metadata, &root)?;

    // Named even where it is this machine's, so that the flags hold for no build script, and folders are alike.
    let build = ["build", "--locked", "--profile", "dist", "--bin", PROGRAM, "--target", &triple];
    let mut cargo = cargo();
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(&root, &triple)?);
    succeed(cargo.args(build).args(["--package", PACKAGE]))?;
    let program = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let built = target.join(&triple).join("dist").join(&program);
    let stage = folder.join("stage").join(&name);
    if stage.exists() {
        fs::remove_dir_all(&stage).context("cannot remove what an earlier run left")?;
    }
    fs::create_dir_all(&stage)?;
    output(Command::new(&built).arg("--install").arg(&stage))?;
    papers(&root, &stage, &licences)?;
    fs::write(stage.join("share/doc").join(PROGRAM).join(sbom::NAME), &bill)?;
    fs::write(folder.join(format!("{name}.{}", sbom::NAME)), &bill)?;
    sums(&stage)?;

    let zips = triple.contains("windows");
    let file = format!("{name}.{}", if zips { "zip" } else { "tar.gz" });
    let path = folder.join(&file);
    match zips {
        true => archive::zip(&stage, &name, &path)?,
        false => archive::write(&stage, &name, time(&root)?, &path)?,
    }
    fs::write(folder.join(format!("{file}.sha256")), archive::sum(&path, &file)?)?;
    for path in [&stage.join("bin").join(&program), &path] {
        let size = fs::metadata(path)?.len() as f64 / 1e6;
        println!("{size:6.1} MB  {}", path.display());
    }
    Ok(())
}

/// Documentation and licences.
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
    Ok(())
}

/// The sums of all files that are there.
fn sums(stage: &Path) -> Result<()> {
    let mut sums = String::new();
    for path in archive::below(stage)? {
        let path = path.to_str().context("a path that is no text")?;
        sums += &archive::sum(&stage.join(path), path)?;
    }
    fs::write(stage.join("share/doc").join(PROGRAM).join("SHA256SUMS"), sums)?;
    Ok(())
}

/// Flags for the compiler, by which the program names no folder of this machine: who builds it elsewhere gets the same
/// bytes.
fn flags(root: &Path, triple: &str) -> Result<String> {
    let home = match (env::var_os("CARGO_HOME"), env::var_os("HOME")) {
        (Some(home), _) => PathBuf::from(home),
        (None, Some(home)) => Path::new(&home).join(".cargo"),
        (None, None) => bail!("neither CARGO_HOME nor HOME says where the sources of crates are"),
    };
    let mut flags = Vec::new();
    for (folder, name) in [(root, "trine"), (&*home, "cargo")] {
        let folder = folder.to_str().with_context(|| format!("'{}' is no text", folder.display()))?;
        flags.push(format!("--remap-path-prefix={folder}={name}"));
    }
    if triple.ends_with("-musl") {
        // The target brings its C library, and the compiler its linker. Pointers that move with the program take a
        // fiftieth of their size in this form, which musl knows and older glibcs do not.
        let linker = ["-Clinker=rust-lld", "-Clink-arg=-z", "-Clink-arg=pack-relative-relocs"];
        flags.extend(linker.map(str::to_owned));
    }
    // What somebody asked for stays.
    let asked = env::var("RUSTFLAGS").unwrap_or_default();
    flags.extend(asked.split_whitespace().map(str::to_owned));
    Ok(flags.join("\u{1f}"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let copied = fs::copy(from, to);
    copied.with_context(|| format!("cannot copy '{}'", from.display()))?;
    Ok(())
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
