//! Quantizing that somebody ends.

use std::fs;

use trine::CancelToken;
use trine::quant::{Plan, Progress, Recipe, RunOptions, Target, run};

/// Ends the work as soon as it hears of any.
struct Impatient(CancelToken);

impl Progress for Impatient {
    fn tensor(&mut self, _: usize, _: &str) {}

    fn advance(&mut self, _: u64) {
        self.0.cancel();
    }
}

#[test]
fn a_cancelled_run_leaves_no_file_and_what_was_there() {
    let model = trine::open_file(trine_testkit::trilm(), true).expect("a model");
    // Rows, moves of ternary weights, codebooks.
    for target in ["Q4_K_M", "I2_S", "AP2-4"] {
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().join("out.gguf");
        fs::write(&out, "what was there").expect("a file");
        let recipe = Recipe::new(Target::parse(target).expect("a type"));
        let mut plan = Plan::new(&model, &recipe).expect("a plan");
        let cancel = CancelToken::new();
        let options = RunOptions { threads: 2, cancel: cancel.clone(), ..RunOptions::default() };
        let error = run(&model, &mut plan, &out, options, &mut Impatient(cancel)).expect_err("it was cancelled");
        assert_eq!(error.to_string(), "interrupted", "{target}");
        let left: Vec<_> = fs::read_dir(dir.path()).expect("a folder").map(|e| e.expect("an entry").path()).collect();
        assert_eq!(left, [out.as_path()], "{target}");
        assert_eq!(fs::read_to_string(&out).expect("a file"), "what was there", "{target}");
    }
}
