//! EAGLE-3 drafters have the reference's logits, to the last bit, and drafts by them change no text.

use std::fs;
use std::sync::Arc;

use serde_json::Value;
use trine::generate::speculate::{Aside, AsideSource};
use trine::model::{DrafterFile, LoadOptions, Model};
use trine::step::{SessionOptions, Sink};
use trine::{ContextOptions, DraftOptions, DraftSource, GenerateOptions, Isa, OpenOptions, SamplerOptions};
use trine_testkit::archs::{Listing, drafter, listing};
use trine_testkit::golden::long_tokens;
use trine_testkit::sha256;

use crate::{TYPES, assert_all_tested, made, quantize, write_models};

/// The model that all of them draft for.
const MODEL: &str = "llama-long";

models! {
    /// All drafters.
    DRAFTERS:
    eagle3 "eagle3",
    eagle3_plain "eagle3-plain",
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/eagle3.json")
}

#[test]
fn every_golden_drafter_is_tested() {
    assert_all_tested(&golden(), DRAFTERS);
}

/// Writes the drafters and the model for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_drafters() {
    write_models(DRAFTERS.iter().map(|name| (*name, listing(&drafter(name)).file())));
    write_models([(MODEL, made(MODEL))]);
}

/// The model with a drafter in a folder, opened as users open it.
fn open(bytes: &[u8], isa: Isa, threads: usize) -> trine::Model {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("drafter.gguf");
    fs::write(&path, bytes).expect("room");
    let options = OpenOptions {
        drafter: Some(path),
        isa: Some(isa),
        threads: Some(threads),
        mmap: false,
        ..OpenOptions::default()
    };
    trine::open::load(trine_testkit::gguf::model(made(MODEL)), &options).expect("a model with a drafter")
}

/// The position of a step's first token, and the drafter that hears.
struct Listening<'a>(usize, &'a mut Aside, Vec<f32>);

impl Sink for Listening<'_> {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.2 = logits.to_vec();
    }

    fn hidden(&mut self, _: usize, index: usize, state: &[f32]) {
        self.1.hear(self.0 + index, state);
    }
}

fn likeliest(row: &[f32]) -> u32 {
    (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("a token") as u32
}

/// The logits behind `last` and behind each of `most - 1` tokens that are drafted behind it, in a text that the drafter
/// hears in steps of so many tokens.
fn drafted(model: &trine::Model, text: &[u32], last: Option<u32>, most: usize, step: usize) -> Vec<Vec<f32>> {
    let source = AsideSource::new(&DraftSource::Eagle3, model).expect("a drafter").expect("a source");
    let mut session = model.session(SessionOptions { n_ctx: 512, n_ubatch: step });
    let mut aside = source.for_text(512);
    let mut row = Vec::new();
    for part in text.chunks(step) {
        let mut sink = Listening(session.n_past(), &mut aside, Vec::new());
        session.eval_into(part, part.len() - 1, &mut sink).expect("room");
        row = sink.2;
    }
    aside.read(text).expect("nobody cancels");
    let mut rows = Vec::new();
    let mut guess = |logits: &[f32]| {
        rows.push(logits.to_vec());
        Some(likeliest(logits))
    };
    let last = last.unwrap_or_else(|| likeliest(&row));
    aside.draft((text, last), most, &mut guess).expect("nobody cancels").expect("the text was heard");
    rows
}

#[track_caller]
fn check(name: &str) {
    let (golden, tokens) = (golden(), long_tokens());
    let number = |key: &str| golden[key].as_u64().expect("a number") as usize;
    let (positions, n_drafted) = (number("positions"), number("drafted"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("F32.gguf");
    fs::write(&source, listing(&drafter(name)).file()).expect("room for the model");
    for ty in TYPES {
        let form = &golden["models"][name][ty];
        let path = dir.path().join(format!("{ty}.gguf"));
        if ty != TYPES[0] {
            quantize(&source, ty, &path);
        }
        let bytes = trine_testkit::read(&path);
        assert_eq!(sha256(&bytes), form["file"].as_str().expect("a hash"), "{name} {ty}: the file");
        let want: Vec<String> = serde_json::from_value(form["logits"].clone()).expect("hashes");
        let best = Isa::from_env().expect("a set that the processor has");
        for (isa, threads, step) in [(best, 2, 512), (Isa::scalar(), 1, 7)] {
            let model = open(&bytes, isa, threads);
            let of_pair = |at: usize| drafted(&model, &tokens[..at], Some(tokens[at]), 1, step).remove(0);
            // one group of pairs, another one for each way, and all drafted rows
            let group = if step == 7 { 1 } else { want.len() - n_drafted - 1 };
            let pairs = group * positions..((group + 1) * positions).min(tokens.len() - 1);
            let rows: Vec<Vec<f32>> = pairs.map(|pair| of_pair(pair + 1)).collect();
            let hash = |rows: &[Vec<f32>]| {
                let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
                sha256(&bytes)[..16].to_owned()
            };
            assert_eq!(hash(&rows), want[group], "{name} {ty} {isa:?}: group {group}");
            let rows = drafted(&model, &tokens, None, n_drafted, step);
            let got: Vec<String> = rows.chunks(1).map(hash).collect();
            assert_eq!(got, want[want.len() - n_drafted..], "{name} {ty} {isa:?}: drafted rows");
        }
    }
}

#[test]
fn drafts_by_drafters_change_no_text() {
    for name in DRAFTERS {
        let model = open(&listing(&drafter(name)).file(), Isa::detect(), 2);
        let prompt = &long_tokens()[..40];
        let greedy = GenerateOptions { past_eos: true, ..GenerateOptions::greedy(60) };
        let sampler = SamplerOptions { temp: 0.7, seed: 11, ..SamplerOptions::default() };
        let sampled = GenerateOptions { sampler, ..greedy.clone() };
        for options in [greedy, sampled] {
            let mut context = model.context(&ContextOptions { n_ctx: Some(256), ..ContextOptions::default() });
            let plain = context.generate(prompt, &options).expect("room").complete().expect("finite logits").tokens;
            let draft = Some(DraftOptions { most: 5, always: true, ..DraftOptions::of(DraftSource::Eagle3) });
            let options = GenerateOptions { draft, ..options };
            let mut context = model.context(&ContextOptions { n_ctx: Some(256), ..ContextOptions::default() });
            let drafted = context.generate(prompt, &options).expect("room").complete().expect("finite logits").tokens;
            assert_eq!(drafted, plain, "{name}");
            let counts = context.drafts().expect("drafts").1.counts();
            assert!(counts.rounds > 10 && counts.drafted > 10, "{name}: {counts:?}");
        }
    }
}

#[test]
fn damaged_drafters_are_refused_in_one_line() {
    let refused = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(drafter(name)).expect("a listing");
        let lines: Vec<String> = text.lines().map(|line| line.replace(from, to)).collect();
        let changed = lines.join("\n");
        assert!(changed != text.trim_end(), "{name}: nothing was changed");
        let file = Arc::new(trine_testkit::gguf::model(Listing::parse(&changed).file()));
        let options = LoadOptions { drafter: Some(DrafterFile(file)), ..LoadOptions::default() };
        let line = Model::load(&trine_testkit::gguf::model(made(MODEL)), &options);
        let line = line.err().expect("a refusal").to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    let far = refused("eagle3", "target_layers [i32] 2 0 1", "target_layers [i32] 3 0 1");
    assert!(far.contains("it reads the input of block 3, and this model has 3"), "{far}");
    let few = refused("eagle3", "target_layers [i32] 2 0 1", "target_layers [i32] 2 0");
    assert!(few.contains("eagle3.target_layers has 2 entries, it must have 3"), "{few}");
    let width = refused("eagle3", "target_hidden_size u32 256", "target_hidden_size u32 128");
    assert!(width.contains("a model of 128 hidden numbers, and this one has 256"), "{width}");
    let tokens = refused("eagle3", "places d2t 160 64", "places d2t 400 64");
    assert!(tokens.contains("d2t") && tokens.contains("tokens of a vocabulary of 160"), "{tokens}");
    let lacking = refused("eagle3", "tensor fc.weight 768 256", "");
    assert!(lacking.contains("fc.weight is missing"), "{lacking}");
    let norm = refused("eagle3-plain", "tensor blk.0.attn_norm_2.weight 256", "");
    assert!(norm.contains("blk.0.attn_norm_2.weight is missing"), "{norm}");
    let other = refused("eagle3", "general.architecture str eagle3", "general.architecture str llama");
    assert!(other.contains("it is of architecture 'llama'"), "{other}");
}

#[test]
fn a_drafter_that_was_not_loaded_is_refused() {
    let model = trine::open::load(trine_testkit::gguf::model(made(MODEL)), &OpenOptions::default()).expect("a model");
    let draft = Some(DraftOptions::of(DraftSource::Eagle3));
    let refused = model.generate(&[1u32, 2][..], &GenerateOptions { draft, ..GenerateOptions::greedy(4) });
    let refused = refused.err().expect("a refusal").to_string();
    assert!(refused.contains("no drafter was loaded"), "{refused}");
}
