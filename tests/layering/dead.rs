//! Rows of the table that concern nothing any more: each is a broken rule.

use std::collections::BTreeSet;

use super::house::{House, Place, Word, lies_in};
use super::modules::Modules;
use super::rules;

/// Rooms and places without files, words that nobody uses, doors that nobody enters, crates that do not exist.
pub fn rows(house: &House, modules: &Modules) -> Vec<String> {
    let files: Vec<&str> = modules.list.iter().map(|m| m.file.as_str()).collect();
    let is_empty = |place: &&str| !files.iter().any(|file| lies_in(file, place));
    let mut out = Vec::new();
    for (name, places) in house.floors.iter().copied().flatten() {
        let empty = places.iter().filter(|p| is_empty(p));
        out.extend(empty.map(|place| format!("the table: room {name} has no file in {place}")));
    }
    for (name, root) in house.crates {
        if !files.contains(root) {
            out.push(format!("the table: crate {name} has no file {root}"));
        }
    }
    for place in house.unsafe_places {
        let is_used = modules.list.iter().any(|m| lies_in(&m.file, place) && !m.source.unsafe_lines.is_empty());
        if !is_used {
            out.push(format!("the table: no unsafe code in {place}"));
        }
    }
    for word in house.words {
        out.extend(word_rows(word, modules));
    }
    let entered: BTreeSet<_> = rules::between_rooms(house, modules).map(|arrow| (arrow.from.1, arrow.to.1)).collect();
    for (room, visitors) in house.front_doors {
        let strangers = visitors.iter().filter(|visitor| !entered.contains(&(**visitor, *room)));
        out.extend(strangers.map(|visitor| format!("the table: {visitor} never enters {room}")));
    }
    for (inside, owner) in house.private {
        if is_empty(inside) || is_empty(owner) {
            out.push(format!("the table: nothing of {inside} belongs to {owner}"));
        }
    }
    out
}

/// Starts of paths that stand nowhere, and places that have nothing to do with the rule.
fn word_rows(word: &Word, modules: &Modules) -> Vec<String> {
    let lies_there = |places: &[&str], file: &str| places.iter().any(|place| lies_in(file, place));
    let mut out = Vec::new();
    for start in word.starts {
        let is_named = modules.list.iter().flat_map(|m| &m.source.named).any(|named| named.starts_with(start));
        if !is_named {
            out.push(format!("the table: nobody names {start}: {}", word.why));
        }
    }
    let (Place::Only(places) | Place::Never(places)) = word.place;
    for place in places {
        let mut there = modules.list.iter().filter(|m| lies_there(&[place], &m.file));
        let is_alive = match word.place {
            Place::Never(_) => there.next().is_some(),
            Place::Only(_) => there.flat_map(|m| &m.source.named).any(|named| word.concerns(named)),
        };
        if !is_alive {
            out.push(format!("the table: nothing in {place} needs the rule: {}", word.why));
        }
    }
    out
}
