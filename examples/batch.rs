//! Many prompts side by side: every step reads the weights once for all of them, and the beginning that they share is
//! evaluated and held once. A text machine for each prompt says which tokens it wants evaluated, and chooses the next.
//!
//! ```sh
//! cargo run --release --example batch                  # the bundled model
//! cargo run --release --example batch -- model.gguf
//! ```

use trine::generate::TextMachine;
use trine::{GenerateOptions, Segment, Sequence, StepOptions};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/models/trilm-wt-5.8m-F16.gguf");

const BEGINNING: &str = "The game was released in North America in the summer of that year.";
const ENDS: [&str; 4] = [" Critics", " The players", " In Japan", " A second edition"];
/// Tokens that every prompt is continued by.
const LENGTH: usize = 24;
/// Tokens that a text may have.
const CONTEXT: usize = 512;

/// A text that grows.
struct Text {
    seq: Sequence,
    machine: TextMachine,
    text: String,
    over: bool,
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
        let prompt = [&beginning[..], &tokenizer.encode(end, false, true)?].concat();
        texts.push(Text {
            seq: stem.fork(beginning.len()),
            machine: TextMachine::new(&model, prompt, &GenerateOptions::greedy(LENGTH))?,
            text: String::new(),
            over: false,
        });
    }
    while texts.iter().any(|text| !text.over) {
        let mut going: Vec<&mut Text> = texts.iter_mut().filter(|text| !text.over).collect();
        let mut logits = vec![Vec::new(); going.len()];
        let mut segments = Vec::new();
        for text in &mut going {
            let (tokens, logits_from) = text.machine.wanted(text.seq.len(), usize::MAX);
            segments.push(Segment { seq: &mut text.seq, tokens, logits_from });
        }
        engine.step(&mut segments, &options, &mut |text, _, row| logits[text] = row.to_vec())?;
        for (text, logits) in going.into_iter().zip(logits) {
            let choice = text.machine.choose(&logits, CONTEXT)?;
            text.text.extend(choice.token.map(|token| token.text));
            text.over = choice.ending.is_some();
            text.text.extend(choice.ending.map(|ending| ending.text));
        }
    }

    for (end, text) in ENDS.iter().zip(&texts) {
        println!("…{end}{}", text.text);
    }
    eprintln!(
        "{} tokens of the beginning evaluated once for {} texts, {} pages in use",
        beginning.len(),
        texts.len(),
        engine.pages().budget() - engine.pages().free()
    );
    Ok(())
}
