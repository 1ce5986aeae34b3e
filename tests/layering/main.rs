//! The house as a test: which part may use which, read from the `use` lines and paths of the sources.
#![allow(missing_docs)]

mod modules;
mod rules;
mod source;
mod tests;

use std::fs;
use std::path::Path;

use modules::{Files, Modules};

/// A part of the house: its name, and the modules that it lives in (`src/ops` is `src/ops.rs` or `src/ops/`).
type Room = (&'static str, &'static [&'static str]);

/// The floors, from the roof down. A room may use every room of the floors below its own; not those above it, and
/// not its neighbours. What stands in no room is a mistake of this table and is named too.
#[rustfmt::skip]
const FLOORS: &[&[Room]] = &[
    &[("program",   &["tools/trine/src"])],             // all tools in one program
    &[("serve",     &["tools/serve/src"])],             // the server as a program
    &[("http",      &["tools/serve/src/http"])],
    &[("api",       &["tools/serve/src/api"])],         // JSON to requests, events to JSON
    &[("service",   &["tools/serve/src/service"])],     // a loaded model with all that answers need
    &[("args",      &["tools/serve/src/args"]),
      ("refusal",   &["tools/serve/src/error"])],       // what a client is told when it gets no text
    &[("engine",    &["tools/serve/src/engine"])],      // requests to events: steps over many texts
    &[("tools",     &["tools/src"])],
    &[("front",     &["src/lib", "src/error"])],        // what trine re-exports, and one error for all of it
    &[("open",      &["src/open"]),                     // a path to a model
      ("generate",  &["src/generate", "src/speculate"])], // the loop from prompt to text
    &[("handle",    &["src/handle"])],                  // weights, tokenizer and file of one model
    &[("quant",     &["src/quant"]),                    // these four work on files and texts
      ("convert",   &["src/convert"]),
      ("fisher",    &["src/fisher"]),
      ("eval",      &["src/eval"])],
    &[("widely",    &["src/widely"])],                  // real matrices to widely linear ones and back, in parts
    &[("step",      &["src/step"])],                    // one pass over segments of many sequences
    &[("model",     &["src/model"])],                   // weights, and the interpreter of blocks
    &[("chat",      &["src/chat"])],                    // messages to a prompt
    &[("grammar",   &["src/grammar"])],                 // which tokens may come next
    &[("tokenizer", &["src/tokenizer"]),
      ("sample",    &["src/sample"])],
    &[("ops",       &["src/ops"])],                     // operations: definition and dispatch
    &[("kv",        &["src/kv"]),                       // pages of keys and values
      ("linalg",    &["src/linalg"])],                  // factors and inverses of symmetric matrices
    &[("arch",      &["src/arch"]),                     // what architectures are: data
      ("kernels",   &["src/kernels"]),                  // rows, blocks and lanes
      ("cuda",      &["src/cuda"]),                     // layouts, plans and PTX for NVIDIA GPUs
      ("pool",      &["src/pool"])],                    // threads
    &[("formats",   &["formats/src"]),                  // what bytes mean
      ("math",      &["src/kernels/math", "src/math"]), // elementary functions
      ("cancel",    &["src/cancel"]),                   // a request to stop
      ("isolate",   &["src/isolate"])],                 // work on data that nobody has to trust
];

/// Rooms that are entered through the front door alone: others name what `mod.rs` shows, no module inside.
#[rustfmt::skip]
const FRONT_DOOR: &[(&str, &[&str])] = &[
    ("model", &["quant", "convert", "fisher", "eval", "handle", "open", "generate", "front", "tools"]),
    ("step",  &["quant", "convert", "fisher", "eval", "handle", "open", "generate", "front", "tools"]),
];

/// Folders that only their own part of the house may look into. They implement what stands around them, so that
/// both sides know one another; that is no circle.
const PRIVATE: &[(&str, &str)] = &[("src/kernels/arch", "src/kernels")];

/// Paths and macros that may be named in some places only, or everywhere but there, and why.
#[rustfmt::skip]
const WORDS: &[Word] = &[
    Word {
        starts: &["clap"],
        place: Place::Only(&["tools/src", "tools/serve/src", "tools/trine/src"]),
        why: "options of a command line end in tools",
    },
    Word {
        starts: &["std::arch", "core::arch", "asm!", "global_asm!", "naked_asm!"],
        place: Place::Only(&["src/kernels/arch"]),
        why: "intrinsics and assembly live in src/kernels/arch",
    },
    Word {
        starts: &["rayon", "crate::pool", "trine::pool", "std::thread::spawn", "std::thread::scope", "std::thread::Builder"],
        place: Place::Never(&["src/kernels", "src/cuda", "src/math", "formats/src"]),
        why: "kernels and formats run in the thread of their caller",
    },
];

/// Where `unsafe` may stand: kernels, the pool, where files are mapped, where the outputs of several products are
/// written by the tasks of one region, where signals get their handlers, and where NVIDIA's driver is called.
const UNSAFE: &[&str] =
    &["src/kernels", "src/cuda/driver", "src/pool", "src/open", "src/ops/product", "tools/src/signals"];

/// The crates whose sources are read: name in paths, and root file. While a crate is part of another one, its root
/// file does not exist.
const CRATES: &[(&str, &str)] = &[
    ("trine_formats", "formats/src/lib.rs"),
    ("trine_kernels", "src/kernels/lib.rs"),
    ("trine_cuda", "src/cuda/lib.rs"),
    ("trine", "src/lib.rs"),
    ("trine_tools", "tools/src/lib.rs"),
    ("trine_serve", "tools/serve/src/lib.rs"),
    ("trine_cli", "tools/trine/src/main.rs"),
];

/// Where something may be named.
enum Place {
    Only(&'static [&'static str]),
    Never(&'static [&'static str]),
}

/// A rule about paths that start in one of several ways.
struct Word {
    starts: &'static [&'static str],
    place: Place,
    why: &'static str,
}

/// Whether `file` is the module `place` or lies in its folder.
fn lies_in(file: &str, place: &str) -> bool {
    let rest = file.strip_prefix(place);
    rest.is_some_and(|r| r == ".rs" || r.starts_with('/'))
}

/// The floor, counted from the roof, and the name of the room that `file` belongs to: the one with the longest path.
fn room(file: &str) -> Option<(usize, &'static str)> {
    let rooms = FLOORS.iter().enumerate();
    let places = rooms.flat_map(|(floor, rooms)| {
        let places = move |room: &'static Room| room.1.iter().map(move |place| (floor, room.0, *place));
        rooms.iter().flat_map(places)
    });
    places
        .filter(|(.., place)| lies_in(file, place))
        .max_by_key(|(.., place)| place.len())
        .map(|(floor, name, _)| (floor, name))
}

/// All Rust files of a folder and the folders in it, by their path from the root of the repository.
fn collect(root: &Path, folder: &str, files: &mut Files) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else {
        return;
    };
    for entry in entries {
        let entry = entry.expect("a readable folder");
        let name = format!("{folder}/{}", entry.file_name().to_str().expect("a plain name"));
        if entry.path().is_dir() {
            collect(root, &name, files);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(entry.path()).expect("a readable file");
            files.insert(name, text);
        }
    }
}

/// Every broken rule of a tree of files, one a line.
fn violations(files: &Files) -> Vec<String> {
    let modules = Modules::read(files, CRATES);
    let mut all = modules.lost.clone();
    all.extend(rules::arrows(&modules));
    all.extend(rules::words(&modules));
    all.extend(rules::circles(&modules));
    all
}

#[test]
fn no_arrow_runs_upward_and_no_files_use_one_another_in_a_circle() {
    let mut files = Files::new();
    for folder in ["formats/src", "src", "tools/src", "tools/serve/src", "tools/trine/src"] {
        collect(Path::new(env!("CARGO_MANIFEST_DIR")), folder, &mut files);
    }
    assert!(files.len() > 100, "the sources were not found");
    let all = violations(&files);
    assert!(all.is_empty(), "{} broken rules\n{}", all.len(), all.join("\n"));
}
