//! The rules of the house, applied to the modules of a tree. Each gives the lines to show.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::modules::Modules;
use super::{FRONT_DOOR, PRIVATE, Place, UNSAFE, WORDS, lies_in, room};

/// Uses of a higher floor or of a neighbour, and of the inside of a room that has a front door. A file that uses
/// another in many places is named with the first.
pub fn arrows(modules: &Modules) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (user, module) in modules.list.iter().enumerate() {
        let Some((floor, name)) = room(&module.file) else {
            out.insert(format!("{}: stands in no room of the table", module.file));
            continue;
        };
        let mut seen = BTreeSet::new();
        for named in &module.source.named {
            let stops = modules.follow(user, named);
            let used = stops.last().map(|&last| modules.list[last].file.as_str());
            let Some((used, (used_floor, used_name))) = used.and_then(|u| Some((u, room(u)?))) else {
                continue;
            };
            let mut broken = |what: &str| {
                if !seen.insert((used, what.to_owned())) {
                    return;
                }
                let (file, line, path) = (&module.file, named.line, named.path.join("::"));
                out.insert(format!("{file}:{line}: {name} uses {used_name} ({path}): {what}"));
            };
            if used_name != name {
                match used_floor.cmp(&floor) {
                    std::cmp::Ordering::Less => broken("the arrow runs upward"),
                    std::cmp::Ordering::Equal => broken("neighbours do not use one another"),
                    std::cmp::Ordering::Greater => {}
                }
                if has_door(used_name, name) && !through_the_door(modules, &stops, used_name) {
                    broken("it is entered through its front door alone");
                }
            }
            for (inside, owner) in PRIVATE {
                if lies_in(used, inside) && !lies_in(&module.file, owner) {
                    broken(&format!("{inside} belongs to {owner}"));
                }
            }
        }
    }
    out
}

fn has_door(used: &str, user: &str) -> bool {
    let mut doors = FRONT_DOOR.iter();
    doors.any(|(room, visitors)| *room == used && visitors.contains(&user))
}

/// Whether the first module of the room that a path reaches is its topmost one.
fn through_the_door(modules: &Modules, stops: &[usize], name: &str) -> bool {
    let is_inside = |module: usize| room(&modules.list[module].file).is_some_and(|r| r.1 == name);
    let entrance = stops.iter().copied().find(|&stop| is_inside(stop));
    let above = entrance.and_then(|module| modules.list[module].parent);
    !above.is_some_and(is_inside)
}

/// Paths, macros and `unsafe` where they must not stand.
pub fn words(modules: &Modules) -> Vec<String> {
    let mut out = Vec::new();
    for module in &modules.list {
        let file = &module.file;
        for named in &module.source.named {
            let path = named.path.join("::");
            for word in WORDS {
                let starts = |start: &&str| {
                    let rest = path.strip_prefix(*start);
                    rest.is_some_and(|r| r.is_empty() || r.starts_with("::"))
                };
                let may_stand = match word.place {
                    Place::Only(places) => places.iter().any(|p| lies_in(file, p)),
                    Place::Never(places) => !places.iter().any(|p| lies_in(file, p)),
                };
                if !may_stand && word.starts.iter().any(starts) {
                    out.push(format!("{file}:{}: {path}: {}", named.line, word.why));
                }
            }
        }
        if !UNSAFE.iter().any(|place| lies_in(file, place)) {
            let lines = module.source.unsafe_lines.iter();
            out.extend(lines.map(|line| format!("{file}:{line}: unsafe code has no place here")));
        }
    }
    out
}

/// What one module of a folder uses of another: the two, and the first place where it does.
type Edges = BTreeMap<usize, BTreeMap<usize, String>>;

/// Modules of one folder that use one another in a circle, for every folder. A folder counts as one module for those
/// beside it. Its own `mod.rs` is no part of a circle: to take a type from it and to be declared by it is what
/// parents and children do. A name that `mod.rs` passes on from another child is that child's.
pub fn circles(modules: &Modules) -> Vec<String> {
    let mut folders: BTreeMap<usize, Edges> = BTreeMap::new();
    for (user, module) in modules.list.iter().enumerate() {
        for named in &module.source.named {
            let Some(&used) = modules.follow(user, named).last() else {
                continue;
            };
            let mut folder = module.parent;
            while let Some(parent) = folder {
                if let (Some(from), Some(to)) = (modules.child_of(parent, user), modules.child_of(parent, used))
                    && from != to
                    && !PRIVATE.iter().any(|(inside, _)| lies_in(&modules.list[from].file, inside))
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
            out.push(format!(
                "{below}: a circle of files: {} -> {}\n{}",
                files.join(" -> "),
                files[0],
                places.join("\n")
            ));
        }
    }
    out
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
