//! Makes a smaller file of a model and measures what it costs.
//!
//! ```sh
//! cargo run --release --example quantize                                   # the bundled ternary model to TQ2_0
//! cargo run --release --example quantize -- in.gguf out.gguf Q4_K_M
//! ```

use std::path::PathBuf;

use trine::quant::{Plan, Rounding, RunOptions, run};
use trine::{Recipe, Target};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bundled = || format!("{ROOT}/testdata/models/trilm-wt-5.8m-F16.gguf");
    let input = args.first().cloned().unwrap_or_else(bundled);
    let in_temp = || std::env::temp_dir().join("trine-example.gguf");
    let output = args.get(1).map_or_else(in_temp, PathBuf::from);
    let name = args.get(2).map_or("TQ2_0", String::as_str);
    let target = Target::parse(name).ok_or_else(|| format!("'{name}' is no file type"))?;

    // The header only: no weights are loaded for this.
    let file = trine::open_file(&input, true)?;
    let mut plan = Plan::new(&file, &Recipe::new(target))?;
    let report = run(&file, &mut plan, &output, RunOptions::default(), &mut ())?;
    println!("{}: {} bytes", output.display(), report.file_bytes);
    if let Some(ternary) = plan.find::<Rounding>().map(Rounding::report).filter(|r| !r.tensors.is_empty()) {
        println!("{ternary}");
    }

    // How well both predict a text.
    let text = std::fs::read_to_string(format!("{ROOT}/testdata/wikitext-2/wiki.test.raw"))?;
    let text: String = text.chars().take(20_000).collect();
    for path in [PathBuf::from(input), output.clone()] {
        let estimate = trine::open(&path)?.perplexity(&text, 256)?;
        println!("{}: perplexity {:.4} +/- {:.4}", path.display(), estimate.ppl(), estimate.ppl_error());
    }
    if args.is_empty() {
        std::fs::remove_file(output)?;
    }
    Ok(())
}
