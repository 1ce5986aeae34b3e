//! Many prompts with the same beginning: the beginning is evaluated once.
//!
//! ```sh
//! cargo run --release --example batch                  # the bundled model
//! cargo run --release --example batch -- model.gguf
//! ```

use trine::{Completion, Context, ContextOptions, Error, GenerateOptions};

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/testdata/models/trilm-wt-5.8m-F16.gguf"
);

const BEGINNING: &str = "The game was released in North America in the summer of that year. ";
const ENDS: [&str; 4] = ["Critics", "The players", "In Japan", "A second edition"];

/// The continuations of all `prompts`, one after the other: each starts from what it has in common with the one before.
fn complete_all(
    context: &mut Context,
    prompts: &[String],
    options: &GenerateOptions,
) -> Result<Vec<Completion>, Error> {
    let complete = |prompt: &String| Ok(context.generate(prompt.as_str(), options)?.complete()?);
    prompts.iter().map(complete).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or(MODEL.to_owned());
    let model = trine::open(path)?;
    let mut context = model.context(&ContextOptions::default());
    let prompts = ENDS.map(|end| format!("{BEGINNING}{end}"));
    let completions = complete_all(&mut context, &prompts, &GenerateOptions::greedy(24))?;
    for (end, completion) in ENDS.iter().zip(&completions) {
        println!("{end}{}", completion.text);
    }
    let stats = context.stats();
    eprintln!(
        "{} tokens of prompts evaluated, {} reused",
        stats.prompt.count, stats.reused
    );
    Ok(())
}
