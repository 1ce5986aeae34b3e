//! Links between pages lead to files and headings that are there, and the book has every page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::archive::below;
use crate::process::root;

/// The lines of a page outside of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of the links `[text](target)` of a page.
fn targets(page: &str) -> Vec<String> {
    let links = prose(page).flat_map(|line| {
        let line = without_code(line);
        let after = line.split("](").skip(1);
        after.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect::<Vec<_>>()
    });
    links.collect()
}

/// The anchors of the headings of a page, as GitHub and mdBook make them: letters, digits, `-` and `_` stay, in lower case,
/// and spaces become `-`. The second heading of a name has `-1` behind it.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(page).filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len() && title.starts_with(' ')).then(|| title.trim())
    });
    let anchors = headings.map(|title| {
        let letters = title.to_lowercase();
        let letters = letters.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
        let anchor: String = letters.map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = seen.entry(anchor.clone()).or_default();
        *count += 1;
        match *count {
            1 => anchor,
            n => format!("{anchor}-{}", n - 1),
        }
    });
    anchors.collect()
}

/// A path without `.` and `..`; `None` where it leaves the repository.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if out.pop() => {}
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(out)
}

/// The pages of the repository that people read, from its root.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        below(&root().join("docs")).expect("docs").iter().map(|p| Path::new("docs").join(p)).collect();
    for entry in fs::read_dir(root()).expect("the repository") {
        pages.push(PathBuf::from(entry.expect("an entry").file_name()));
    }
    pages.push("tools/python/README.md".into());
    pages.retain(|path| path.extension().is_some_and(|e| e == "md"));
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages() {
        for target in targets(&read(&page)).iter().filter(|t| !t.contains("://") && !t.starts_with("mailto:")) {
            links += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => Some(page.clone()),
                file => plain(&page.with_file_name(file)),
            };
            // A page of the book has no way out of it.
            let is_outside = page.starts_with("docs") && path.as_ref().is_some_and(|path| !path.starts_with("docs"));
            let found = path.filter(|path| !is_outside && root().join(path).exists());
            let is_whole = found.is_some_and(|path| anchor.is_empty() || anchors(&read(&path)).contains(anchor));
            if !is_whole {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(links > 100, "{links} links: they are not found");
}

#[test]
fn the_book_has_every_page_once() {
    let listed: Vec<PathBuf> =
        targets(&read(Path::new("docs/SUMMARY.md"))).into_iter().map(|t| Path::new("docs").join(t)).collect();
    let mut sorted = listed.clone();
    sorted.sort();
    let mut there = pages();
    there.retain(|page| page.starts_with("docs") && !page.ends_with("SUMMARY.md"));
    assert_eq!(sorted, there);
}

#[test]
fn anchors_are_those_of_the_web() {
    let page = "# One `code` & more\n```sh\n# no heading\n[a](b)\n```\n## Two\n## Two\n[x](y.md#z) `[a](b)`\n";
    let expected = ["one-code--more", "two", "two-1"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
    assert_eq!(targets(page), ["y.md#z"]);
    assert_eq!(plain(Path::new("docs/notes/../a.md")), Some("docs/a.md".into()));
    assert_eq!(plain(Path::new("../a.md")), None);
}
