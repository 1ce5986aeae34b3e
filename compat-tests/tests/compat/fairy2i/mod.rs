//! A model put through the widely linear quantizer: what the file computes is what a dense model with the same matrices
//! computes. In the long form it is a public one, SmolLM2-135M with its nine heads.

mod plain;

use std::io::Sink;
use std::path::Path;

use plain::{Form, Plain};
use trine::eval::Chunks;
use trine::eval::perplexity::perplexity;
use trine::quant::{Plan, Recipe, RunOptions, run};
use trine::tokenizer::Tokenizer;
use trine::{Pool, Target, Weights};
use trine_compat_tests::{files, is_long, models, or_skip, testdata};
use trine_formats::gguf::{Gguf, Limits, ModelFile};
use trine_formats::types::TypeId;

fn written(model: &ModelFile, target: Target, out: &Path) -> ModelFile {
    let mut plan = Plan::new(model, &Recipe::new(target)).expect("a plan");
    run(model, &mut plan, out, RunOptions::default(), &mut ()).expect("a file");
    files::model(files::read(out))
}

fn logits(model: &Weights, tokens: &[u32]) -> Vec<f32> {
    let mut out = Vec::new();
    models::session(model, tokens.len()).eval(tokens, 0, &mut |_, logits| out.extend_from_slice(logits)).expect("room");
    out
}

/// The largest difference, relative to the largest logit.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    let largest = |x: &mut dyn Iterator<Item = f32>| x.fold(0.0, |max: f32, v| max.max(v.abs()));
    let differences = &mut a.iter().zip(b).map(|(a, b)| a - b);
    largest(differences) / largest(&mut b.iter().copied())
}

/// A model whose token embeddings, in F32, are each a unit in the last place farther from zero.
fn nudged(path: &Path) -> ModelFile {
    let mut bytes = files::read(path);
    let gguf = Gguf::parse(&bytes, &Limits::default()).expect("a header");
    let mut tensors = gguf.tensors.iter();
    let embeddings = tensors.find(|t| t.name == "token_embd.weight");
    let embeddings = embeddings.expect("embeddings");
    assert_eq!(embeddings.ty, TypeId::F32);
    let at = (gguf.data_offset + embeddings.offset) as usize;
    let weights = &mut bytes[at..at + embeddings.bytes as usize];
    for weight in weights.as_chunks_mut::<4>().0 {
        *weight = (u32::from_le_bytes(*weight) + 1).to_le_bytes();
    }
    files::model(bytes)
}

#[test]
fn a_file_computes_what_the_dense_model_of_its_stages_computes() {
    let bundled = models::bundled(models::TRILM).expect("a model");
    let source = if is_long() { or_skip(models::smollm2()) } else { Some(&*bundled) };
    let Some(source) = source else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    // all weights in single precision, so that nothing but the matrices differs: 8-bit activations for the output
    // matrix would make steps of the smallest differences
    let mut plain = Recipe::new(Target::parse("F32").expect("a type"));
    plain.allow_requantize = true;
    let path = dir.path().join("f32.gguf");
    trine::quantize(&files::model(files::read(source)), &plain, &path).expect("a file");
    let source = files::model(files::read(&path));
    let fairy = written(&source, Target::Widely, &dir.path().join("fairy.gguf"));
    let dense = written(&fairy, Target::Dense(TypeId::F32), &dir.path().join("dense.gguf"));
    let [exact, want] = [&fairy, &dense].map(|file| models::load(file).expect("a model"));

    let text = std::fs::read_to_string(testdata("wikitext-2/wiki.test.raw")).expect("a text");
    let tokenizer = Tokenizer::from_metadata(source.meta()).expect("a tokenizer");
    let all = tokenizer.encode(&text, true, false).expect("tokens");
    let tokens = &all[..64];

    // with nothing rounded to f16 the products alone differ
    let pool = Pool::new(2).expect("threads");
    let plain = [Form::Codes, Form::Dense].map(|form| pool.install(|| Plain::new(&fairy, form).logits(tokens)));
    let off = difference(&plain[0], &plain[1]);
    assert!(off <= 1e-4, "logits in single precision differ by {off:e}");
    // the engine's KV cache is f16, and the smallest differences decide to which of two neighbours a number is rounded:
    // a unit in the last place of the dense model's own embeddings moves its logits as far
    let [a, b] = [&exact, &want].map(|m| logits(m, tokens));
    let moved = nudged(&dir.path().join("dense.gguf"));
    let moved = logits(&models::load(&moved).expect("a model"), tokens);
    let (off, noise) = (difference(&a, &b), difference(&moved, &b));
    assert!(off <= 2.0 * noise, "logits differ by {off:e}, and by {noise:e} of noise");

    if !is_long() {
        return;
    }
    let prompt = "Once upon a time";
    let [x, y] = [&exact, &want].map(|m| models::greedy(m, &tokenizer, prompt, 64).expect("a text"));
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
