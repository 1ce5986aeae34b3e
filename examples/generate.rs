//! Continues a text, printing it as it comes.
//!
//! ```sh
//! cargo run --release --example generate                                  # the bundled model
//! cargo run --release --example generate -- model.gguf "Once upon a time"
//! ```

use std::io::{self, Write};
use std::process::ExitCode;

use trine::{End, Error, GenerateOptions, SamplerOptions};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/models/trilm-wt-5.8m-F16.gguf");

fn run() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or(MODEL.to_owned());
    let prompt = args.next().unwrap_or("The game was played".to_owned());

    // Maps the file, finds its shards, packs the weights for this processor.
    let model = trine::open(path)?;

    // The same seed gives the same text, on every machine and at any number of threads.
    let options = GenerateOptions {
        max_tokens: Some(64),
        sampler: SamplerOptions { seed: 42, temp: 0.7, ..SamplerOptions::default() },
        stop: vec!["\n".to_owned()],
        ..GenerateOptions::default()
    };

    print!("{prompt}");
    let mut generation = model.generate(prompt, &options)?;
    for chunk in &mut generation {
        let chunk = chunk?;
        // Whole characters, held back as long as they could begin a stop string.
        print!("{}", chunk.text);
        let _ = io::stdout().flush();
        match chunk.end {
            Some(End::Length) => println!(" …"),
            Some(_) => println!(),
            None => {}
        }
    }

    let eval = generation.context().stats().eval;
    let rate = eval.count as f64 / eval.time.as_secs_f64();
    eprintln!("{} tokens, {rate:.0} per second", eval.count + 1);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
