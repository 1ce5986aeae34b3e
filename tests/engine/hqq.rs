//! Half-quadratic quantization of a whole model.

use trine::quant::{Encoder, Plan, Recipe, RunOptions, Target, run};

fn recipe(target: &str, method: &str) -> Recipe {
    let encoder = Encoder::named(method).expect("a method");
    // One layer is enough.
    let prune = vec![1, 2, 3, 4, 5];
    Recipe { encoder, prune, ..Recipe::new(Target::parse(target).expect("a type")) }
}

/// The bytes of the bundled model, quantized on `threads` threads.
fn quantized(target: &str, method: &str, threads: usize) -> Result<Vec<u8>, String> {
    let model = trine::open_file(trine_testkit::trilm(), true).expect("a model");
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out.gguf");
    let options = RunOptions { threads, ..RunOptions::default() };
    let mut plan = Plan::new(&model, &recipe(target, method)).map_err(|e| e.to_string())?;
    run(&model, &mut plan, &out, options, &mut ()).map_err(|e| e.to_string())?;
    Ok(std::fs::read(out).expect("it was written"))
}

#[test]
fn threads_change_no_byte_and_the_method_does() {
    let one = quantized("Q4_1", "hqq", 1).expect("a file");
    assert!(one == quantized("Q4_1", "hqq", 3).expect("a file"));
    let usual = quantized("Q4_1", "nearest", 3).expect("a file");
    assert!(one.len() == usual.len() && one != usual);
}

#[test]
fn types_without_a_scale_that_can_be_chosen_are_refused() {
    for target in ["F16", "TQ2_0", "Q3_K_S", "COPY"] {
        let error = quantized(target, "hqq", 1).expect_err("no type that it knows");
        assert!(error.starts_with("--method hqq knows none of the types"), "{target}: {error}");
    }
}
