//! `docs/migration.md`: what becomes of llama.cpp's options, made from the table that the tools read.
#![allow(missing_docs)]

use std::fmt::Write as _;
use std::path::Path;

use trine_tools::args::{Fate, Foreign, TABLE, Takes};

const HEAD: &str = "\
# Coming from llama.cpp

The tools have llama.cpp's options by llama.cpp's names, short and long, with `_` or `-` between words. What stands in a tool's
`--help` does what it does there. Of the other options of llama.cpp's programs some change nothing in trine: they are
accepted, and a line on standard error says why. The rest are refused with a reason, because a tool that left them out in
silence would do something else than it was asked for. A word such as `-foo` that is no option is an error too; it is never
read as `-f oo`.

This page is made from the table in `tools/src/args/llama_cpp.rs`
(`TRINE_WRITE_DOCS=1 cargo test --release -p trine-tools --test migration`). An option that a tool has by now is that tool's, whatever
is said here.

";

fn names(option: &Foreign) -> String {
    let value = match option.takes {
        Takes::Nothing => "",
        Takes::Value => " X",
        Takes::Two => " X Y",
        Takes::Maybe => " [X]",
    };
    let names = option.names.iter().map(|name| format!("`{name}{value}`"));
    names.collect::<Vec<_>>().join(", ")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page += "## Accepted, because they change nothing\n\n| option | why |\n|---|---|\n";
    for option in TABLE {
        match option.fate {
            Fate::Harmless(why) => {
                let _ = writeln!(page, "| {} | {why} |", names(option));
            }
            Fate::HarmlessFor(why, values, _) => {
                let values = values.join("`, `");
                let _ = writeln!(page, "| {}: `{values}` | {why} |", names(option));
            }
            _ => {}
        }
    }
    page += "\n## Refused\n\n| option | why, and what instead |\n|---|---|\n";
    for option in TABLE {
        match option.fate {
            Fate::Refused(why) => {
                let _ = writeln!(page, "| {} | {why} |", names(option));
            }
            Fate::HarmlessFor(_, _, why) => {
                let _ = writeln!(page, "| {}: other values | {why} |", names(option));
            }
            _ => {}
        }
    }
    page
}

#[test]
fn docs_are_made_from_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/migration.md");
    let page = page();
    if std::env::var_os("TRINE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the page");
    }
    let written = std::fs::read_to_string(&path).expect("docs/migration.md");
    assert!(
        written == page,
        "docs/migration.md is older than the table; see the page for how it is made"
    );
}
