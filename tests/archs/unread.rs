//! Keys that the reference does not read, or not always: its logits stay the same whatever they say, as its portable build
//! was seen to do.

use std::fs;

use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};

use trine_testkit::archs::Listing;

/// The model of a listing, or of one in which a line is another.
fn model(name: &str, change: Option<(&str, &str)>) -> Result<Weights, String> {
    let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
    let mut text = fs::read_to_string(path).expect("a listing");
    if let Some((from, to)) = change {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let file = trine_testkit::gguf::model(Listing::parse(&text).file());
    Weights::load(&file, &LoadOptions::default()).map_err(|e| e.to_string())
}

fn logits(model: &Weights) -> Vec<u32> {
    let pool = Pool::new(1).expect("a thread");
    let mut session = Session::new(model, &pool, SessionOptions { n_ctx: 64, n_ubatch: 16 });
    let mut all = Vec::new();
    let done = session.eval(&[3, 60, 101, 7, 20], 0, &mut |_, row| all.extend(row.iter().map(|x| x.to_bits())));
    done.expect("tokens that the model has");
    all
}

#[test]
fn change_nothing() {
    for (name, from, to) in [
        ("qwen2vl-dense", "layer_norm_rms_epsilon f32 0", "layer_norm_rms_epsilon f32 0.00001"),
        ("cogvlm-dense", "rope.freq_base f32 10000", "rope.freq_base f32 500000"),
        ("cogvlm-dense", "rope.scaling.factor f32 0", "rope.scaling.factor f32 4"),
        ("lfm2-dense", "sliding_window_pattern [u32] 1 0", "sliding_window_pattern [u32] 0 0"),
        // Without the block that it counts.
        ("deepseek4-moe", "nextn_predict_layers u32 0", "nextn_predict_layers u32 1"),
    ] {
        let [before, after] = [None, Some((from, to))].map(|change| logits(&model(name, change).expect("a model")));
        assert!(before == after, "{name}: {to}");
    }
}

/// The reference reads it for every architecture, and no converter writes it for these.
#[test]
fn a_second_number_of_turned_elements_is_refused() {
    for (name, all) in [("afmoe-moe", 64), ("cohere2-dense", 128)] {
        let from = format!("rope.dimension_count_swa u32 {all}");
        let refused = model(name, Some((&from, "rope.dimension_count_swa u32 32")));
        let text = refused.err().expect("a refusal");
        assert!(text.contains("rope.dimension_count_swa is 32") && text.contains(&format!("{all} elements")), "{text}");
    }
}
