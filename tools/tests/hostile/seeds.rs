//! Tests that look at texts are the same in every run.

use std::fs;

use super::kit::*;

/// Without a seed of its own a text has the one in the environment, or none at all.
#[test]
fn a_seed_may_be_required() {
    let dir = with_model();
    let words = ["-m", "m.gguf", "-p", "The game", "-n", "12", "--temp", "1.5"];
    let text = |more: &[&str], seed: &str| {
        let words = [&words[..], more].concat();
        command(dir.path(), RGEN, &words).env("TRINE_SEED", seed).output().unwrap()
    };
    let nine = succeeded(&text(&["--seed", "9"], "required"));
    assert_eq!(succeeded(&text(&[], "9")), nine);
    assert_ne!(succeeded(&text(&[], "10")), nine);
    assert!(refused(&text(&[], "required")).contains("TRINE_SEED=required"));
    for wrong in ["x", "-1", "4294967295"] {
        assert!(refused(&text(&[], wrong)).contains("TRINE_SEED is a number"), "{wrong}");
    }
}

/// Every tool that draws random numbers is started by the kit, which gives it a seed.
#[test]
fn tests_start_tools_with_a_seed() {
    let root = trine_testkit::root();
    let mut folders = ["tools/tests", "tools/serve/tests", "compat-tests/tests"].map(|f| root.join(f)).to_vec();
    let (mut read, mut wrong) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            read += usize::from(text.contains("command(env!(\"CARGO_BIN_EXE_rgen"));
            for start in ["env!(\"CARGO_BIN_EXE_rgen", "env!(\"CARGO_BIN_EXE_rserve", "program)", "exe)", "bin)"] {
                if text.contains(&format!("Command::new({start}")) {
                    wrong.push(format!("{}: Command::new({start}", path.display()));
                }
            }
        }
    }
    assert!(read > 5, "{read}");
    wrong.retain(|w| !w.contains("hostile/seeds.rs") && !w.contains("server/deploy.rs"));
    assert_eq!(wrong, [""; 0]);
}
