//! The runtime: the same results as the dense model, and the same bits everywhere.

use trine::Isa;
use trine::model::{LoadOptions, ModelError, NumberPath, Weights};
use trine::pool::Pool;
use trine::quant::widely::Options;
use trine::step::{Engine, Segment, StepOptions};
use trine_formats::types::TypeId;
use trine_formats::widely::{OutputForm, Scope};
use trine_testkit::gguf;

use super::models::{bits, dense, logits, options, random, tokens, widely};

const ARCHITECTURES: [&str; 3] = ["llama", "qwen2", "qwen3"];

fn recipes() -> [Options; 4] {
    let recipe = |stages, scope, output| Options { stages, scope, output, ..Options::default() };
    [
        recipe(2, Scope::Tensor, OutputForm::Widely),
        recipe(1, Scope::Row, OutputForm::Dense),
        recipe(3, Scope::Tile64, OutputForm::Widely),
        recipe(4, Scope::Tensor, OutputForm::Dense),
    ]
}

/// Length of the difference relative to that of the logits. Single ones differ by more where a key or a value, which
/// are kept as half floats, is rounded to the neighbour.
fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let (a, b) = (a.concat(), b.concat());
    let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    let differences = length(&mut a.iter().zip(&b).map(|(a, b)| a - b));
    differences / length(&mut a.iter().copied())
}

#[test]
fn logits_are_those_of_the_dense_model_of_the_same_stages() {
    let tokens = tokens(40);
    for arch in ARCHITECTURES {
        for recipe in recipes() {
            let file = gguf::model(widely(&random(arch, TypeId::F32), &recipe));
            let plain = gguf::model(dense(&file, TypeId::F32));
            let load = |file, path| Weights::load(file, &options(path)).expect("a model");
            let run = |model: &Weights| logits(model, &tokens, (2, 512));
            let want = run(&load(&plain, NumberPath::default()));
            let got = run(&load(&file, NumberPath::F32));
            let off = difference(&want, &got);
            assert!(off <= 1e-4, "{arch} {recipe:?}: {off:e}");
            let fast = difference(&want, &run(&load(&file, NumberPath::I8)));
            assert!(off < fast && fast <= 0.05, "{arch} {recipe:?}: {fast:e} with 8 bits");
        }
    }
}

#[test]
fn instruction_sets_threads_batches_and_layouts_change_no_bit() {
    let tokens = tokens(33);
    for recipe in recipes() {
        let file = gguf::model(widely(&random("qwen2", TypeId::F32), &recipe));
        for number_path in [NumberPath::F32, NumberPath::I8] {
            let load = |isa, repack| {
                let options = LoadOptions { isa, repack, ..options(number_path) };
                Weights::load(&file, &options).expect("a model")
            };
            let want = bits(&logits(&load(Isa::scalar(), false), &tokens, (1, 1)));
            for isa in Isa::available() {
                for (repack, threads, n_ubatch) in
                    [(false, 2, 512), (true, 1, 1), (true, 2, 16), (true, 3, 7), (true, 8, 512)]
                {
                    let got = logits(&load(isa, repack), &tokens, (threads, n_ubatch));
                    assert!(
                        bits(&got) == want,
                        "{isa} {number_path:?} {recipe:?}, repack {repack}, {threads} threads, {n_ubatch} at once"
                    );
                }
            }
        }
    }
}

#[test]
fn batch_mates_change_no_bit() {
    let file = gguf::model(widely(&random("llama", TypeId::F32), &Options::default()));
    for number_path in [NumberPath::F32, NumberPath::I8] {
        let model = Weights::load(&file, &options(number_path)).expect("a model");
        let texts: Vec<Vec<u32>> = (0..5).map(|i| tokens(20 + i)[i..].to_vec()).collect();
        let alone: Vec<_> = texts.iter().map(|t| bits(&logits(&model, t, (2, 512)))).collect();
        let engine = Engine::new(&model, &Pool::new(2).expect("threads"), 1 << 24);
        let mut sequences: Vec<_> = texts.iter().map(|_| engine.sequence()).collect();
        let mut together = vec![Vec::new(); texts.len()];
        let mut segments: Vec<Segment> =
            sequences.iter_mut().zip(&texts).map(|(seq, tokens)| Segment { seq, tokens, logits_from: 0 }).collect();
        let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) = &mut |segment, _, logits| {
            together[segment].push(logits.iter().map(|v| v.to_bits()).collect::<Vec<u32>>());
        };
        let done = engine.step(&mut segments, &StepOptions::default(), sink);
        done.expect("room");
        assert!(together == alone, "{number_path:?}");
    }
}

#[test]
fn eight_bit_activations_are_refused_by_other_models() {
    let error = Weights::load(&random("llama", TypeId::F32), &options(NumberPath::I8));
    assert!(matches!(error.err(), Some(ModelError::NumberPath("llama"))));
}
