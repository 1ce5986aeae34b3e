//! The licences of what a program is linked from, read from what `cargo metadata` says and from the sources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::crates::linked;

/// How names of files with licences begin, in small letters.
const FILES: [&str; 6] = ["licen", "copying", "copyright", "notice", "unlicen", "authors"];

const HEAD: &str = "\
Trine is under the licences in LICENSE-MIT and LICENSE-APACHE, at your choice. Its programs are linked from the crates
below, which are under licences of their own, and from the standard library of Rust (MIT OR Apache-2.0).
";

/// Names, versions and licences of all crates of others that `program` is linked from, and the texts of the licences. A
/// text that several crates have stands there once. A crate that may be had under the Apache licence and brings no text
/// is under that one, whose text is below `root`.
///
/// # Errors
/// A crate that says nothing about its licence or has no text of it.
pub fn collect(metadata: &Value, program: &str, root: &Path) -> Result<String> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in linked(metadata, program)?.iter().filter(|package| !package.is_own()) {
        let name = format!("{} {}", package.word("name"), package.word("version"));
        let licence = match (package.word("license"), package.word("license_file")) {
            ("", "") => bail!("{name} does not say under which licence it is"),
            ("", file) => file,
            (licence, _) => licence,
        };
        let _ = writeln!(list, "{name}: {licence}");
        let folder = Path::new(package.word("manifest_path")).parent();
        let mut found = files(folder.unwrap_or(Path::new(""))).with_context(|| format!("the licence of {name}"))?;
        if found.is_empty() {
            if !may_be_apache(licence) {
                bail!("{name} has no text of its licence ({licence})");
            }
            found.push(text(&root.join("LICENSE-APACHE"))?);
        }
        for text in found {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut by_name: Vec<_> = texts.into_iter().map(|(text, names)| (names, text)).collect();
    by_name.sort();
    let mut page = format!("{HEAD}\n{list}");
    for (names, text) in by_name {
        let line = "-".repeat(80);
        let _ = write!(page, "\n{line}\n{}\n{line}\n\n{text}\n", names.join(", "));
    }
    Ok(page)
}

/// True if the Apache licence is one of those to choose from.
fn may_be_apache(licence: &str) -> bool {
    // Older manifests separate licences of one's choice by a stroke.
    licence.split(" OR ").flat_map(|one| one.split('/')).any(|one| one.trim() == "Apache-2.0")
}

/// A text with one kind of line break.
fn text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim_end().to_owned())
}

/// The texts of licences in a folder.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if FILES.iter().any(|start| name.starts_with(start)) && entry.path().is_file() {
            texts.insert(name, text(&entry.path())?);
        }
    }
    Ok(texts.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A program that uses `one`, which uses `two`, and in its tests `three`; `licences` are those of the three.
    fn metadata(folder: &Path, licences: [Option<&str>; 3]) -> Value {
        let mut packages = vec![json!({ "id": "own", "name": "own", "source": null })];
        for (name, licence) in ["one", "two", "three"].into_iter().zip(licences) {
            packages.push(json!({
                "id": name, "name": name, "version": "1.0.0", "source": "registry", "license": licence,
                "manifest_path": folder.join(name).join("Cargo.toml"),
            }));
        }
        let uses = |id: &str, other: &str, kind: Option<&str>| {
            let dependency = json!({ "pkg": other, "dep_kinds": [{ "kind": kind }] });
            json!({ "id": id, "deps": [dependency] })
        };
        let nodes = json!([
            uses("own", "one", None),
            uses("one", "two", None),
            uses("two", "three", Some("dev")),
            { "id": "three", "deps": [] },
        ]);
        json!({ "packages": packages, "resolve": { "nodes": nodes } })
    }

    fn sources(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "two", "three"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (path, text) in files {
            fs::write(folder.path().join(path), text).unwrap();
        }
        folder
    }

    #[test]
    fn what_is_linked_is_listed_and_a_text_stands_there_once() {
        let files = [
            ("one/LICENSE-MIT", "as is\r\n"),
            ("two/license.md", "as is"),
            ("two/COPYING", "copy"),
            ("two/README.md", "read"),
        ];
        let folder = sources(&files);
        let metadata = metadata(folder.path(), [Some("MIT"), Some("MIT OR Zlib"), None]);
        let page = collect(&metadata, "own", folder.path()).unwrap();
        assert!(page.contains("\none 1.0.0: MIT\ntwo 1.0.0: MIT OR Zlib\n"), "{page}");
        assert_eq!(page.matches("as is").count(), 1);
        assert!(page.contains("one 1.0.0, two 1.0.0\n"));
        assert!(page.contains("copy") && !page.contains("read") && !page.contains("three"));
    }

    #[test]
    fn a_crate_without_a_licence_or_its_text_is_named() {
        let folder = sources(&[("one/LICENSE", "text")]);
        let told = |licences| {
            let metadata = metadata(folder.path(), licences);
            collect(&metadata, "own", folder.path()).unwrap_err().to_string()
        };
        assert_eq!(told([Some("MIT"), None, None]), "two 1.0.0 does not say under which licence it is");
        assert_eq!(told([Some("MIT"), Some("MIT"), None]), "two 1.0.0 has no text of its licence (MIT)");
        let both = "two 1.0.0 has no text of its licence (MIT AND Apache-2.0)";
        assert_eq!(told([Some("MIT"), Some("MIT AND Apache-2.0"), None]), both);
    }

    #[test]
    fn a_crate_without_a_text_is_under_the_apache_licence_where_it_may_be() {
        let folder = sources(&[("one/LICENSE", "text"), ("LICENSE-APACHE", "terms")]);
        for licence in ["ISC OR Apache-2.0", "MIT/Apache-2.0"] {
            let metadata = metadata(folder.path(), [Some("MIT"), Some(licence), None]);
            let page = collect(&metadata, "own", folder.path()).unwrap();
            assert!(page.contains(&format!("two 1.0.0: {licence}\n")) && page.ends_with("\nterms\n"), "{page}");
        }
    }

    /// The program can be given to others: everything that it is linked from has a text.
    #[test]
    fn the_program_has_all_texts() {
        let metadata = crate::process::metadata(&crate::process::triple().unwrap()).unwrap();
        collect(&metadata, crate::crates::PACKAGE, &crate::process::root()).unwrap();
    }
}
