//! The house as a test: which part may use which, read from the `use` lines and paths of the sources.
#![allow(missing_docs)]

mod dead;
mod house;
mod modules;
mod picture;
mod rules;
mod source;
mod tests;

use std::fs;
use std::path::Path;

use house::{HOUSE, House};
use modules::{Files, Modules};

/// All Rust files of a folder and the folders in it, by their path from the root of the repository.
fn collect(root: &Path, folder: &str, files: &mut Files) {
    for entry in fs::read_dir(root.join(folder)).expect("a readable folder") {
        let entry = entry.expect("a readable folder");
        let name = format!("{folder}/{}", entry.file_name().to_str().expect("a plain name"));
        if entry.path().is_dir() {
            if !name.ends_with("/target") {
                collect(root, &name, files);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(entry.path()).expect("a readable file");
            files.insert(name, text);
        }
    }
}

/// Every broken rule of a tree of files, one a line.
fn violations(house: &House, files: &Files, modules: &Modules) -> Vec<String> {
    let mut all = modules.lost.clone();
    all.extend(rules::arrows(house, modules));
    all.extend(rules::words(house, modules));
    all.extend(rules::circles(modules));
    all.extend(rules::sizes(house, files));
    all.extend(rules::safety(files));
    all.extend(rules::beginnings(files));
    all
}

/// The sources of the repository.
fn sources() -> Files {
    let mut files = Files::new();
    for folder in ["formats", "src", "tools", "compat-tests", "tests", "examples"] {
        collect(Path::new(env!("CARGO_MANIFEST_DIR")), folder, &mut files);
    }
    assert!(files.len() > 100, "the sources were not found");
    files
}

#[test]
fn the_house_stands_as_its_table_says() {
    let files = sources();
    let modules = Modules::read(&files, HOUSE.crates);
    let mut all = violations(&HOUSE, &files, &modules);
    all.extend(dead::rows(&HOUSE, &modules));
    assert!(all.is_empty(), "{} broken rules\n{}", all.len(), all.join("\n"));
}

#[test]
fn the_picture_of_the_house_is_up_to_date() {
    let picture = picture::svg(&HOUSE, &Modules::read(&sources(), HOUSE.crates));
    trine_testkit::is_written("docs/house.svg", &picture);
}
