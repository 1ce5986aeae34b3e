//! The bill of materials: what the program is linked from, in CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json>). It has
//! neither a time nor a number of its own, so that the same sources give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::crates::{Linked, PACKAGE, linked};
use crate::process::{metadata, root, triple};

/// Its name in the archive.
pub const NAME: &str = "sbom.cdx.json";

/// Prints it for this machine.
///
/// # Errors
/// Everything that `cargo metadata` refuses.
pub fn run() -> Result<()> {
    Ok(io::stdout().write_all(write(&metadata(&triple()?)?, &root())?.as_bytes())?)
}

/// The bill of what cargo's metadata says, with the sums of `Cargo.lock` below `root`.
///
/// # Errors
/// A crate of others without a sum.
pub fn write(metadata: &Value, root: &Path) -> Result<String> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    Ok(format!("{:#}\n", bill(&linked(metadata, PACKAGE)?, &sums(&lock))?))
}

/// The address of a package.
fn address(package: &Linked) -> String {
    format!("pkg:cargo/{}@{}", package.word("name"), package.word("version"))
}

fn bill(packages: &[Linked], sums: &BTreeMap<String, &str>) -> Result<Value> {
    let addresses: BTreeMap<&str, String> = packages.iter().map(|p| (p.word("id"), address(p))).collect();
    let mut components = Vec::new();
    let mut program = Value::Null;
    for package in packages {
        let is_program = package.word("name") == PACKAGE;
        let component = component(package, if is_program { "application" } else { "library" }, sums)?;
        match is_program {
            true => program = component,
            false => components.push(component),
        }
    }
    let dependencies = packages.iter().map(|package| {
        let needs: Vec<_> = package.needs.iter().filter_map(|id| addresses.get(id)).collect();
        json!({ "ref": address(package), "dependsOn": needs })
    });
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn component(package: &Linked, kind: &str, sums: &BTreeMap<String, &str>) -> Result<Value> {
    let address = address(package);
    let mut component = Map::new();
    component.insert("type".to_owned(), kind.into());
    component.insert("bom-ref".to_owned(), address.clone().into());
    component.insert("name".to_owned(), package.word("name").into());
    component.insert("version".to_owned(), package.word("version").into());
    component.insert("purl".to_owned(), address.clone().into());
    // Older manifests separate licences of one's choice by a stroke.
    let licence = package.word("license").split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
    let licence = match licence.is_empty() {
        true => json!({ "license": { "name": package.word("license_file") } }),
        false => json!({ "expression": licence }),
    };
    component.insert("licenses".to_owned(), json!([licence]));
    if !package.is_own() {
        let sum = sums.get(&address).with_context(|| format!("Cargo.lock has no sum of {address}"))?;
        component.insert("hashes".to_owned(), json!([{ "alg": "SHA-256", "content": sum }]));
    }
    Ok(Value::Object(component))
}

/// The SHA-256 of the crates of others, by their addresses.
fn sums(lock: &str) -> BTreeMap<String, &str> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name| {
            let mut values = package.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            values.next()?.strip_suffix('"')
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            sums.insert(format!("pkg:cargo/{name}@{version}"), sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"one\"\nversion = \"1.0.0\"\nchecksum = \"ab12\"\n\n\
        [[package]]\nname = \"trine-cli\"\nversion = \"0.1.0\"\ndependencies = [\n \"one\",\n]\n";

    fn packages() -> Value {
        json!({
            "packages": [
                { "id": "p", "name": PACKAGE, "version": "0.1.0", "source": null, "license": "MIT OR Apache-2.0" },
                { "id": "o", "name": "one", "version": "1.0.0", "source": "registry", "license": "MIT/Apache-2.0" },
                { "id": "t", "name": "two", "version": "2.0.0", "source": "registry", "license": "MIT" },
            ],
            "resolve": { "nodes": [
                { "id": "p", "deps": [
                    { "pkg": "o", "dep_kinds": [{ "kind": null }] },
                    { "pkg": "t", "dep_kinds": [{ "kind": "dev" }] },
                ]},
                { "id": "o", "deps": [] },
            ]},
        })
    }

    #[test]
    fn a_bill_names_what_is_linked_with_its_sum_and_licence() {
        let metadata = packages();
        let bill = bill(&linked(&metadata, PACKAGE).unwrap(), &sums(LOCK)).unwrap();
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/trine-cli@0.1.0");
        let one = json!([{
            "type": "library", "bom-ref": "pkg:cargo/one@1.0.0", "name": "one", "version": "1.0.0",
            "purl": "pkg:cargo/one@1.0.0", "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "hashes": [{ "alg": "SHA-256", "content": "ab12" }],
        }]);
        assert_eq!(bill["components"], one);
        let needs = json!([
            { "ref": "pkg:cargo/one@1.0.0", "dependsOn": [] },
            { "ref": "pkg:cargo/trine-cli@0.1.0", "dependsOn": ["pkg:cargo/one@1.0.0"] },
        ]);
        assert_eq!(bill["dependencies"], needs);
    }

    #[test]
    fn a_crate_without_a_sum_is_named() {
        let metadata = packages();
        let error = bill(&linked(&metadata, PACKAGE).unwrap(), &BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "Cargo.lock has no sum of pkg:cargo/one@1.0.0");
    }
}
