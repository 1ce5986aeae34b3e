//! Options of a text, by the names that requests to llama-server and OpenAI have for them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use trine::GenerateOptions;
use trine::sample::SamplerOption;

use crate::failure::Failure;

/// Options of a text; those of the sampler are in the library's table.
#[derive(Default, Deserialize)]
pub struct Options {
    max_tokens: Option<usize>,
    seed: Option<u32>,
    #[serde(default)]
    stop: Vec<String>,
    #[serde(default)]
    ignore_eos: bool,
    bits: Option<u8>,
    #[serde(flatten)]
    sampler: BTreeMap<String, Value>,
}

impl Options {
    /// The options for the library, of a text in a context of `n_ctx` tokens.
    ///
    /// # Errors
    /// An option that there is not, or a value outside of its range.
    pub fn read(self, n_ctx: usize, suppressed: &[u32]) -> Result<GenerateOptions, Failure> {
        let mut options = GenerateOptions {
            max_tokens: self.max_tokens,
            stop: self.stop,
            ignore_eos: self.ignore_eos,
            bits: self.bits,
            ..GenerateOptions::default()
        };
        options.sampler.banned = suppressed.to_vec();
        options.sampler.seed = self.seed.unwrap_or(options.sampler.seed);
        for (name, value) in &self.sampler {
            let option = SamplerOption::by_field(name).ok_or_else(|| format!("there is no option '{name}'"))?;
            let number = value.as_f64().ok_or_else(|| format!("{name} must be a number, not {value}"))?;
            let range = option.range;
            let number = if range.whole { number } else { f64::from(number as f32) };
            if !(range.low..=range.high).contains(&number) || range.whole && number.fract() != 0.0 {
                let kind = if range.whole { "a whole number" } else { "a number" };
                let (low, high) = (range.show(range.low), range.show(range.high));
                return Err(format!("{name} must be {kind} from {low} to {high}, not {value}"));
            }
            option.set(&mut options.sampler, number, n_ctx);
        }
        Ok(options)
    }
}
