//! Points of the grid that the lists of the command line span.

use anyhow::{Result, bail};

use super::args::{Args, Pair};
use super::numbers;

/// One point of the grid that the lists span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens generated.
    pub generated: usize,
    /// Tokens in the context before.
    pub depth: usize,
    /// Tokens handed over at once.
    pub batch: usize,
    /// Tokens computed at once.
    pub ubatch: usize,
}

impl Test {
    /// `pp512`, `tg128`, `pp512+tg128`, with ` @ d1024` behind a context.
    pub fn name(&self) -> String {
        let name = match (self.prompt, self.generated) {
            (p, 0) => format!("pp{p}"),
            (0, g) => format!("tg{g}"),
            (p, g) => format!("pp{p}+tg{g}"),
        };
        match self.depth {
            0 => name,
            d => format!("{name} @ d{d}"),
        }
    }

    /// Tokens that are timed.
    pub fn tokens(&self) -> usize {
        self.prompt + self.generated
    }
}

/// The tests of every model at every number of threads.
///
/// # Errors
/// The lists name no test.
pub fn tests(args: &Args) -> Result<Vec<Test>> {
    let mut lengths: Vec<Pair> = numbers::all(&args.n_prompt).into_iter().map(|p| Pair(p, 0)).collect();
    let generated = numbers::all(&args.n_gen);
    lengths.extend(generated.into_iter().map(|g| Pair(0, g)));
    lengths.extend(&args.prompt_gen);
    lengths.retain(|&Pair(p, g)| p + g > 0);
    let mut all = Vec::new();
    for batch in numbers::all(&args.batch_size) {
        for ubatch in numbers::all(&args.ubatch_size) {
            for depth in numbers::all(&args.n_depth) {
                all.extend(lengths.iter().map(|&Pair(prompt, generated)| Test {
                    prompt,
                    generated,
                    depth,
                    batch,
                    ubatch,
                }));
            }
        }
    }
    if all.is_empty() {
        bail!("nothing to do: give -p, -n or -pg a number above 0");
    }
    Ok(all)
}
