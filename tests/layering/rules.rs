//! The rules of the house, applied to the modules of a tree. Each gives the lines to show.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::house::{House, lies_in};
use super::modules::{Files, Module, Modules};
use super::source::{self, Named};

/// Uses of a higher floor or of a neighbour, of the inside of a room that has a front door, and of what belongs to
/// another part of the house. A file that uses another in many places is named with the first.
pub fn arrows(house: &House, modules: &Modules) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for module in modules.list.iter().filter(|m| house.room(&m.file).is_none()) {
        out.insert(format!("{}: stands in no room of the table", module.file));
    }
    let mut seen = BTreeSet::new();
    for arrow in between_rooms(house, modules) {
        let Arrow { from, to, .. } = arrow;
        let (file, used) = (&modules.list[arrow.user].file, &modules.list[arrow.used].file);
        let mut broken = |what: &str| {
            if seen.insert((file, used, what.to_owned())) {
                let (line, path) = (arrow.named.line, arrow.named.path.join("::"));
                out.insert(format!("{file}:{line}: {} uses {} ({path}): {what}", from.1, to.1));
            }
        };
        if from.1 != to.1 {
            match to.0.cmp(&from.0) {
                Ordering::Less => broken("the arrow runs upward"),
                Ordering::Equal => broken("neighbours do not use one another"),
                Ordering::Greater => {}
            }
            let has_door = house.front_doors.iter().any(|(room, visitors)| *room == to.1 && visitors.contains(&from.1));
            if has_door && !through_the_door(house, modules, &arrow.stops, to.1) {
                broken("it is entered through its front door alone");
            }
        }
        for (inside, owner) in house.private {
            if lies_in(used, inside) && !lies_in(file, owner) {
                broken(&format!("{inside} belongs to {owner}"));
            }
        }
    }
    out
}

/// A path from one file to another, and the rooms of the two: floor and name.
pub struct Arrow<'a> {
    pub user: usize,
    pub used: usize,
    pub from: (usize, &'static str),
    pub to: (usize, &'static str),
    named: &'a Named,
    stops: Vec<usize>,
}

/// All paths that lead to a file of the house.
pub fn between_rooms<'a>(house: &'a House, modules: &'a Modules) -> impl Iterator<Item = Arrow<'a>> {
    let all = modules.list.iter().enumerate();
    all.flat_map(|(user, module)| module.source.named.iter().map(move |named| (user, module, named))).filter_map(
        |(user, module, named)| {
            let stops = modules.follow(user, named);
            let used = *stops.last()?;
            let (from, to) = (house.room(&module.file)?, house.room(&modules.list[used].file)?);
            Some(Arrow { user, used, from, to, named, stops })
        },
    )
}

/// True if the first module of the room that a path reaches is its topmost one.
fn through_the_door(house: &House, modules: &Modules, stops: &[usize], name: &str) -> bool {
    let is_inside = |module: usize| house.room(&modules.list[module].file).is_some_and(|r| r.1 == name);
    let entrance = stops.iter().copied().find(|&stop| is_inside(stop));
    let above = entrance.and_then(|module| modules.list[module].parent);
    !above.is_some_and(is_inside)
}

/// Paths, macros and `unsafe` where they must not stand.
pub fn words(house: &House, modules: &Modules) -> Vec<String> {
    let mut out = Vec::new();
    for module in &modules.list {
        let file = &module.file;
        for named in &module.source.named {
            let broken = house.words.iter().filter(|word| word.concerns(named) && !word.allows(file));
            out.extend(broken.map(|word| format!("{file}:{}: {}: {}", named.line, named.path.join("::"), word.why)));
        }
        if !house.unsafe_places.iter().any(|place| lies_in(file, place)) {
            let lines = module.source.unsafe_lines.iter();
            out.extend(lines.map(|line| format!("{file}:{line}: unsafe code has no place here")));
        }
    }
    out
}

/// Files that are too long to be read in one sitting, those of tests too.
pub fn sizes(house: &House, files: &Files) -> Vec<String> {
    let lines = files.iter().map(|(file, text)| (file, source::read(text).lines));
    let long = lines.filter(|(_, lines)| *lines > house.lines);
    long.map(|(file, lines)| format!("{file}: {lines} lines outside of constants, {} at most", house.lines)).collect()
}

/// Unsafe functions whose comment does not say what the caller has to ensure.
pub fn safety(files: &Files) -> Vec<String> {
    let mut out = Vec::new();
    for (file, text) in files {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let functions = source::read(text).unsafe_functions;
        let silent = functions.iter().filter(|line| {
            let above = lines[..**line - 1].iter().rev();
            let mut comment = above.take_while(|line| line.starts_with("//") || line.ends_with(']'));
            !comment.any(|line| *line == "/// # Safety")
        });
        out.extend(silent.map(|line| format!("{file}:{line}: an unsafe function without a section `# Safety`")));
    }
    out
}

/// Comments that begin with a word behind which the thing itself comes last.
pub fn beginnings(files: &Files) -> Vec<String> {
    let mut out = Vec::new();
    for (file, text) in files {
        let mut inside = false;
        for (n, line) in text.lines().enumerate() {
            let comment = ["///", "//!"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
            let word = comment.and_then(|comment| comment.split_whitespace().next());
            if !inside && let Some(word @ ("What" | "Whether" | "Of")) = word {
                out.push(format!("{file}:{}: a comment begins with '{word}': name the thing", n + 1));
            }
            inside = comment.is_some();
        }
    }
    out
}

/// Uses of one module of a folder by another: the two, and the first place where it happens.
type Edges = BTreeMap<usize, BTreeMap<usize, String>>;

/// Modules of one folder that use one another in a circle, for every folder. A folder counts as one module for those
/// beside it. Its own `mod.rs` is a file of it like any other as soon as it does more than to declare modules and to
/// pass names on. A name that `mod.rs` passes on from another child is that child's. Of each set of files that use one
/// another one shortest circle is told.
pub fn circles(modules: &Modules) -> Vec<String> {
    let mut folders: BTreeMap<usize, Edges> = BTreeMap::new();
    for (user, module) in modules.list.iter().enumerate() {
        for named in module.source.named.iter().filter(|named| uses(module, named)) {
            let Some(&used) = modules.follow(user, named).last() else {
                continue;
            };
            let mut folder = Some(user);
            while let Some(parent) = folder {
                if let (Some(from), Some(to)) = (place(modules, parent, user), place(modules, parent, used))
                    && from != to
                {
                    let edges = folders.entry(parent).or_default().entry(from).or_default();
                    edges
                        .entry(to)
                        .or_insert_with(|| format!("    {}:{}: {}", module.file, named.line, named.path.join("::")));
                }
                folder = modules.list[parent].parent;
            }
        }
    }
    let mut out = Vec::new();
    for (folder, edges) in &folders {
        for circle in shortest_circles(edges) {
            let files: Vec<&str> = circle.iter().map(|&m| modules.list[m].file.as_str()).collect();
            let steps = circle.iter().zip(circle.iter().cycle().skip(1));
            let places: Vec<&str> = steps.map(|(from, to)| edges[from][to].as_str()).collect();
            let below = &modules.list[*folder].file;
            let (files, first) = (files.join(" -> "), files[0]);
            out.push(format!("{below}: a circle of files: {files} -> {first}\n{}", places.join("\n")));
        }
    }
    out
}

/// True if the file needs the item it names: a name that it only passes on is used by others.
fn uses(module: &Module, named: &Named) -> bool {
    !named.passed_on || named.alias.as_ref().is_some_and(|alias| module.source.bare.contains(alias))
}

/// The file of `folder` that stands for `module`: the child in which it lies, or the folder's own file where that has
/// logic.
fn place(modules: &Modules, folder: usize, module: usize) -> Option<usize> {
    if folder == module {
        return modules.list[folder].source.logic.then_some(folder);
    }
    modules.child_of(folder, module)
}

/// For every set of modules that all reach one another, one shortest circle among them.
fn shortest_circles(edges: &Edges) -> Vec<Vec<usize>> {
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut out = Vec::new();
    for &start in edges.keys() {
        if seen.contains(&start) {
            continue;
        }
        let from_here = reached(edges, start);
        let all: Vec<usize> =
            from_here.keys().copied().filter(|&m| m == start || reached(edges, m).contains_key(&start)).collect();
        seen.extend(&all);
        let circles = all.iter().filter_map(|&m| circle_through(edges, m));
        out.extend(circles.min_by_key(Vec::len));
    }
    out
}

/// The modules that a walk from `start` comes to, and over which one it first does.
fn reached(edges: &Edges, start: usize) -> BTreeMap<usize, usize> {
    let mut over = BTreeMap::from([(start, start)]);
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for &to in edges.get(&at).into_iter().flat_map(BTreeMap::keys) {
            over.entry(to).or_insert_with(|| {
                next.push_back(to);
                at
            });
        }
    }
    over
}

/// A shortest circle that starts at `start`.
fn circle_through(edges: &Edges, start: usize) -> Option<Vec<usize>> {
    let over = reached(edges, start);
    let back = edges.iter().filter(|(from, to)| over.contains_key(from) && to.contains_key(&start));
    let path = |mut at: usize| {
        let mut path = vec![at];
        while at != start {
            at = over[&at];
            path.push(at);
        }
        path.reverse();
        path
    };
    back.map(|(from, _)| path(*from)).min_by_key(Vec::len)
}
