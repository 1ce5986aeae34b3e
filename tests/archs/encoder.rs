//! Models with an encoder have the reference's logits behind a text that it has read, to the last bit.

use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Engine, EvalError, Segment, Session, SessionOptions, StepError, StepOptions};
use trine::{ContextOptions, DraftOptions, DraftSource, GenerateOptions, Isa, OpenOptions, SamplerOptions};
use trine_testkit::archs::{Listing, with_encoder};
use trine_testkit::sha256;

use crate::{TYPES, assert_all_tested, quantize, write_models};

models! {
    /// All models with an encoder.
    ENCODERS:
    t5 "t5",
    t5_plain "t5-plain",
}

/// The listing of a model.
pub fn listing(name: &str) -> Listing {
    trine_testkit::archs::listing(&with_encoder(name))
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/encoder.json")
}

/// The tokens that the reference read, and those behind them.
fn tokens(golden: &Value) -> [Vec<u32>; 2] {
    let mut source = trine_testkit::golden::long_tokens();
    let text = source.split_off(golden["source"].as_u64().expect("a number") as usize);
    [source, text]
}

#[test]
fn every_golden_encoder_is_tested() {
    assert_all_tested(&golden(), ENCODERS);
}

/// Writes the models for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_models_with_encoders() {
    write_models(ENCODERS.iter().map(|name| (*name, listing(name).file())));
}

fn load(bytes: Vec<u8>, isa: Isa) -> Weights {
    let options = LoadOptions { isa, ..LoadOptions::default() };
    Weights::load(&trine_testkit::gguf::model(bytes), &options).expect("a model with an encoder")
}

/// The likeliest token of a row.
fn likeliest(row: &[f32]) -> u32 {
    (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("a token") as u32
}

/// The logits behind every token of `text` in a session whose encoder has read `source`.
fn logits(session: &mut Session, source: &[u32], text: &[u32]) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    session.read_source(source).expect("a source");
    session.eval(text, 0, &mut |_, row| rows.push(row.to_vec())).expect("room");
    rows
}

fn hash(rows: &[Vec<f32>]) -> String {
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    sha256(&bytes)[..16].to_owned()
}

#[track_caller]
fn check(name: &str) {
    let golden = golden();
    let [source, text] = tokens(&golden);
    let positions = golden["positions"].as_u64().expect("a number") as usize;
    let of_model = &golden["models"][name];
    let first = of_model["first"].as_u64().expect("a token") as u32;
    let text = [&[first], &text[..]].concat();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let made = dir.path().join("F32.gguf");
    fs::write(&made, listing(name).file()).expect("room for the model");
    for ty in TYPES {
        let form = &of_model[ty];
        let path = dir.path().join(format!("{ty}.gguf"));
        if ty != TYPES[0] {
            quantize(&made, ty, &path);
        }
        let bytes = trine_testkit::read(&path);
        assert_eq!(sha256(&bytes), form["file"].as_str().expect("a hash"), "{name} {ty}: the file");
        let want: Vec<String> = serde_json::from_value(form["logits"].clone()).expect("hashes");
        let chosen: Vec<u32> = serde_json::from_value(form["greedy"].clone()).expect("ids");
        let best = trine::Isa::from_env().expect("a set that the processor has");
        let ways = [(best, 2, 512), (best, 1, 7), (Isa::scalar(), 2, 512)];
        for (isa, threads, n_ubatch) in ways {
            let pool = Pool::new(threads).expect("threads");
            let model = load(bytes.clone(), isa);
            let mut session = Session::new(&model, &pool, SessionOptions { n_ctx: text.len(), n_ubatch });
            let rows = logits(&mut session, &source, &text);
            let mut got: Vec<String> = rows.chunks(positions).map(hash).collect();
            let mut row = logits(&mut session, &source, &[first]).remove(0);
            let mut greedy = Vec::new();
            for _ in 0..chosen.len() {
                got.push(hash(std::slice::from_ref(&row)));
                greedy.push(likeliest(&row));
                let last = &greedy[greedy.len() - 1..];
                session.eval(last, 0, &mut |_, next| row.copy_from_slice(next)).expect("room");
            }
            assert_eq!(greedy, chosen, "{name} {ty}");
            let wrong: Vec<usize> = (0..want.len()).filter(|&i| got.get(i) != Some(&want[i])).collect();
            assert!(
                wrong.is_empty() && got.len() == want.len(),
                "{name} {ty} {isa:?}, {threads} threads, {n_ubatch} rows: groups {wrong:?} differ"
            );
        }
    }
}

/// A model opened as users open it, and the tokens of the golden values.
fn opened(name: &str) -> (trine::Model, [Vec<u32>; 2], Value) {
    let golden = golden();
    let file = trine_testkit::gguf::model(listing(name).file());
    let model = trine::open::load(file, &OpenOptions::default()).expect("a model");
    (model, tokens(&golden), golden["models"][name].clone())
}

#[test]
fn a_prompt_is_read_by_the_encoder_and_the_text_begins_with_its_own_token() {
    for name in ENCODERS {
        let (model, [source, _], golden) = opened(name);
        let chosen: Vec<u32> = serde_json::from_value(golden["F32"]["greedy"].clone()).expect("ids");
        let hashes: Vec<String> = serde_json::from_value(golden["F32"]["logits"].clone()).expect("hashes");
        let mut context = model.context(&ContextOptions { n_ctx: Some(64), ..ContextOptions::default() });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let rows = seen.clone();
        context.observe(Some(Box::new(move |evaluated| {
            rows.lock().expect("one thread").push((
                evaluated.position,
                evaluated.token,
                hash(&[evaluated.logits.to_vec()]),
            ));
        })));
        let options = GenerateOptions { past_eos: true, ..GenerateOptions::greedy(chosen.len()) };
        // what another prompt left in the context is nothing to a text
        let other = context.generate(&source[3..], &options).expect("room").complete().expect("finite logits");
        seen.lock().expect("one thread").clear();
        let mut generation = context.generate(&source[..], &options).expect("room");
        assert_eq!(
            (generation.source(), generation.prompt()),
            (&source[..], &[golden["first"].as_u64().expect("a token") as u32][..])
        );
        let mut tokens = Vec::new();
        for chunk in generation.by_ref() {
            tokens.extend(chunk.expect("finite logits").token);
        }
        drop(generation);
        assert_eq!(tokens, chosen, "{name}");
        assert_ne!(other.tokens, chosen, "{name}: the prompt changes nothing");
        // the last token is not evaluated
        let seen = seen.lock().expect("one thread").clone();
        let wanted: Vec<String> = hashes[hashes.len() - chosen.len()..].to_vec();
        assert_eq!(seen.iter().map(|(_, _, hash)| hash.clone()).collect::<Vec<_>>(), wanted, "{name}");
        assert!(seen.iter().enumerate().all(|(i, (position, ..))| *position == i), "{seen:?}");
        let many = model.generate_many([&source[..], &source[3..]], &options).expect("texts");
        assert_eq!([&many[0].tokens, &many[1].tokens], [&chosen, &other.tokens], "{name}");
    }
}

#[test]
fn texts_behind_an_encoder_are_sampled_shifted_and_drafted_alike() {
    let (model, [source, _], _) = opened("t5");
    let context = || model.context(&ContextOptions { n_ctx: Some(24), n_ubatch: 5, ..ContextOptions::default() });
    let sampler = SamplerOptions { temp: 0.8, seed: 5, ..SamplerOptions::default() };
    for options in [
        GenerateOptions { past_eos: true, ..GenerateOptions::greedy(60) },
        GenerateOptions { sampler, past_eos: true, ..GenerateOptions::greedy(60) },
    ] {
        // a context that is full forgets positions, and never the encoder's text
        let options = GenerateOptions { shift: Some(1), ..options };
        let text = |options: &GenerateOptions| {
            let mut context = context();
            let text = context.generate(&source[..], options).expect("room").complete();
            text.expect("finite logits").tokens
        };
        let plain = text(&options);
        assert_eq!(plain.len(), 60);
        let draft = Some(DraftOptions { always: true, ..DraftOptions::of(DraftSource::Text) });
        assert_eq!(text(&GenerateOptions { draft, ..options.clone() }), plain);
    }
    let same = model.clone();
    let (other, ..) = opened("t5");
    let draft = Some(DraftOptions::of(DraftSource::Model(other)));
    let refused = same.generate(&source[..], &GenerateOptions { draft, ..GenerateOptions::greedy(4) });
    let refused = refused.err().expect("a refusal").to_string();
    assert!(refused.contains("the draft model has an encoder"), "{refused}");
}

#[test]
fn sequences_have_sources_of_their_own_and_forks_keep_them() {
    let golden = golden();
    let [source, text] = tokens(&golden);
    let pool = Pool::new(2).expect("threads");
    let model = load(listing("t5-plain").file(), Isa::detect());
    let engine = Engine::new(&model, &pool, 8 << 20);
    let options = StepOptions { n_ctx: 64, ..StepOptions::default() };
    let alone = |source: &[u32]| {
        let mut session = Session::new(&model, &pool, SessionOptions { n_ctx: 64, n_ubatch: 64 });
        logits(&mut session, source, &text[..20])
    };
    // two texts in one step, the second of which is a fork of a sequence that is gone
    let mut first = engine.sequence();
    engine.read_source(&mut first, &source, &options).expect("a source");
    let mut other = engine.sequence();
    engine.read_source(&mut other, &source[9..], &options).expect("a source");
    engine
        .step(&mut [Segment { seq: &mut other, tokens: &text[..7], logits_from: 7 }], &options, &mut |_, _, _| {})
        .expect("room");
    let mut forked = other.fork(5);
    drop(other);
    let mut rows = [Vec::new(), Vec::new()];
    let mut segments = [
        Segment { seq: &mut first, tokens: &text[..20], logits_from: 0 },
        Segment { seq: &mut forked, tokens: &text[5..20], logits_from: 0 },
    ];
    engine.step(&mut segments, &options, &mut |text, _, row| rows[text].push(row.to_vec())).expect("room");
    assert!(rows[0] == alone(&source));
    assert!(rows[1] == alone(&source[9..])[5..]);
}

#[test]
fn a_sequence_without_a_source_is_refused() {
    let pool = Pool::new(1).expect("threads");
    let options = SessionOptions { n_ctx: 8, n_ubatch: 8 };
    let model = load(listing("t5").file(), Isa::detect());
    let mut session = Session::new(&model, &pool, options);
    let refused = |done: Result<(), EvalError>| done.expect_err("a refusal");
    assert_eq!(refused(session.eval(&[1], 0, &mut |_, _| {})), EvalError::Step(StepError::NoSource));
    assert_eq!(refused(session.read_source(&[])), EvalError::Step(StepError::NoSource));
    let unknown = EvalError::UnknownToken { id: 160, index: 1, n_vocab: 160 };
    assert_eq!(refused(session.read_source(&[3, 160])), unknown);
    session.read_source(&[3]).expect("a source");
    session.eval(&[1], 0, &mut |_, _| {}).expect("room");
    session.clear();
    assert_eq!(refused(session.eval(&[1], 0, &mut |_, _| {})), EvalError::Step(StepError::NoSource));
    let plain = Weights::load(&trine_testkit::gguf::model(crate::made("llama-long")), &LoadOptions::default());
    let mut session = Session::new(&plain.expect("a model"), &pool, options);
    assert_eq!(refused(session.read_source(&[1])), EvalError::Step(StepError::NoEncoder));
}

/// The refusal of a model whose listing has every line changed by `change`.
fn refusal(name: &str, change: impl Fn(&str) -> Option<String>) -> String {
    let text = fs::read_to_string(with_encoder(name)).expect("a listing");
    let changed: Vec<String> = text.lines().filter_map(change).collect();
    let changed = changed.join("\n");
    assert!(changed != text.trim_end(), "{name}: nothing was changed");
    let file = trine_testkit::gguf::model(Listing::parse(&changed).file());
    let line = Weights::load(&file, &LoadOptions::default()).err().expect("a refusal").to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn damaged_encoders_are_refused_in_one_line() {
    let without = |part: &'static str| move |line: &str| (!line.contains(part)).then(|| line.to_owned());
    let with = |from: &'static str, to: &'static str| move |line: &str| Some(line.replace(from, to));
    for name in ENCODERS {
        for tensor in ["enc.blk.1.attn_k.weight", "enc.output_norm.weight", "dec.output_norm.weight"] {
            let pattern = if tensor.contains("blk") { ".attn_k.weight" } else { tensor };
            let missing = refusal(name, without(pattern));
            assert!(missing.contains(&format!("{tensor} is missing")), "{missing}");
        }
        for part in ["norm", "q", "k", "v", "o"] {
            let tensor = format!("cross_attn_{part}.weight");
            let missing = refusal(name, |line| (!line.contains(&tensor)).then(|| line.to_owned()));
            for layer in [0, 1] {
                assert!(missing.contains(&format!("dec.blk.{layer}.{tensor} is missing")), "{missing}");
            }
        }
        let biases = refusal(name, without(".attn_rel_b"));
        assert!(biases.contains("enc.blk.0.attn_rel_b.weight is missing"), "{biases}");
    }
    let start = refusal("t5", with("decoder_start_token_id u32 5", "decoder_start_token_id u32 160"));
    assert_eq!(start, "the model cannot run: t5.decoder_start_token_id is 160, of a vocabulary of 160");
    let blocks = refusal("t5", with("decoder_block_count u32 2", "decoder_block_count u32 0"));
    assert_eq!(blocks, "the model cannot run: t5.decoder_block_count is 0, it must be 1 to 512");
    let buckets = refusal("t5", with("buckets_count u32 32", "buckets_count u32 256"));
    assert!(buckets.contains("t5.attention.relative_buckets_count is 256, it must be 1 to 252"), "{buckets}");
    let more = refusal("t5", with("decoder_block_count u32 2", "decoder_block_count u32 1"));
    assert!(more.contains("dec.blk.1."), "{more}");
}
