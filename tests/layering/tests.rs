//! The test of the house, tested on small synthetic trees.

use super::house::{HOUSE, House, Place, Word};
use super::modules::{Files, Modules};
use super::source;

/// The broken rules of a tree, under the table of the house.
fn violations(files: &Files) -> Vec<String> {
    super::violations(&HOUSE, files, &Modules::read(files, HOUSE.crates))
}

fn tree(files: &[(&str, &str)]) -> Files {
    let files = files.iter();
    files.map(|(file, text)| ((*file).into(), (*text).into())).collect()
}

/// The one broken rule of a tree.
#[track_caller]
fn broken(files: &[(&str, &str)]) -> String {
    let mut all = violations(&tree(files));
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[test]
fn arrows_that_run_down_are_right() {
    let files = tree(&[
        ("formats/src/lib.rs", "pub mod types; pub use types::TypeId;"),
        ("formats/src/types.rs", "pub struct TypeId;"),
        ("src/lib.rs", "pub mod ops; pub mod model; pub mod eval; pub use model::Model;"),
        ("src/ops/mod.rs", "use trine_formats::TypeId; pub mod norm;"),
        ("src/ops/norm.rs", "use super::add; fn f() { crate::ops::add() }"),
        ("src/model/mod.rs", "mod load; use crate::ops::norm; pub use load::Model;"),
        ("src/model/load.rs", "use {super::Error, crate::ops::{self, norm::rms as r}};"),
        ("src/eval/mod.rs", "use crate::model::{self, Model}; fn f() { model::Model::load() }"),
        ("tools/src/lib.rs", "use trine::Model; use clap::Parser;"),
    ]);
    assert_eq!(violations(&files), [""; 0]);
}

#[test]
fn an_arrow_that_runs_upward_is_named() {
    for (text, line) in [
        ("use crate::model::kv::Cache;", 1),
        ("// a\n/* b\n*/ use {std::fmt, crate::{pool, model as m}};", 3),
        ("\nfn f() { super::model::Model::new() }", 2),
        ("fn f(x: &crate::Model) {}", 1),
        ("mod inside { use super::super::model::Model; }", 1),
    ] {
        let found = broken(&[
            ("src/lib.rs", "mod ops; mod model; mod pool; pub use model::Model;"),
            ("src/pool.rs", ""),
            ("src/ops/mod.rs", text),
            ("src/model/mod.rs", "mod kv; pub struct Model;"),
            ("src/model/kv.rs", ""),
        ]);
        assert!(found.contains(&format!("src/ops/mod.rs:{line}: ops uses model")), "{found}");
        assert!(found.ends_with("the arrow runs upward"), "{found}");
    }
}

#[test]
fn neighbours_do_not_use_one_another() {
    let found = broken(&[
        ("src/lib.rs", "mod quant; mod eval;"),
        ("src/quant.rs", "use crate::eval::Chunks;"),
        ("src/eval.rs", "pub struct Chunks;"),
    ]);
    assert!(found.contains("quant uses eval (crate::eval::Chunks): neighbours"), "{found}");
}

#[test]
fn a_room_with_a_front_door_is_not_entered_elsewhere() {
    let lib = ("src/lib.rs", "mod model; mod fisher;");
    let model = ("src/model/mod.rs", "pub mod config; pub use config::Config;");
    let config = ("src/model/config.rs", "pub struct Config;");
    for text in ["use crate::model::config::Config;", "use crate::model; fn f() -> model::config::Config {}"] {
        let found = broken(&[lib, model, config, ("src/fisher/mod.rs", text)]);
        assert!(found.contains("front door"), "{found}");
    }
    let right = [lib, model, config, ("src/fisher/mod.rs", "use crate::model::Config;")];
    assert_eq!(violations(&tree(&right)), [""; 0]);
}

#[test]
fn the_kernels_inside_is_theirs() {
    let kernels = [
        ("src/kernels/lib.rs", "pub mod arch; mod rows;"),
        ("src/kernels/arch.rs", "use std::arch::x86_64::*; fn f() { unsafe { g() } }"),
        ("src/kernels/rows.rs", "use crate::arch::f;"),
    ];
    assert_eq!(violations(&tree(&kernels)), [""; 0]);
    let ops = ("src/ops.rs", "use crate::kernels::arch::f;");
    let lib = ("src/lib.rs", "mod ops; use trine_kernels as kernels;");
    let found = broken(&[&kernels[..], &[lib, ops]].concat());
    assert!(found.contains("src/kernels/arch belongs to src/kernels"), "{found}");
}

#[test]
fn a_mod_rs_with_logic_is_a_file_like_any_other() {
    let root = ("src/lib.rs", "mod fisher;");
    let child = ("src/fisher/chunks.rs", "use super::Error;");
    for text in [
        "mod chunks; use chunks::Chunks; pub struct Error;",
        "mod chunks; pub use chunks::Chunks; pub struct Error; fn f() -> Chunks {}",
        "mod chunks; pub struct Error; fn f() { chunks::g() }",
    ] {
        let found = broken(&[root, ("src/fisher/mod.rs", text), child]);
        assert!(
            found.contains("fisher/mod.rs: a circle of files: src/fisher/mod.rs -> src/fisher/chunks.rs"),
            "{found}"
        );
    }
    for text in [
        "mod chunks; pub struct Error; fn f() { self.chunks.g() }",
        "mod chunks; pub use chunks::{self, Chunks}; pub(crate) use chunks::Other; pub struct Error;",
    ] {
        assert_eq!(violations(&tree(&[root, ("src/fisher/mod.rs", text), child])), [""; 0]);
    }
    let declares = ("src/fisher/mod.rs", "mod chunks; mod error; use error::Error;");
    assert_eq!(violations(&tree(&[root, declares, ("src/fisher/error.rs", "pub struct Error;"), child])), [""; 0]);
}

#[test]
fn long_files_are_named() {
    let of = |lines: usize| tree(&[("formats/src/lib.rs", &"\n".repeat(lines))]);
    assert_eq!(violations(&of(HOUSE.lines)), [""; 0]);
    assert_eq!(
        violations(&of(HOUSE.lines + 1)),
        [format!("formats/src/lib.rs: {} lines outside of constants, {} at most", HOUSE.lines + 1, HOUSE.lines)]
    );
    let table = format!(
        "fn f<const N: usize, const M: usize>();const A: &[[u8; 1]] = &[\n{}];\n{}",
        "[0; 1],\n".repeat(500),
        "\n".repeat(498)
    );
    let source = source::read(&table);
    assert_eq!(source.lines, 499);
    assert!(source.logic);
}

#[test]
fn unsafe_functions_say_what_they_ask_for() {
    let of = |text: &str| violations(&tree(&[("src/kernels/lib.rs", "mod arch;"), ("src/kernels/arch.rs", text)]));
    for text in [
        "unsafe fn f() {}",
        "/// Adds.\nunsafe fn f() {}",
        "/// # Safety\n/// All of it.\nfn f() {}\npub unsafe extern \"C\" fn g() {}",
        "trait T { unsafe fn f(); }",
        "impl T { unsafe fn f() {} }",
        "impl A for T { unsafe fn f() {} }\nimpl<F: for<'a> B<'a>> T { unsafe fn f() {} }",
        "macro_rules! a { () => { unsafe fn $f() {} } }",
    ] {
        let line = text.lines().count();
        let found = of(text);
        assert_eq!(found, [format!("src/kernels/arch.rs:{line}: an unsafe function without a section `# Safety`")]);
    }
    for text in [
        "/// Adds.\n///\n/// # Safety\n/// All of it.\n#[inline]\n#[target_feature(enable = \"avx2\")]\nunsafe fn f() {}",
        "impl<const N: usize> A<N> for T { unsafe fn f() {} }",
        "type F = unsafe fn(u8);",
        "#[cfg(test)]\nmod tests { unsafe fn f() {} }",
    ] {
        assert_eq!(of(text), [""; 0]);
    }
}

#[test]
fn rows_that_concern_nothing_are_named() {
    const SMALL: House = House {
        floors: &[&[("eval", &["src/eval"]), ("front", &["src/lib"])], &[("model", &["src/model", "src/attic"])]],
        front_doors: &[("model", &["eval", "front"])],
        private: &[("src/model", "src"), ("src/model", "tools")],
        words: &[
            Word { starts: &["clap", "rayon"], place: Place::Only(&["src/eval", "src/model"]), why: "options" },
            Word { starts: &["clap"], place: Place::Never(&["src/model", "src/gone"]), why: "no options" },
        ],
        lines: 3,
        unsafe_places: &["src/eval", "src/model"],
        crates: &[("trine", "src/lib.rs"), ("gone", "gone/lib.rs")],
    };
    let files = tree(&[
        ("src/lib.rs", "mod eval; mod model;"),
        ("src/eval.rs", "use clap::Parser; use crate::model::Model; fn f() { unsafe { g() } }"),
        ("src/model.rs", "pub struct Model;"),
    ]);
    let expected = [
        "room model has no file in src/attic",
        "crate gone has no file gone/lib.rs",
        "no unsafe code in src/model",
        "nobody names rayon: options",
        "nothing in src/model needs the rule: options",
        "nothing in src/gone needs the rule: no options",
        "front never enters model",
        "nothing of src/model belongs to tools",
    ];
    let expected: Vec<String> = expected.iter().map(|row| format!("the table: {row}")).collect();
    assert_eq!(super::dead::rows(&SMALL, &Modules::read(&files, SMALL.crates)), expected);
}

#[test]
fn words_have_their_places() {
    for (text, why) in [
        ("use std::{fmt, arch::x86_64::__m256};", "intrinsics"),
        ("fn f() { std::arch::x86_64::_mm_pause() }", "intrinsics"),
        ("fn f() { std::arch::asm!(\"nop\") }", "intrinsics"),
        ("#[derive(clap::Args)] struct A; use clap::Args;", "command line"),
        ("use rayon::prelude::*;", "thread of their caller"),
        ("fn f() { std::thread::spawn(f) }", "thread of their caller"),
    ] {
        let found = broken(&[("formats/src/lib.rs", text)]);
        assert!(found.starts_with("formats/src/lib.rs:1: ") && found.contains(why), "{found}");
    }
    let found = broken(&[("formats/src/lib.rs", "\nfn f() { unsafe { g() } }")]);
    assert!(found.contains(":2: unsafe"), "{found}");
}

#[test]
fn a_circle_of_files_is_named_with_its_arrows() {
    let root = ("src/lib.rs", "mod quant;");
    let found = broken(&[
        root,
        ("src/quant/mod.rs", "mod plan; mod choose; mod work; mod end; pub use choose::Choice;"),
        ("src/quant/plan.rs", "\nuse super::{work::Work, Error}; use super::end::End;"),
        ("src/quant/work.rs", "use super::Choice;"),
        ("src/quant/choose/mod.rs", "mod deep;"),
        ("src/quant/choose/deep.rs", "fn f() { crate::quant::plan::g() }"),
        ("src/quant/end.rs", ""),
    ]);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 4, "{found}");
    assert!(lines[0].starts_with("src/quant/mod.rs: a circle of files: src/quant/"), "{found}");
    for place in ["plan.rs:2: super::work::Work", "work.rs:1: super::Choice", "deep.rs:1: crate::quant::plan::g"] {
        assert!(lines[1..].iter().any(|l| l.ends_with(place)), "{place}: {found}");
    }
    let right = tree(&[
        root,
        ("src/quant/mod.rs", "mod plan; use plan::A;"),
        ("src/quant/plan.rs", "macro_rules! a { ($a:ident) => { mod $a { use super::*; } } }"),
    ]);
    assert_eq!(violations(&right), [""; 0]);
    let right = tree(&[
        root,
        ("src/quant/mod.rs", "mod plan; mod work; pub struct Error;"),
        ("src/quant/plan.rs", "use super::work::Work; use super::Error;"),
        ("src/quant/work.rs", "use super::Error;"),
    ]);
    assert_eq!(violations(&right), [""; 0]);
}

#[test]
fn tests_may_use_what_they_like() {
    let files = tree(&[
        ("src/lib.rs", "mod ops; mod model; #[cfg(test)] mod fixtures;"),
        (
            "src/ops.rs",
            "#[cfg(test)]\n#[path = \"x\"]\nmod tests { use crate::model::Model; fn f() {} }\n#[cfg(test)] use crate::model::A;",
        ),
        ("src/model.rs", "#[cfg(all(test, unix))]\nfn f(x: [u8; 3]) { unsafe { g() } }"),
    ]);
    assert_eq!(violations(&files), [""; 0]);
}

#[test]
fn what_the_table_does_not_know_is_named() {
    let found = broken(&[("src/lib.rs", "mod attic;"), ("src/attic.rs", "")]);
    assert_eq!(found, "src/attic.rs: stands in no room of the table");
    let found = broken(&[("src/lib.rs", "mod gone;")]);
    assert_eq!(found, "src/lib.rs: module 'gone' has no file");
}

#[test]
fn comments_and_literals_name_nothing() {
    let text = r##"
        //! use crate::a;
        /* use crate::b; /* crate::c */ */
        const A: &str = "use crate::d; \" crate::e";
        const B: &str = r#"crate::f " crate::g"#;
        const C: (char, char, u8) = ('"', '\'', b'"');
        pub(in crate::g) fn f<'a>(x: &'a str) -> impl Iterator + use<'a> { x.h::<crate::right::T>() }
    "##;
    let read = source::read(text);
    let crates: Vec<_> = read.named.iter().filter(|n| n.path[0] == "crate").collect();
    assert_eq!(crates.len(), 1, "{crates:?}");
    assert_eq!((crates[0].path.join("::").as_str(), crates[0].line), ("crate::right::T", 7));
}

#[test]
fn comments_begin_with_the_thing() {
    let of = |text: &str| violations(&tree(&[("src/kernels/lib.rs", text)]));
    let told = |word: &str| [format!("src/kernels/lib.rs:1: a comment begins with '{word}': name the thing")];
    assert_eq!(of("/// What is there.\nfn f() {}"), told("What"));
    assert_eq!(of("//! Whether it is."), told("Whether"));
    assert_eq!(of("/// The bytes.\n/// Of these one.\nfn f() {}\n// What comes inside.\n"), [""; 0]);
}
