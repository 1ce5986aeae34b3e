//! DFlash drafters have the reference's logits, to the last bit, and drafts by them change no text.

use serde_json::Value;
use trine::DraftSource;

use crate::assert_all_tested;
use crate::drafters::{Drafters, check_lengths};

const DFLASH: Drafters = Drafters { kind: "dflash", model: "llama-long", source: DraftSource::Dflash };

models! {
    /// All drafters.
    DRAFTERS:
    dflash "dflash",
    dflash_keys "dflash-keys",
    dflash_markov "dflash-markov",
    dflash_markov_behind "dflash-markov-behind",
    dflash_own "dflash-own",
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/dflash.json")
}

#[test]
fn every_golden_drafter_is_tested() {
    assert_all_tested(&golden(), DRAFTERS);
}

/// Writes the drafters and the model for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_dflash() {
    DFLASH.write(DRAFTERS);
}

#[track_caller]
fn check(name: &str) {
    let golden = golden();
    let short = golden["short"].as_u64().expect("a number") as usize;
    // more than a block has are not drafted
    let most = |turn: usize| if turn.is_multiple_of(2) { 99 } else { short };
    let open = |bytes: &[u8], isa, threads| DFLASH.open(bytes, isa, threads);
    check_lengths(&golden, (name, DFLASH.file(name)), &DFLASH.source, open, most);
}

#[test]
fn drafts_by_drafters_change_no_text() {
    DFLASH.change_no_text(DRAFTERS);
}

#[test]
fn damaged_drafters_are_refused_in_one_line() {
    let refused = |name: &str, from: &str, to: &str| DFLASH.refused(name, from, to);
    let far = refused("dflash", "target_layers [i32] 2 0", "target_layers [i32] 4 0");
    assert!(far.contains("it reads the input of block 4, and this model has 3"), "{far}");
    let none = refused("dflash", "key dflash.target_layers [i32] 2 0", "");
    assert!(none.contains("dflash.target_layers is missing or empty"), "{none}");
    let width = refused("dflash", "dflash.embedding_length u32 256", "dflash.embedding_length u32 128");
    assert!(width.contains("a model of 128 hidden numbers, and this one has 256"), "{width}");
    let mask = refused("dflash", "mask_token_id u32 159", "mask_token_id u32 160");
    assert!(mask.contains("tokenizer.ggml.mask_token_id names no token"), "{mask}");
    let size = refused("dflash", "block_size u32 12", "block_size u32 1");
    assert!(size.contains("dflash.block_size is 1, it must be 2 to 1024"), "{size}");
    let lacking = refused("dflash-keys", "tensor enc.output_norm.weight 256", "");
    assert!(lacking.contains("enc.output_norm.weight is missing"), "{lacking}");
    let markov = refused("dflash-markov", "tensor markov_w2.weight 24 160", "");
    assert!(markov.contains("tensor markov_w2.weight is missing"), "{markov}");
    let table = refused("dflash-markov", "tensor markov_w1.weight 24 160", "tensor markov_w1.weight 24 159");
    assert!(table.contains("markov_w1.weight"), "{table}");
    let selector = refused("dflash", "tensor fc.weight 512 256", "tensor selector_hidden.weight 256 8");
    assert!(selector.contains("a selector (DFlash 2), which trine does not run"), "{selector}");
}

#[test]
fn a_drafter_of_another_kind_is_refused() {
    let none = DFLASH.refused_source(None);
    assert!(none.contains("no drafter was loaded"), "{none}");
    let other = Drafters { kind: "eagle3", ..DFLASH };
    let other = DFLASH.refused_source(Some(&other.file("eagle3")));
    assert!(other.contains("draft-eagle3, draft-dflash and draft-mtp need their own"), "{other}");
}
