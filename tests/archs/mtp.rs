//! Heads for multi-token prediction have the reference's logits, to the last bit, and drafts by them change no text.

use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use trine::generate::speculate::{Aside, AsideSource};
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions, Sink};
use trine::{Context, ContextOptions, DraftOptions, DraftSource, GenerateOptions, Isa, OpenOptions, SamplerOptions};
use trine_testkit::archs::{Listing, agreeing, with_heads};
use trine_testkit::golden::long_tokens;
use trine_testkit::sha256;

use crate::rotated::distance;
use crate::turned::{SIGNS, rotate, turned};
use crate::{TYPES, assert_all_tested, quantize, write_models};

models! {
    /// All models with heads.
    HEADS:
    bailingmoe3 "bailingmoe3",
    cohere2moe "cohere2moe",
    deepseek2 "deepseek2",
    deepseek32 "deepseek32",
    deepseek4 "deepseek4",
    glm4moe "glm4moe",
    glm_dsa "glm-dsa",
    hy_v3 "hy_v3",
    mimo2 "mimo2",
    mimo2_sizes "mimo2-sizes",
    nemotron_h_moe "nemotron_h_moe",
    qwen35 "qwen35",
    qwen35_ends "qwen35-ends",
    qwen35moe "qwen35moe",
    qwen3next "qwen3next",
    step35 "step35",
}

fn listing(name: &str) -> Listing {
    trine_testkit::archs::listing(&with_heads(name))
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/mtp.json")
}

#[test]
fn every_golden_head_is_tested() {
    assert_all_tested(&golden(), HEADS);
}

/// Writes the models for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_models_with_heads() {
    write_models(HEADS.iter().map(|name| (*name, listing(name).file())));
}

/// A model of `bytes` with its head.
fn load(bytes: Vec<u8>, isa: Isa) -> Weights {
    let options = LoadOptions { isa, mtp: true, ..LoadOptions::default() };
    Weights::load(&trine_testkit::gguf::model(bytes), &options).expect("a model with a head")
}

/// All that a step makes of one segment.
#[derive(Default)]
struct Rows {
    logits: Vec<Vec<f32>>,
    states: Vec<f32>,
}

impl Sink for Rows {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.logits.push(logits.to_vec());
    }

    fn hidden(&mut self, _: usize, _: usize, state: &[f32]) {
        self.states.extend_from_slice(state);
    }
}

/// The logits of the head of `model` behind every token, and of `drafted` more behind the last one, from its own states.
fn head_logits(model: &Weights, tokens: &[u32], drafted: usize, pool: &Pool, n_ubatch: usize) -> Vec<Vec<f32>> {
    let options = SessionOptions { n_ctx: tokens.len() + drafted, n_ubatch };
    let (mut text, mut of_text) = (Session::new(model, pool, options), Rows::default());
    text.eval_into(tokens, tokens.len(), &mut of_text).expect("room");
    let head = model.mtp_head().expect("a head");
    let n = head.reads_hidden();
    let before = [&vec![0.0; n], &of_text.states[..(tokens.len() - 1) * n]].concat();
    let (mut head, mut rows) = (Session::new(head, pool, options), Rows::default());
    head.eval_behind(&before, tokens, 0, &mut rows).expect("room");
    let mut logits = rows.logits;
    let mut state = rows.states[rows.states.len() - n..].to_vec();
    for _ in 0..drafted {
        let last = logits.last().expect("a row");
        let likeliest = (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).expect("a token");
        let mut row = Rows::default();
        head.eval_behind(&state, &[likeliest as u32], 0, &mut row).expect("room");
        state = row.states;
        logits.append(&mut row.logits);
    }
    logits
}

/// The model alone is rotated; a head with a table of tokens of its own reads that one as it is.
#[test]
fn heads_of_rotated_models_compute_what_they_did() {
    let pool = Pool::new(2).expect("threads");
    let tokens = &long_tokens()[..24];
    for name in HEADS {
        let file = trine_testkit::gguf::model(listing(name).file());
        let options = LoadOptions { mtp: true, ..LoadOptions::default() };
        let logits = |file| {
            let model = Weights::load(file, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
            head_logits(&model, tokens, 0, &pool, 512).concat()
        };
        let near = distance(&logits(&file), &logits(&turned(&file, rotate(64, SIGNS), None)));
        assert!(near < 2e-3, "{name}: {near}");
    }
}

/// The hashes of `logits` as the golden file has them.
fn hashes(logits: &[Vec<f32>], tokens: usize, positions: usize) -> Vec<String> {
    let bytes = |rows: &[Vec<f32>]| -> Vec<u8> { rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect() };
    let (of_text, drafted) = logits.split_at(tokens);
    let groups = of_text.chunks(positions).chain(drafted.chunks(1));
    groups.map(|rows| sha256(&bytes(rows))[..16].to_owned()).collect()
}

#[track_caller]
fn check(name: &str) {
    let (golden, tokens) = (golden(), long_tokens());
    let number = |key: &str| golden[key].as_u64().expect("a number") as usize;
    let (positions, drafted) = (number("positions"), number("drafted"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("F32.gguf");
    fs::write(&source, listing(name).file()).expect("room for the model");
    // in the short form one of the three types that are made of the file, another one for each name
    let turn = name.bytes().map(usize::from).sum::<usize>() % (TYPES.len() - 1) + 1;
    for (i, ty) in TYPES.into_iter().enumerate() {
        if i != 0 && i != turn && !trine_testkit::is_long() {
            continue;
        }
        let form = &golden["models"][name][ty];
        let path = dir.path().join(format!("{ty}.gguf"));
        if ty != TYPES[0] {
            quantize(&source, ty, &path);
        }
        let bytes = trine_testkit::read(&path);
        assert_eq!(sha256(&bytes), form["file"].as_str().expect("a hash"), "{name} {ty}: the file");
        let want: Vec<String> = serde_json::from_value(form["logits"].clone()).expect("hashes");
        // what decides no bit is tried in one type
        let ways = [(Isa::detect(), 2, 512), (Isa::detect(), 1, 7), (Isa::scalar(), 2, 512)];
        for (isa, threads, n_ubatch) in ways.into_iter().take(if i == turn { 3 } else { 1 }) {
            let pool = Pool::new(threads).expect("threads");
            let model = load(bytes.clone(), isa);
            let got = head_logits(&model, &tokens, drafted, &pool, n_ubatch);
            let got = hashes(&got, tokens.len(), positions);
            let wrong: Vec<usize> = (0..want.len()).filter(|&i| got.get(i) != Some(&want[i])).collect();
            assert!(
                wrong.is_empty(),
                "{name} {ty} {isa:?}, {threads} threads, {n_ubatch} rows: groups {wrong:?} differ"
            );
        }
    }
}

/// The problems of a model whose listing has every line changed by `change`, loaded with its head.
fn refusal(name: &str, change: impl Fn(&str) -> Option<String>) -> String {
    let text = fs::read_to_string(with_heads(name)).expect("a listing");
    let changed: Vec<String> = text.lines().filter_map(change).collect();
    let changed = changed.join("\n");
    assert!(changed != text.trim_end(), "{name}: nothing was changed");
    let file = trine_testkit::gguf::model(Listing::parse(&changed).file());
    // a head that nobody asks for is not looked at, but for its number
    let plain = Weights::load(&file, &LoadOptions::default()).map(|_| ()).map_err(|e| e.to_string());
    let options = LoadOptions { mtp: true, ..LoadOptions::default() };
    let line = Weights::load(&file, &options).err().expect("a refusal").to_string();
    assert!(!line.contains('\n'), "{line}");
    assert!(plain.is_ok() || plain == Err(line.clone()), "{plain:?}, {line}");
    line
}

#[test]
fn damaged_heads_are_refused_in_one_line() {
    let without = |part: &'static str| move |line: &str| (!line.contains(part)).then(|| line.to_owned());
    let with = |from: &'static str, to: &'static str| move |line: &str| Some(line.replace(from, to));
    let shaped = |tensor: &'static str, shape: &'static str| {
        move |line: &str| match line.split_once(tensor) {
            Some((start, _)) => Some(format!("{start}{tensor} {shape}")),
            None => Some(line.to_owned()),
        }
    };
    for name in HEADS {
        let missing = refusal(name, without("nextn.hnorm"));
        assert!(missing.contains("nextn.hnorm.weight is missing"), "{missing}");
        let missing = refusal(name, without("nextn.enorm"));
        assert!(missing.contains("nextn.enorm.weight is missing"), "{missing}");
        let narrow = refusal(name, shaped("nextn.eh_proj.weight", "32 16"));
        assert!(narrow.contains("nextn.eh_proj.weight") && narrow.contains("[32, 16]"), "{narrow}");
        let short = refusal(name, shaped("nextn.enorm.weight", "16"));
        assert!(short.contains("nextn.enorm.weight") && short.contains("[16]"), "{short}");
        let all = refusal(name, without("nextn."));
        // of some architectures the number alone says nothing
        let none = if *name == "deepseek4" { "the model has no heads" } else { "no tensors of the model's head" };
        assert!(all.contains(none), "{all}");
    }
    let ratio = refusal("deepseek4", with("compress_ratios [u32] 0 4 0", "compress_ratios [u32] 0 4 4"));
    assert!(ratio.contains("deepseek4.attention.compress_ratios is 4 for block 2"), "{ratio}");
    let listed = refusal("deepseek4", |line: &str| {
        let line = line.replace("hash_layer_count u32 1", "hash_layer_count u32 3");
        Some(line.replace("tensor blk.1.exp_probs_b.bias 6", "ids blk.1.ffn_gate_tid2eid.weight 6 3 160"))
    });
    assert!(listed.contains("deepseek4.hash_layer_count is 3, and block 2"), "{listed}");
    let epsilon = refusal("nemotron_h_moe", without("attention.layer_norm_epsilon"));
    assert!(epsilon.contains("nemotron_h_moe.attention.layer_norm_epsilon is missing"), "{epsilon}");
    let block = refusal("qwen35", without("blk.4.attn_k.weight"));
    assert!(block.contains("blk.4.attn_k.weight is missing"), "{block}");
    let experts = refusal("glm4moe", without("blk.3.ffn_gate_inp.weight"));
    assert!(experts.contains("blk.3.ffn_gate_inp.weight is missing"), "{experts}");
    let none = refusal("qwen35", without("tensor blk.4."));
    assert!(none.contains("no tensors of the model's head"), "{none}");
    let more = refusal("qwen35", with("nextn_predict_layers u32 1", "nextn_predict_layers u32 2"));
    assert!(more.contains("2 heads for multi-token prediction, and llama.cpp runs one of architecture"), "{more}");
    let many = refusal("qwen35", with("nextn_predict_layers u32 1", "nextn_predict_layers u32 6"));
    assert_eq!(many, "the model cannot run: qwen35.nextn_predict_layers is 6, of 5 layers");
}

#[test]
fn models_without_heads_are_refused() {
    let options = LoadOptions { mtp: true, ..LoadOptions::default() };
    let refused = |name: &str| {
        let loaded = Weights::load(&trine_testkit::gguf::model(crate::made(name)), &options);
        loaded.err().expect("a refusal").to_string()
    };
    let none = refused("qwen35-long");
    assert!(none.starts_with("the model has no heads for multi-token prediction (nextn_predict_layers); "), "{none}");
    let model = trine::open::load(trine_testkit::gguf::model(crate::made("qwen35-long")), &OpenOptions::default());
    let model = model.expect("a model");
    let draft = Some(DraftOptions::of(DraftSource::Mtp));
    let options = GenerateOptions { draft, ..GenerateOptions::greedy(4) };
    let refused = model.generate(&[1u32, 2][..], &options).err().expect("a refusal").to_string();
    assert!(refused.contains("head for multi-token prediction was not loaded"), "{refused}");
}

/// A text, and the logits behind every token that was evaluated for it.
type Text = (Vec<u32>, Vec<Vec<u32>>);

/// The continuation of `prompt` in `context`.
fn text(context: &mut Context, prompt: &[u32], options: &GenerateOptions) -> Text {
    let rows = Arc::new(Mutex::new(Vec::new()));
    let seen = rows.clone();
    context.observe(Some(Box::new(move |evaluated| {
        let bits = evaluated.logits.iter().map(|v| v.to_bits()).collect();
        seen.lock().expect("one thread").push(bits);
    })));
    let done = context.generate(prompt, options).expect("room").complete().expect("finite logits");
    context.observe(None);
    let rows = rows.lock().expect("one thread").clone();
    (done.tokens, rows)
}

#[test]
fn drafts_by_heads_change_no_text() {
    for name in ["qwen35-attends", "glm4moe", "qwen35", "qwen35moe", "qwen3next"] {
        let options = OpenOptions { mtp: true, ..OpenOptions::default() };
        let model = trine::open::load(trine_testkit::gguf::model(agreeing(&listing(name))), &options).expect("a model");
        let prompt: Vec<u32> = long_tokens()[..40].to_vec();
        let context = || model.context(&ContextOptions { n_ctx: Some(256), n_ubatch: 16, ..ContextOptions::default() });
        let greedy = GenerateOptions { past_eos: true, ..GenerateOptions::greedy(100) };
        let sampler = SamplerOptions { temp: 0.7, seed: 11, ..SamplerOptions::default() };
        let sampled = GenerateOptions { sampler, ..greedy.clone() };
        for options in [greedy, sampled] {
            let draft = Some(DraftOptions { most: 5, always: true, ..DraftOptions::of(DraftSource::Mtp) });
            let drafted = GenerateOptions { draft, ..options.clone() };
            let (mut plain, mut drafting) = (context(), context());
            let first = text(&mut plain, &prompt, &options);
            assert!(text(&mut drafting, &prompt, &drafted) == first, "{name}");
            let counts = drafting.drafts().expect("drafts").1.counts();
            assert!(counts.rounds > 10 && counts.accepted < counts.drafted, "{name}: {counts:?}");
            assert!(3 * counts.accepted > counts.drafted, "{name}: {counts:?}");
            // a text that goes on from a part of the first, and one whose beginning was not heard
            let mut second = [&prompt, &first.0[..30]].concat();
            second.extend([3, 1, 4]);
            let want = text(&mut plain, &second, &options).0;
            assert!(text(&mut drafting, &second, &drafted).0 == want, "{name}");
            let mut late = context();
            text(&mut late, &second[..60], &options);
            assert!(text(&mut late, &second, &drafted).0 == want, "{name}");
            assert!(late.drafts().expect("drafts").1.counts().accepted > 0, "{name}");
        }
    }
}

/// A model and a drafter of one text.
struct Drafting {
    session: Session,
    aside: Aside,
}

/// The position of a step's first token, and the drafter that hears.
struct Listening<'a>(usize, &'a mut Aside);

impl Sink for Listening<'_> {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, _: &[f32]) {}

    fn hidden(&mut self, _: usize, index: usize, state: &[f32]) {
        self.1.hear(self.0 + index, state);
    }
}

impl Drafting {
    fn new(model: &trine::Model) -> Drafting {
        let source = AsideSource::new(&DraftSource::Mtp, model).expect("heads").expect("a source");
        let session = model.session(SessionOptions { n_ctx: 256, n_ubatch: 32 });
        Drafting { session, aside: source.for_text(256) }
    }

    /// Evaluates tokens of the text.
    fn eval(&mut self, tokens: &[u32]) {
        let mut sink = Listening(self.session.n_past(), &mut self.aside);
        self.session.eval_into(tokens, tokens.len(), &mut sink).expect("room");
    }

    /// The likeliest tokens behind `last` behind `text`, and the bits of the logits that they were chosen from.
    fn draft(&mut self, text: &[u32], last: u32) -> (Vec<u32>, Vec<u32>) {
        let mut bits = Vec::new();
        self.aside.read(text).expect("nobody cancels");
        let drafted = self.aside.draft((text, last), 4, &mut |logits| {
            bits.extend(logits.iter().map(|v| v.to_bits()));
            (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).map(|id| id as u32)
        });
        (drafted.expect("nobody cancels").expect("the text was heard"), bits)
    }
}

/// A draft depends on the text alone: neither on drafts before nor on tokens that were taken back.
#[test]
fn heads_follow_the_text() {
    for name in ["glm4moe", "qwen35"] {
        let options = OpenOptions { mtp: true, ..OpenOptions::default() };
        let model = trine::open::load(trine_testkit::gguf::model(listing(name).file()), &options).expect("a model");
        let text = &long_tokens()[..90];
        let mut going = Drafting::new(&model);
        let mut done = 0;
        for (part, spoilt) in [(40, 0), (1, 3), (4, 1), (2, 5), (17, 2), (25, 4)] {
            going.eval(&text[done..done + part]);
            done += part;
            let got = going.draft(&text[..done], text[done]);
            let mut fresh = Drafting::new(&model);
            fresh.eval(&text[..done]);
            assert!(got == fresh.draft(&text[..done], text[done]), "{name}, {done} tokens");
            // a draft that is verified in vain
            let before = going.session.mark();
            going.eval(&[&[text[done]], &got.0[..spoilt.min(4)]].concat());
            going.session.restore(&before);
        }
    }
}
