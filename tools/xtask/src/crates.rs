//! The crates that a program is linked from, by what `cargo metadata` says.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

/// The package of the program that users get.
pub const PACKAGE: &str = "trine-cli";

/// A package and the packages that it needs, by their ids.
pub struct Linked<'a> {
    /// Its entry of the metadata.
    pub package: &'a Value,
    /// Sorted.
    pub needs: Vec<&'a str>,
}

impl<'a> Linked<'a> {
    /// A field of its entry that is text; empty where there is none.
    pub fn word(&self, key: &str) -> &'a str {
        self.package[key].as_str().unwrap_or_default()
    }

    /// True if it is of this repository.
    pub fn is_own(&self) -> bool {
        self.package["source"].is_null()
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The packages that end up in `program`, by name and version: it, its dependencies and theirs, without those of tests
/// and of builds.
///
/// # Errors
/// The workspace has no such package.
pub fn linked<'a>(metadata: &'a Value, program: &str) -> Result<Vec<Linked<'a>>> {
    let packages = array(&metadata["packages"]);
    let packages: BTreeMap<&str, &Value> =
        packages.filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = array(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<&str, &Value> = nodes.filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let root = packages.iter().find(|(_, p)| p["name"] == program);
    let (&root, _) = root.with_context(|| format!("there is no package {program}"))?;
    let (mut seen, mut open) = (BTreeSet::from([root]), vec![root]);
    let mut found = Vec::new();
    while let Some(id) = open.pop() {
        let mut needs = Vec::new();
        for dependency in nodes.get(id).into_iter().flat_map(|node| array(&node["deps"])) {
            let is_linked = array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
            let Some(id) = dependency["pkg"].as_str().filter(|_| is_linked) else {
                continue;
            };
            needs.push(id);
            if seen.insert(id) {
                open.push(id);
            }
        }
        needs.sort_unstable();
        let package = packages.get(id).with_context(|| format!("cargo metadata has no package {id}"))?;
        found.push(Linked { package, needs });
    }
    found.sort_by_key(|linked| (linked.word("name"), linked.word("version")));
    Ok(found)
}
