//! The report of a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// The findings so far, which stand in a file after every addition.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    all: Map<String, Value>,
    failed: usize,
}

impl Report {
    /// An empty one for this file.
    pub fn new(path: &Path) -> Report {
        Report { path: path.to_owned(), all: Map::new(), failed: 0 }
    }

    /// How many checks have failed.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// The entries of a list.
    pub fn list(&self, name: &str) -> &[Value] {
        self.all.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Sets a value.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&mut self, name: &str, value: Value) -> Result<()> {
        self.all.insert(name.to_owned(), value);
        self.write()
    }

    /// Adds to a list.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, name: &str, value: Value) -> Result<()> {
        let list = self.all.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(list) = list {
            list.push(value);
        }
        self.write()
    }

    /// Adds a check, which has passed or not, and says so.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn check(&mut self, what: &str, passed: bool, mut about: Value) -> Result<()> {
        eprintln!("{} {what}", if passed { "ok    " } else { "FAILED" });
        self.failed += usize::from(!passed);
        about["what"] = what.into();
        about["ok"] = passed.into();
        self.push("checks", about)
    }

    /// Writes beside the file and moves what is whole into its place.
    fn write(&mut self) -> Result<()> {
        self.all.insert("failed".to_owned(), self.failed.into());
        let text = serde_json::to_string_pretty(&self.all)?;
        let beside = self.path.with_extension("part");
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &self.path));
        written.with_context(|| self.path.display().to_string())
    }
}
