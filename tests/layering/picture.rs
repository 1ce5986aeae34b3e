//! The picture of the house in `docs/architecture.md`, drawn from the table and the paths of the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::house::House;
use super::modules::Modules;
use super::rules::between_rooms;

/// Rooms that programs are made of; the others hold tests, emulators and commands of the project.
const LEFT_OUT: &[&str] = &["proofs", "driver", "emulator", "kit", "xtask", "python", "web"];
/// Width and height of a room, and distance from floor to floor.
const ROOM: (usize, usize, usize) = (84, 24, 44);
/// Width of the picture.
const WIDTH: usize = 480;

/// Rooms by name: the rooms that each uses, without those it also reaches over another one.
fn arrows(house: &House, modules: &Modules) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in between_rooms(house, modules).filter(|arrow| arrow.from.1 != arrow.to.1) {
        uses.entry(arrow.from.1).or_default().insert(arrow.to.1);
    }
    let reaches = |from: &str, to: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            let further = uses.get(at).into_iter().flatten().copied();
            next.extend(further.filter(|room| seen.insert(*room)));
        }
        seen.contains(to)
    };
    let direct = |used: &BTreeSet<&'static str>| -> BTreeSet<&'static str> {
        used.iter().copied().filter(|room| !used.iter().any(|over| over != room && reaches(over, room))).collect()
    };
    uses.iter().map(|(room, used)| (*room, direct(used))).collect()
}

/// The picture as SVG. A line leads from a room down to those it uses; what it also reaches over another is left out.
pub fn svg(house: &House, modules: &Modules) -> String {
    let is_drawn = |name: &str| !LEFT_OUT.contains(&name);
    let floors: Vec<Vec<&'static str>> = house
        .floors
        .iter()
        .map(|floor| floor.iter().map(|room| room.0).filter(|name| is_drawn(name)).collect())
        .filter(|floor: &Vec<_>| !floor.is_empty())
        .collect();
    let (width, height, distance) = ROOM;
    let mut places = BTreeMap::new();
    for (row, floor) in floors.iter().enumerate() {
        for (column, name) in floor.iter().enumerate() {
            let x = WIDTH * (2 * column + 1) / (2 * floor.len());
            places.insert(*name, (x, 10 + row * distance));
        }
    }
    let total = 10 + floors.len() * distance;
    let mut out =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" font-size=\"12\">\n");
    out += "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<g stroke=\"#89a\" fill=\"none\">\n";
    for (user, used) in arrows(house, modules) {
        for room in used {
            if let (Some((x, y)), Some((to_x, to_y))) = (places.get(user), places.get(room)) {
                let from_y = y + height;
                let middle = (from_y + to_y) / 2;
                writeln!(out, "<path d=\"M{x} {from_y}C{x} {middle} {to_x} {middle} {to_x} {to_y}\"/>")
                    .expect("a string");
            }
        }
    }
    out += "</g>\n<g fill=\"#eef3f8\" stroke=\"#456\">\n";
    for (x, y) in places.values() {
        writeln!(out, "<rect x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>", x - width / 2)
            .expect("a string");
    }
    out += "</g>\n<g text-anchor=\"middle\" font-family=\"sans-serif\" fill=\"#123\">\n";
    for (name, (x, y)) in &places {
        writeln!(out, "<text x=\"{x}\" y=\"{}\">{name}</text>", y + 16).expect("a string");
    }
    out + "</g>\n</svg>\n"
}
