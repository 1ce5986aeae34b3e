//! Tells the tools which commit they are built from (`TRINE_COMMIT`). Only files are read: no program is run, no
//! connection opened, and a source tree that says nothing builds as well.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TRINE_COMMIT");
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commit = env::var("TRINE_COMMIT").ok();
    let commit = commit.or_else(|| packaged(&package)).or_else(|| checked_out(&package.join("../.git")));
    let commit = commit.filter(|c| c.len() >= 7 && c.bytes().all(|b| b.is_ascii_hexdigit()));
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=TRINE_COMMIT={commit}");
}

/// The commit that `cargo package` has written beside the manifest.
fn packaged(package: &Path) -> Option<String> {
    let info = fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = info.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// The commit of the repository's own checkout; a repository that merely contains this source tree does not count.
/// `.git` is a folder, or in a further work tree a file that names one.
fn checked_out(git: &Path) -> Option<String> {
    let own = match fs::read_to_string(git) {
        Ok(text) => git.parent()?.join(text.trim().strip_prefix("gitdir: ")?),
        Err(_) => git.to_owned(),
    };
    let common = match fs::read_to_string(own.join("commondir")) {
        Ok(text) => own.join(text.trim()),
        Err(_) => own.clone(),
    };
    let head = watched(&own.join("HEAD"))?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    if let Some(commit) = watched(&common.join(branch)) {
        return Some(commit.trim().to_owned());
    }
    let packed = watched(&common.join("packed-refs"))?;
    let line = packed.lines().find(|l| l.ends_with(&format!(" {branch}")))?;
    line.split(' ').next().map(str::to_owned)
}

/// The text of a file that is looked at again when it changes.
fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    Some(text)
}
