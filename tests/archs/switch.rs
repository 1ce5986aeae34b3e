//! Adapters that tokens switch on: the logits of a text in pieces are those of the whole, and damaged files are refused.

use std::fs;

use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine_testkit::archs::Listing;
use trine_testkit::testdata;

const NAME: &str = "graniteswitch-long";

/// The listing with every line changed.
fn changed(change: impl Fn(&str) -> String) -> Listing {
    let text = fs::read_to_string(testdata(&format!("archs/{NAME}.txt"))).expect("a listing");
    let lines: Vec<String> = text.lines().map(change).collect();
    Listing::parse(&lines.join("\n"))
}

/// The bits of the logits behind every token.
fn logits(listing: &Listing, tokens: &[u32], pieces: &[usize], n_ubatch: usize) -> Vec<Vec<u32>> {
    let model = Weights::load(&trine_testkit::gguf::model(listing.file()), &LoadOptions::default()).expect("a model");
    let pool = Pool::new(2).expect("threads");
    let mut session = Session::new(&model, &pool, SessionOptions { n_ctx: tokens.len(), n_ubatch });
    let (mut rows, mut rest) = (Vec::new(), tokens);
    for &n in pieces.iter().chain([&tokens.len()]) {
        let (piece, later) = rest.split_at(n.min(rest.len()));
        rest = later;
        if !piece.is_empty() {
            let mut keep = |_: usize, row: &[f32]| rows.push(row.iter().map(|v| v.to_bits()).collect());
            session.eval(piece, 0, &mut keep).expect("room");
        }
    }
    rows
}

#[test]
fn a_switch_holds_for_what_follows_and_for_nothing_before() {
    // token 18 switches the first adapter on, 152 the second, 26 the third
    let plain = [1, 2, 3, 4, 5, 6, 7, 8];
    let switched = [1, 2, 3, 18, 5, 6, 7, 8];
    let listing = changed(str::to_owned);
    let (without, with) = (logits(&listing, &plain, &[], 512), logits(&listing, &switched, &[], 512));
    assert!(without[..3] == with[..3]);
    assert!((3..8).all(|i| without[i] != with[i]));
    // its embedding is that of token 4, so that without a gain nothing is different
    let idle =
        changed(|line| line.replace("router_gain f32 9", "router_gain f32 0").replace(" 18 152 26", " 18 17 16"));
    let [of_18, of_4] = [&switched, &plain].map(|tokens| logits(&idle, tokens, &[], 512));
    assert!(of_18 == of_4);
    // where no token switches the gain is nothing
    assert!(logits(&idle, &plain, &[], 512) == without);
    let long: Vec<u32> =
        (0..150).map(|i| if i % 40 == 31 { [18, 152, 26][i / 40 % 3] } else { (i * 7 % 150) as u32 }).collect();
    let whole = logits(&listing, &long, &[], 512);
    assert!(logits(&listing, &long, &[1, 30, 1, 64], 7) == whole);
}

#[test]
fn damaged_switches_are_refused_in_one_line() {
    let refused = |from: &str, to: &str| {
        let listing = changed(|line| line.replace(from, to));
        let line = Weights::load(&trine_testkit::gguf::model(listing.file()), &LoadOptions::default());
        let line = line.err().expect("a refusal").to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    let few = refused("activate [i32] 18 152 26", "activate [i32] 18 152");
    assert_eq!(few, "the model cannot run: graniteswitch.adapters.token_ids_activate has 2 tokens for 3 adapters");
    let far = refused("substitute [i32] 4 77 5", "substitute [i32] 4 160 5");
    assert!(far.contains("token_ids_substitute has token 160, of a vocabulary of 160"), "{far}");
    let none = refused("key graniteswitch.adapters.count u32 3", "");
    assert!(none.contains("graniteswitch.adapters.count is missing"), "{none}");
    let gain = refused("router_gain f32 9", "router_gain f32 inf");
    assert!(gain.contains("adapters.router_gain is inf, it must be a number"), "{gain}");
    let lacking = refused("tensor blk.{0..3}.ffn_up.lora_b 16 384 4", "");
    assert!(lacking.contains("blk.1.ffn_up.lora_b is missing"), "{lacking}");
    let narrow = refused("attn_k.lora_a 256 16 4", "attn_k.lora_a 256 16 3");
    assert!(narrow.contains("blk.0.attn_k.lora_a") && narrow.contains("[256, 16, 3]"), "{narrow}");
}
