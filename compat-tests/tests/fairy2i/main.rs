//! A public model, SmolLM2-135M with its nine heads, put through the widely linear quantizer: what the file computes is what a
//! dense model with the same matrices computes.
#![allow(missing_docs)]

use std::io::Sink;
use std::path::Path;

use trine::eval::Chunks;
use trine::eval::perplexity::perplexity;
use trine::quant::RunOptions;
use trine::quant::widely::{Plan, Recipe, run};
use trine::tokenizer::Tokenizer;
use trine::{Target, Weights};
use trine_compat_tests::{files, models, or_skip, testdata};
use trine_formats::gguf::ModelFile;
use trine_formats::types::TypeId;

fn written(model: &ModelFile, plan: &Plan, out: &Path) -> ModelFile {
    run(model, plan, out, RunOptions::default(), &mut ()).expect("a file");
    files::model(files::read(out))
}

#[test]
fn smollm2_computes_what_the_dense_model_of_its_stages_computes() {
    let Some(source) = or_skip(models::smollm2()) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    // all weights in single precision, so that nothing but the matrices differs: 8-bit activations for the output matrix
    // would make steps of the smallest differences
    let mut plain = trine::Recipe::new(Target::parse("F32").expect("a type"));
    plain.allow_requantize = true;
    let path = dir.path().join("f32.gguf");
    trine::quantize(&files::model(files::read(source)), &plain, &path).expect("a file");
    let source = files::model(files::read(&path));
    let plan = Plan::new(&source, &Recipe::default()).expect("a plan");
    let fairy = written(&source, &plan, &dir.path().join("fairy.gguf"));
    let plan = Plan::dense(&fairy, TypeId::F32, &[]).expect("a plan");
    let dense = written(&fairy, &plan, &dir.path().join("dense.gguf"));
    let [exact, want] = [&fairy, &dense].map(|file| models::load(file).expect("a model"));

    let text = std::fs::read_to_string(testdata("wikitext-2/wiki.test.raw")).expect("a text");
    let tokenizer = Tokenizer::from_metadata(source.meta()).expect("a tokenizer");
    let all = tokenizer.encode(&text, true, false).expect("tokens");

    let prompt = "Once upon a time";
    let [x, y] =
        [&exact, &want].map(|m| models::greedy(m, &tokenizer, prompt, 64).expect("a text"));
    assert_eq!(x, y);

    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let chunks = Chunks::new(all.clone(), 256, bos, Some(2)).expect("chunks");
    let ppl = |model: &Weights| {
        let mut evaluator = models::side_by_side(model, 256);
        let estimate = perplexity::<Sink>(&mut evaluator, &chunks, None, &mut |_, _| Ok(()));
        estimate.expect("an estimate").ppl()
    };
    let (x, y) = (ppl(&exact), ppl(&want));
    assert!((x / y - 1.0).abs() <= 1e-3, "perplexity {x} for {y}");
}
