//! Gemma 4's assistants, which attend to keys of the model, have the reference's logits, to the last bit, and drafts by them
//! change no text.

use serde_json::Value;
use trine::DraftSource;

use crate::assert_all_tested;
use crate::drafters::{Drafters, check_lengths};

const LONG: Drafters = Drafters { kind: "assistant", model: "gemma4-long", source: DraftSource::Mtp };
const SMALL: Drafters = Drafters { model: "gemma4-small", ..LONG };

models! {
    /// All assistants.
    ASSISTANTS:
    assistant "assistant",
    assistant_small "assistant-small",
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/assistant.json")
}

/// The assistants of the model of the one of this name.
fn of(name: &str) -> &'static Drafters {
    match name.ends_with("small") {
        true => &SMALL,
        false => &LONG,
    }
}

#[test]
fn every_golden_assistant_is_tested() {
    assert_all_tested(&golden(), ASSISTANTS);
}

/// Writes the assistants and the models for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_assistants() {
    ASSISTANTS.iter().for_each(|name| of(name).write(&[*name]));
}

#[track_caller]
fn check(name: &str) {
    let golden = golden();
    let most = golden["drafted"].as_u64().expect("a number") as usize;
    let drafters = of(name);
    let open = |bytes: &[u8], isa, threads| drafters.open(bytes, isa, threads);
    check_lengths(&golden, (name, drafters.file(name)), &drafters.source, open, |_| most);
}

#[test]
fn drafts_by_assistants_change_no_text() {
    ASSISTANTS.iter().for_each(|name| of(name).change_no_text(&[*name]));
}

#[test]
fn damaged_assistants_are_refused_in_one_line() {
    let refused = |from: &str, to: &str| LONG.refused("assistant", from, to);
    let some = refused("nextn_predict_layers u32 3", "nextn_predict_layers u32 2");
    assert!(some.contains("nextn_predict_layers is 2, and all 3 blocks of a drafter draft"), "{some}");
    let width = refused("embedding_length_out u32 256", "embedding_length_out u32 128");
    assert!(width.contains("a model of 128 hidden numbers, and this one has 256"), "{width}");
    let heads = refused("head_count_kv [u32] 4 2 4", "head_count_kv [u32] 4 4 4");
    assert!(heads.contains("block 1 attends to 4 heads of 64 without a window, and block 5 of this model"), "{heads}");
    let lacking = refused("tensor nextn.pre_projection.weight 512 128", "");
    assert!(lacking.contains("nextn.pre_projection.weight is missing"), "{lacking}");
    let other = SMALL.refused("assistant", "general.name str assistant", "general.name str other");
    assert!(other.contains("block 0 attends to 4 heads of 32 in a window, and block 6 of this model"), "{other}");
}

#[test]
fn a_drafter_of_another_kind_is_refused() {
    let other = Drafters { source: DraftSource::Eagle3, ..LONG };
    let other = other.refused_source(Some(&LONG.file("assistant")));
    assert!(other.contains("draft-eagle3, draft-dflash and draft-mtp need their own"), "{other}");
}
