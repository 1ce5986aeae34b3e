//! The modules of the workspace's crates, and the file that a path leads to.

use std::collections::{BTreeMap, HashMap};

use super::source::{self, Named, Source};

/// The files of a tree: path from the root with `/` between folders, and text.
pub type Files = BTreeMap<String, String>;

/// One module that has a file.
pub struct Module {
    /// The file, from the root of the repository.
    pub file: String,
    /// The module that declares it; `None` for the root of a crate.
    pub parent: Option<usize>,
    /// Declarations and paths of the file.
    pub source: Source,
    children: HashMap<String, usize>,
}

/// All modules of the crates.
pub struct Modules {
    /// Parents stand before their children.
    pub list: Vec<Module>,
    crates: HashMap<String, usize>,
    /// Modules that are declared and have no file.
    pub lost: Vec<String>,
}

/// Re-exports are followed this far; a longer chain is a circle of names.
const HOPS: usize = 12;

/// True if cargo makes a program of the file: `main.rs`, or any in a folder of programs.
fn is_program(file: &str) -> bool {
    let mut path = file.rsplit('/');
    let (name, folder) = (path.next(), path.next());
    name == Some("main.rs") || matches!(folder, Some("bin" | "benches" | "examples"))
}

impl Modules {
    /// Reads the libraries, given by name and root file, and all programs, tests and benchmarks; roots that do not
    /// exist are left out.
    pub fn read(files: &Files, crates: &[(&str, &str)]) -> Modules {
        let mut all = Modules { list: Vec::new(), crates: HashMap::new(), lost: Vec::new() };
        for (name, root) in crates {
            if files.contains_key(*root) {
                let index = all.add_root(files, root);
                all.crates.insert((*name).to_owned(), index);
            }
        }
        for root in files.keys().filter(|file| is_program(file)) {
            all.add_root(files, root);
        }
        all
    }

    fn add_root(&mut self, files: &Files, root: &str) -> usize {
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.add(files, root, folder, None)
    }

    /// Adds the module of `file`, whose children lie in `folder`.
    fn add(&mut self, files: &Files, file: &str, folder: &str, parent: Option<usize>) -> usize {
        let index = self.list.len();
        let source = source::read(&files[file]);
        let names = source.modules.clone();
        self.list.push(Module { file: file.to_owned(), parent, source, children: HashMap::new() });
        for name in names {
            let below = format!("{folder}/{name}");
            let places = [format!("{below}.rs"), format!("{below}/mod.rs")];
            let Some(place) = places.iter().find(|p| files.contains_key(*p)) else {
                self.lost.push(format!("{file}: module '{name}' has no file"));
                continue;
            };
            let child = self.add(files, place, &below, Some(index));
            self.list[index].children.insert(name, child);
        }
        index
    }

    /// The modules in which the path stops: where a `use` gives the next name, and last the one that has the named
    /// item. Empty for a path that is not of these crates.
    pub fn follow(&self, from: usize, named: &Named) -> Vec<usize> {
        let mut stops = Vec::new();
        let mut path: &[String] = &named.path;
        // `super` of a module that is written inside the file is the file itself.
        for _ in &named.within {
            match path.first().map(String::as_str) {
                Some("super") => path = &path[1..],
                Some("self") | None => return stops,
                _ => break,
            }
        }
        self.walk(from, path, &mut stops);
        stops
    }

    fn walk(&self, from: usize, path: &[String], stops: &mut Vec<usize>) {
        let Some((first, rest)) = path.split_first() else {
            return stops.push(from);
        };
        let (start, rest) = match first.as_str() {
            "crate" => (self.root(from), rest),
            "self" => (from, rest),
            "super" => match self.list[from].parent {
                Some(parent) => {
                    let mut at = parent;
                    let mut rest = rest;
                    while rest.first().is_some_and(|s| s == "super") {
                        at = self.list[at].parent.unwrap_or(at);
                        rest = &rest[1..];
                    }
                    (at, rest)
                }
                None => return,
            },
            name if self.list[from].children.contains_key(name) => (from, path),
            name => match (self.alias(from, name), self.crates.get(name)) {
                (Some(alias), _) if alias.path[..] != path[..1] => (from, path),
                (_, Some(root)) => (*root, rest),
                _ => return,
            },
        };
        self.descend(start, rest, stops);
    }

    /// Follows `path` from `start` downwards, and sideways where a `use` gives a name.
    fn descend(&self, start: usize, path: &[String], stops: &mut Vec<usize>) {
        let (mut at, mut path) = (start, path);
        while let Some(child) = path.first().and_then(|name| self.list[at].children.get(name)) {
            (at, path) = (*child, &path[1..]);
        }
        stops.push(at);
        let Some(alias) = path.first().and_then(|name| self.alias(at, name)) else {
            return;
        };
        if stops.len() < HOPS {
            let onward = [&alias.path[..], &path[1..]].concat();
            self.walk(at, &onward, stops);
        }
    }

    /// The `use` at the top of the module's file that gives `name`.
    fn alias(&self, module: usize, name: &str) -> Option<&Named> {
        let named = &self.list[module].source.named;
        let mut uses = named.iter().filter(|n| n.within.is_empty());
        uses.find(|n| n.alias.as_deref() == Some(name))
    }

    /// The root of the module's crate.
    pub fn root(&self, module: usize) -> usize {
        self.list[module].parent.map_or(module, |p| self.root(p))
    }

    /// The child of `folder` in which `module` lies or which it is.
    pub fn child_of(&self, folder: usize, module: usize) -> Option<usize> {
        let parent = self.list[module].parent?;
        if parent == folder {
            return Some(module);
        }
        self.child_of(folder, parent)
    }
}
