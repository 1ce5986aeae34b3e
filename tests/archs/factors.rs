//! Factors beside matrices: that on the logits, and those of a wrong shape or without a matrix.
//!
//! The factors of blocks are in all models that the reference's test program writes, and held by their logits. It
//! writes none beside the output matrix, because the reference looks there beside one of type NVFP4 alone.

use std::fs;

use trine::model::{LoadOptions, ModelError, Weights};
use trine::quant::{Fallback, Plan, Recipe, RunOptions, Target};
use trine_formats::gguf::Limits;
use trine_formats::types::TypeId;
use trine_testkit::sha256;

use crate::golden::{self, Golden};
use trine_testkit::archs::Listing;

/// The listing of a model with `more` lines.
fn listed(name: &str, more: &str) -> Vec<u8> {
    let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
    let text = fs::read_to_string(path).expect("a listing");
    Listing::parse(&format!("{}\n{more}", text.trim_end())).file()
}

/// A model with its output matrix in NVFP4 and everything else as it is, and factors beside the output.
fn with_output_factors(name: &str) -> Vec<u8> {
    let bytes = listed(name, "tensor output.scale 1\ntensor output.input_scale 1");
    let model = trine_testkit::gguf::model_at("f32.gguf".into(), bytes, &Limits::default());
    let mut recipe = Recipe::new(Target::parse("F32").expect("a type"));
    recipe.output_type = Some(TypeId::NVFP4);
    recipe.fallback = Fallback::Never;
    let mut plan = Plan::new(&model, &recipe).expect("a plan");
    let options = RunOptions { threads: 2, ..RunOptions::default() };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path().join("nvfp4.gguf");
    trine::quant::run(&model, &mut plan, &out, options, &mut ()).expect("a quantized file");
    trine_testkit::read(&out)
}

/// `TRINE_ARCHS` names a directory: the models are written there, for a reference program to read.
#[test]
fn the_factor_on_the_logits_is_the_references() {
    for (name, file, logits) in [
        ("llama-dense", "b8b4c302ca4e7347", "ff2d285ae53714c3"),
        // its graph has none
        ("talkie-dense", "47560585c54aaf24", "9a8d35349c1513b4"),
    ] {
        let bytes = with_output_factors(name);
        if let Some(dir) = std::env::var_os("TRINE_ARCHS") {
            let path = std::path::Path::new(&dir).join(format!("{name}-nvfp4.gguf"));
            fs::write(path, &bytes).expect("a writable directory");
        }
        let hash = sha256(&bytes);
        let model = Weights::load(&trine_testkit::gguf::model(bytes), &LoadOptions::default());
        let golden = Golden { positions: 70, ..golden::read().remove(name).expect("a model") };
        let got = crate::logits(&model.expect("a model"), &golden);
        assert_eq!([&hash[..16], &got[0]], [file, logits], "{name}");
    }
}

fn problems(bytes: Vec<u8>) -> Vec<String> {
    match Weights::load(&trine_testkit::gguf::model(bytes), &LoadOptions::default()) {
        Err(ModelError::Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn factors_of_a_wrong_shape_are_named() {
    let path = trine_testkit::testdata("archs/qwen2moe-moe.txt");
    let text = fs::read_to_string(path).expect("a listing");
    for (tensor, right, wrong) in [
        ("blk.0.attn_q.scale", 1, 2),
        ("blk.1.ffn_gate_exps.scale", 2, 1),
        ("blk.1.attn_output.input_scale", 1, 256),
        ("blk.0.ffn_down_exps.input_scale", 2, 3),
        ("blk.1.ffn_up_shexp.input_scale", 1, 2),
    ] {
        let line = format!("tensor {tensor} {right}");
        assert!(text.contains(&format!("{line}\n")), "{line}");
        let changed = text.replace(&format!("{line}\n"), &format!("tensor {tensor} {wrong}\n"));
        assert_eq!(
            problems(Listing::parse(&changed).file()),
            [format!("tensor {tensor} has shape [{wrong}], expected [{right}]")]
        );
    }
}

#[test]
fn factors_without_a_matrix_have_no_place() {
    for tensor in [
        "blk.0.attn_norm.scale",
        "blk.1.ffn_gate_inp.scale",
        "blk.0.attn_qkv.scale",
        "blk.2.attn_q.input_scale",
        "blk.0.ffn_gate_exps.input_scale",
        // beside NVFP4 alone
        "output.scale",
        "output.input_scale",
    ] {
        assert_eq!(
            problems(listed("llama-dense", &format!("tensor {tensor} 1"))),
            [format!("the architecture has no place for {tensor}")]
        );
    }
}
