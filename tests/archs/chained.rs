//! Several heads for multi-token prediction, each of which drafts one token further, have the reference's logits, to the last
//! bit, and drafts by them change no text.

use serde_json::Value;
use trine::{ContextOptions, DraftOptions, DraftSource, GenerateOptions, Isa, OpenOptions, SamplerOptions};
use trine_testkit::archs::{drafter, listing};
use trine_testkit::golden::long_tokens;

use crate::drafters::check_lengths;
use crate::{assert_all_tested, write_models};

models! {
    /// All models with several heads.
    CHAINED:
    hy_v3 "hy_v3",
    mimo2 "mimo2",
    mimo2_sizes "mimo2-sizes",
    step35 "step35",
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/chained.json")
}

fn file(name: &str) -> Vec<u8> {
    listing(&drafter("chained", name)).file()
}

#[test]
fn every_golden_chain_is_tested() {
    assert_all_tested(&golden(), CHAINED);
}

/// Writes the models for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_chained() {
    write_models(CHAINED.iter().map(|name| (*name, file(name))));
}

fn open(bytes: &[u8], isa: Isa, threads: usize) -> trine::Model {
    let options = OpenOptions { mtp: true, isa: Some(isa), threads: Some(threads), ..OpenOptions::default() };
    trine::open::load(trine_testkit::gguf::model(bytes.to_vec()), &options).expect("a model with heads")
}

#[track_caller]
fn check(name: &str) {
    // there are fewer heads
    check_lengths(&golden(), (name, file(name)), &DraftSource::Mtp, open, |_| 9);
}

#[test]
fn drafts_by_several_heads_change_no_text() {
    for name in CHAINED {
        let model = open(&file(name), Isa::detect(), 2);
        let prompt = &long_tokens()[..40];
        let greedy = GenerateOptions { past_eos: true, ..GenerateOptions::greedy(60) };
        let sampler = SamplerOptions { temp: 0.7, seed: 11, ..SamplerOptions::default() };
        let sampled = GenerateOptions { sampler, ..greedy.clone() };
        for options in [greedy, sampled] {
            let text = |draft: Option<DraftOptions>| {
                let mut context = model.context(&ContextOptions { n_ctx: Some(256), ..ContextOptions::default() });
                let options = GenerateOptions { draft, ..options.clone() };
                let done = context.generate(prompt, &options).expect("room").complete().expect("finite logits");
                (done.tokens, context.drafts().map(|drafts| drafts.1.counts()))
            };
            let (plain, _) = text(None);
            let draft = DraftOptions { most: 5, always: true, ..DraftOptions::of(DraftSource::Mtp) };
            let (drafted, counts) = text(Some(draft));
            assert_eq!(drafted, plain, "{name}");
            let counts = counts.expect("drafts");
            assert!(counts.rounds > 10 && counts.drafted > 10, "{name}: {counts:?}");
        }
    }
}
