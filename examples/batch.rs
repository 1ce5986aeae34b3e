//! Many prompts side by side: every step reads the weights once for all of them, and the beginning that they share is
//! evaluated and held once.
//!
//! ```sh
//! cargo run --release --example batch                  # the bundled model
//! cargo run --release --example batch -- model.gguf
//! ```

use trine::{Segment, Sequence, StepOptions};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/models/trilm-wt-5.8m-F16.gguf");

const BEGINNING: &str = "The game was released in North America in the summer of that year.";
const ENDS: [&str; 4] = [" Critics", " The players", " In Japan", " A second edition"];
/// Tokens that every prompt is continued by.
const LENGTH: usize = 24;

/// A text that grows.
struct Text {
    seq: Sequence,
    /// Tokens that are not evaluated yet.
    next: Vec<u32>,
    tokens: Vec<u32>,
}

/// The most likely token.
fn best(logits: &[f32]) -> u32 {
    let ids = 0..logits.len() as u32;
    let likely = ids.max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize]));
    likely.unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or(MODEL.to_owned());
    let model = trine::open(path)?;
    let tokenizer = model.tokenizer();
    let engine = model.engine(64 << 20);
    let options = StepOptions::default();

    // The beginning, whose logits nobody wants: `logits_from` is behind its last token.
    let mut stem = engine.sequence();
    let beginning = tokenizer.encode(BEGINNING, true, true)?;
    let segment = Segment { seq: &mut stem, tokens: &beginning, logits_from: beginning.len() };
    engine.step(&mut [segment], &options, &mut |_, _, _| ())?;

    // Forks hold the pages of the beginning by reference; they take memory of their own as they grow.
    let mut texts = Vec::new();
    for end in ENDS {
        texts.push(Text {
            seq: stem.fork(beginning.len()),
            next: tokenizer.encode(end, false, true)?,
            tokens: Vec::new(),
        });
    }
    for _ in 0..LENGTH {
        let mut chosen = vec![0; texts.len()];
        let mut segments: Vec<Segment<'_>> = texts
            .iter_mut()
            .map(|text| Segment { logits_from: text.next.len() - 1, seq: &mut text.seq, tokens: &text.next })
            .collect();
        engine.step(&mut segments, &options, &mut |text, _, logits| {
            chosen[text] = best(logits);
        })?;
        for (text, id) in texts.iter_mut().zip(chosen) {
            text.tokens.push(id);
            text.next = vec![id];
        }
    }

    for (end, text) in ENDS.iter().zip(&texts) {
        let mut words = tokenizer.detokenizer(false);
        let continued: String = text.tokens.iter().map(|&id| words.push(id)).collect();
        println!("…{end}{continued}{}", words.finish());
    }
    eprintln!(
        "{} tokens of the beginning evaluated once for {} texts, {} pages in use",
        beginning.len(),
        texts.len(),
        engine.pages().budget() - engine.pages().free()
    );
    Ok(())
}
