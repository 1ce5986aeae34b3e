//! `deny.toml` holds for `Cargo.lock`: licences, sources, and versions of one crate, without cargo-deny and without a
//! network; and actions of workflows are named by hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::process::{cargo, root, triple};

/// The texts in a list of `deny.toml`, from the line that begins with `name = [` to the bracket that ends it.
fn list(deny: &str, name: &str) -> Vec<String> {
    let start = format!("\n{name} = [");
    let (_, rest) = deny.split_once(&start).unwrap_or_else(|| panic!("deny.toml has no list {name}"));
    let end = rest.find("\n]").or(rest.find(']')).expect("the end of the list");
    let inline = rest.find('\n').is_some_and(|line| rest[..line].contains(']') && rest.starts_with('"'));
    let body = if inline { &rest[..rest.find(']').expect("an end")] } else { &rest[..end] };
    body.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// True if `allowed` is enough for a licence expression: alternatives of which one, and parts of which all, are allowed.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let is_allowed = either(&words, &mut at, allowed);
    is_allowed && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut any = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        any |= both(words, at, allowed);
    }
    any
}

fn both(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut all = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        all &= one(words, at, allowed);
    }
    all
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(&word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if word == "(" {
        let inside = either(words, at, allowed);
        *at += 1;
        return inside;
    }
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
        // An exception is a licence of its own.
        return allowed.contains(&format!("{word} WITH {}", words.get(*at - 1).unwrap_or(&"")));
    }
    allowed.contains(word)
}

/// Everything that is in `Cargo.lock`: name, version.
fn locked(lock: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut locked: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let start = format!("\n{name} = \"");
            let (_, rest) = package.split_once(&start).expect("a field of every package");
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        locked.entry(field("name")).or_default().insert(field("version"));
    }
    locked
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn all_crates_come_from_the_registry() {
    let allowed = list(&read("deny.toml"), "allow-registry");
    for line in read("Cargo.lock").lines().filter_map(|line| line.strip_prefix("source = \"")) {
        let source = line.trim_end_matches('"');
        let is_allowed = source.strip_prefix("registry+").is_some_and(|url| allowed.iter().any(|a| a == url));
        assert!(is_allowed, "Cargo.lock: {source} is no source that deny.toml allows");
    }
}

#[test]
fn second_versions_are_listed() {
    let locked = locked(&read("Cargo.lock"));
    let listed: BTreeSet<String> = list(&read("deny.toml"), "skip").into_iter().collect();
    let mut spare = listed.clone();
    for (name, versions) in locked.iter().filter(|(_, versions)| versions.len() > 1) {
        let mut others = versions.iter().filter(|version| !spare.remove(&format!("{name}@{version}")));
        others.next();
        assert!(
            others.next().is_none(),
            "{name} has the versions {versions:?}: list all but one under skip in deny.toml"
        );
    }
    assert!(spare.is_empty(), "deny.toml lists what has no second version: {spare:?}");
}

#[test]
fn all_licences_are_allowed() {
    let deny = read("deny.toml");
    let allowed: BTreeSet<String> = list(&deny, "allow").into_iter().collect();
    let exceptions = list(&deny, "exceptions");
    let mut cargo = cargo();
    let triple = triple().expect("rustc");
    cargo.args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", &triple]);
    let output = cargo.stderr(Stdio::inherit()).output().expect("cargo");
    if !output.status.success() {
        eprintln!("SKIPPED: cargo metadata needs crates that are not at hand");
        return;
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for package in metadata["packages"].as_array().expect("packages") {
        let word = |key: &str| package[key].as_str().unwrap_or_default();
        let excepted = exceptions.chunks(2).any(|pair| pair[0] == word("name") && pair[1] == word("license"));
        assert!(
            excepted || is_allowed(word("license"), &allowed),
            "{} {} is under '{}', which deny.toml does not allow",
            word("name"),
            word("version"),
            word("license")
        );
    }
}

#[test]
fn expressions_of_licences() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Zlib".to_owned()]);
    for good in ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-2.0) AND Zlib", "MIT AND (Zlib)"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT WITH some-exception", "(MIT OR Zlib) AND GPL-2.0", "MIT MIT"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn lists_of_deny_toml() {
    let deny = "a\nallow = [\n    \"x\",\n    \"y [z]\",\n]\nallow-registry = [\"u\"]\nskip = [\n]\n";
    assert_eq!(list(deny, "allow"), ["x", "y [z]"]);
    assert_eq!(list(deny, "allow-registry"), ["u"]);
    assert!(list(deny, "skip").is_empty());
}

#[test]
fn actions_are_named_by_hashes() {
    let folder = root().join(".github/workflows");
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for (_, action) in text.lines().filter_map(|line| line.split_once("uses: ")) {
            // A file of this repository, and the one of which release.yml speaks.
            if action.starts_with("./") || action == "PyO3/maturin-action@v1.49.3" {
                continue;
            }
            let parts = action.split_once('@').and_then(|(_, version)| version.split_once(" # v"));
            let (hash, _) = parts.unwrap_or_else(|| panic!("{action}: no hash, or no version behind it"));
            assert!(hash.len() == 40 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{action}");
        }
    }
}
