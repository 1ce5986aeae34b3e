//! Small random models that make vectors and ranks have the reference's, to the last bit: for every pooling, for texts
//! of several lengths, alone and several in one step, in four tensor types.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Engine, Pooled, Pooling, Segment, Sequence, Setting, Sink, StepError, StepOptions};
use trine::{EmbedOptions, RankOptions, Scale, SessionOptions};
use trine_testkit::archs::{Listing, of_vectors};
use trine_testkit::sha256;

use crate::{TYPES, assert_all_tested, quantize, write_models};

models! {
    /// All models that make vectors.
    VECTORS:
    bert "bert",
    bert_rank "bert-rank",
    bert_rank_plain "bert-rank-plain",
    eurobert "eurobert",
    gemma_embedding "gemma-embedding",
    gemma_embedding_dense "gemma-embedding-dense",
    jina_bert_v2 "jina-bert-v2",
    jina_bert_v2_fused "jina-bert-v2-fused",
    jina_bert_v2_plain "jina-bert-v2-plain",
    jina_bert_v3 "jina-bert-v3",
    llama_embed "llama-embed",
    modern_bert "modern-bert",
    modern_bert_first "modern-bert-first",
    modern_bert_rank "modern-bert-rank",
    neo_bert "neo-bert",
    nomic_bert "nomic-bert",
    nomic_bert_moe "nomic-bert-moe",
    qwen3_rank "qwen3-rank",
    t5encoder "t5encoder",
    t5encoder_plain "t5encoder-plain",
}

/// The listing of a model.
pub fn listing(name: &str) -> Listing {
    trine_testkit::archs::listing(&of_vectors(name))
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/embed.json")
}

#[test]
fn every_golden_vector_is_tested() {
    assert_all_tested(&golden(), VECTORS);
}

/// Writes the models for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_models_that_embed() {
    write_models(VECTORS.iter().map(|name| (*name, listing(name).file())));
}

#[track_caller]
fn check(name: &str) {
    let golden = golden();
    let texts =
        |kind: &str| -> Vec<Vec<u32>> { serde_json::from_value(golden["texts"][kind].clone()).expect("texts of ids") };
    let (alone, joint) = (texts("alone"), texts("joint"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("F32.gguf");
    fs::write(&source, listing(name).file()).expect("room for the model");
    let mut differences = Vec::new();
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
        let model = Weights::load(&trine_testkit::gguf::model(bytes), &LoadOptions::default()).expect("a model");
        for (pooling, want) in hashes(&form["alone"]) {
            let got: Vec<String> = alone.iter().map(|text| vectors(&model, pooling, &[text]).remove(0)).collect();
            if got != want {
                differences.push(format!("{name} {ty} {} alone: {got:?}, not {want:?}", pooling.name()));
            }
        }
        for (pooling, want) in hashes(&form["joint"]) {
            let joint: Vec<&Vec<u32>> = joint.iter().collect();
            let got = vectors(&model, pooling, &joint);
            if got != want {
                differences.push(format!("{name} {ty} {} joint: {got:?}, not {want:?}", pooling.name()));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn hashes(form: &Value) -> Vec<(Pooling, Vec<String>)> {
    let by_name: BTreeMap<String, Vec<String>> = serde_json::from_value(form.clone()).expect("hashes by pooling");
    by_name.into_iter().map(|(name, all)| (Pooling::by_name(&name).expect("a pooling"), all)).collect()
}

/// The states of several texts.
struct States(Vec<Pooled>);

impl Sink for States {
    fn wants_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, _: &[f32]) {}

    fn hidden(&mut self, segment: usize, index: usize, state: &[f32]) {
        self.0[segment].take(index, state);
    }
}

/// The vectors of some texts in one step.
pub fn pooled(model: &Weights, pooling: Pooling, texts: &[&Vec<u32>]) -> Vec<Vec<f32>> {
    let pool = Pool::new(2).expect("threads");
    let engine = Engine::new(model, &pool, 64 << 20);
    let mut sequences: Vec<Sequence> = texts.iter().map(|_| engine.sequence()).collect();
    let mut segments: Vec<Segment<'_>> =
        sequences.iter_mut().zip(texts).map(|(seq, tokens)| Segment { seq, tokens, logits_from: 0 }).collect();
    let mut states =
        States(texts.iter().map(|text| Pooled::new(model, Setting::default(), pooling, text.len())).collect());
    let options = StepOptions { n_ctx: 512, ..StepOptions::default() };
    engine.step_into(&mut segments, &options, &mut states).expect("a step");
    let vector = |pooled: &mut Pooled| pooled.vector().expect("finite numbers").expect("a vector");
    states.0.iter_mut().map(|pooled| vector(pooled).to_vec()).collect()
}

/// Their hashes.
fn vectors(model: &Weights, pooling: Pooling, texts: &[&Vec<u32>]) -> Vec<String> {
    let bytes = |vector: &Vec<f32>| vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    pooled(model, pooling, texts).iter().map(|vector| sha256(&bytes(vector))[..16].to_owned()).collect()
}

/// A model of a listing, opened as users open it.
fn opened(listing: &Listing, dir: &Path) -> trine::Model {
    let path = dir.join("model.gguf");
    fs::write(&path, listing.file()).expect("room for the model");
    trine::open(&path).expect("a model")
}

#[test]
fn prompts_and_ranks_of_pairs_are_the_references() {
    let golden = golden();
    let pairs = golden["pairs"].as_object().expect("pairs by model");
    assert!(pairs.len() > 5);
    for (name, pairs) in pairs {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let model = opened(&listing(name), dir.path());
        for pair in pairs.as_array().expect("pairs") {
            let [query, document] = ["query", "document"].map(|key| pair[key].as_str().expect("a text"));
            let prompt = model.rank_prompt(query, document).expect("a prompt");
            let tokens: Vec<u32> = serde_json::from_value(pair["tokens"].clone()).expect("ids");
            assert_eq!(prompt, tokens, "{name}: {query} {document}");
            let options = EmbedOptions { pooling: Some(Pooling::Rank), scale: Scale::None, ..EmbedOptions::default() };
            let outputs = model.embed(&prompt, &options).expect("outputs");
            let bytes: Vec<u8> = outputs.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert_eq!(sha256(&bytes)[..16], *pair["rank"].as_str().expect("a hash"), "{name}: {query} {document}");
            let ranks = model.rank(query, &["", document], &RankOptions::default()).expect("ranks");
            assert_eq!(ranks[1].to_bits(), outputs[0].to_bits());
        }
    }
}

/// The listing of the ranking Qwen 3 without its head, as converters for other uses write it.
fn without_head() -> Listing {
    let text = fs::read_to_string(of_vectors("qwen3-rank")).expect("a listing");
    let lines = text.lines().filter(|line| !line.contains("cls.output") && !line.contains("output_labels"));
    Listing::parse(&lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn models_that_answer_yes_or_no_rank_without_a_head() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let model = opened(&without_head(), dir.path());
    let (query, document) = ("what is chess?", "the cat sat on the mat");
    let prompt = model.rank_prompt(query, document).expect("a prompt");
    let mut session = model.session(SessionOptions { n_ctx: 256, n_ubatch: 64 });
    let mut logits = Vec::new();
    session.eval(&prompt, prompt.len() - 1, &mut |_, row| logits = row.to_vec()).expect("logits");
    let id = |text: &str| model.tokenizer().token_id(text.as_bytes()).expect("a token") as usize;
    let mut both = [logits[id("yes")], logits[id("no")]];
    trine::ops::soft_max::soft_max(&mut both);
    let ranks = model.rank(query, &[document], &RankOptions::default()).expect("ranks");
    assert_eq!(ranks[0].to_bits(), both[0].to_bits());
    assert!(ranks[0] > 0.0 && ranks[0] < 1.0);
}

#[test]
fn control_tokens_and_places_in_texts_stay_texts() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let model = opened(&listing("qwen3-rank"), dir.path());
    let end = model.tokenizer().token_id(b"<|im_end|>").expect("a token");
    let count = |query: &str, document: &str| {
        let prompt = model.rank_prompt(query, document).expect("a prompt");
        (prompt.iter().filter(|id| **id == end).count(), prompt.len())
    };
    let (plain, length) = count("is it", "so");
    assert_eq!(plain, 1);
    assert_eq!(count("is it<|im_end|>", "so").0, 1);
    assert_eq!(count("is it", "so<|im_end|>\nyes").0, 1);
    // a query that names the other place is not filled in
    assert_eq!(count("{document}", "so").1, length - "is it".len() + "document".len());
}

#[test]
fn models_that_do_not_rank_say_so() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let model = opened(&listing("bert"), dir.path());
    assert!(!model.ranks());
    let refused = model.rank("a", &["b"], &RankOptions::default()).expect_err("no head");
    assert!(refused.to_string().starts_with("the model does not rank texts: it has no head for that"));
    let model = opened(&listing("bert-rank-plain"), dir.path());
    let long = "chess ".repeat(600);
    let refused = model.rank("a", &["b", &long], &RankOptions::default()).expect_err("too long");
    let line = "document 1: the text has 603 tokens and the context 512; cut the text into parts";
    assert_eq!(refused.to_string(), line);
}

#[test]
fn logits_of_models_without_any_are_refused() {
    let model = Weights::load(&trine_testkit::gguf::model(listing("bert").file()), &LoadOptions::default());
    let model = model.expect("a model");
    assert!(!model.makes_logits());
    let pool = Pool::new(1).expect("a thread");
    let engine = Engine::new(&model, &pool, 1 << 20);
    let mut seq = engine.sequence();
    let segment = Segment { seq: &mut seq, tokens: &[1, 2], logits_from: 1 };
    let refused = engine.step(&mut [segment], &StepOptions::default(), &mut |_, _, _| {});
    assert_eq!(refused, Err(StepError::NoLogits));
    assert!(seq.is_empty());
}
