//! `--roofline`: the speed of a model beside what the machine's memory and multipliers allow.
//!
//! A generated token reads every matrix once, and the keys and values of all positions before it. So
//! tokens per second cannot exceed bandwidth / bytes. A prompt shares the reading of the weights among
//! the tokens of a micro-batch; its limit is the multipliers, or the reading where that takes longer.

use std::io::Write;

use anyhow::{Context, Result};
use serde_json::json;
use trine::Isa;
use trine::model::{Config, OfLayer, Weights};
use trine_formats::gguf::ModelFile;
use trine_formats::types::TypeId;

use super::Subject;
use super::args::Args;
use super::describe::Description;
use super::grid::{self, Test};
use super::machine::Machine;
use super::models;
use super::output::{Line, ModelSetup, Table, object};
use crate::args::threads;
use crate::provenance::processor;
use crate::stats::Summary;
use crate::table::Cell;

/// Cost of a token, whatever the program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes of all matrices that a token is multiplied by.
    pub weight_bytes: f64,
    /// Multiplications by quantized weights, without the output matrix.
    pub quantized: f64,
    /// Multiplications by float weights, without the output matrix.
    pub float: f64,
    /// Bytes of keys and values that a position adds to the cache, as f16.
    pub kv_bytes: f64,
    /// Multiplications that attention to one position takes.
    pub attention: f64,
}

impl Cost {
    /// From the tensor table and the shape.
    pub fn of(file: &ModelFile, config: &Config) -> Cost {
        let of_layer = |layer| {
            let OfLayer { n_head, n_head_kv, head_dim, value_dim, .. } = config.layer(layer);
            [n_head, n_head_kv].map(|heads| heads * (head_dim + value_dim))
        };
        let cached: Vec<[usize; 2]> = config.cached_layers().map(of_layer).collect();
        let all = |i: usize| cached.iter().map(|of| of[i]).sum::<usize>();
        let mut cost = Cost { kv_bytes: (all(1) * 2) as f64, attention: all(0) as f64, ..Cost::default() };
        let tied = file.tensor_info("output.weight").is_none();
        for t in file.tensors().filter(|t| t.rows() > 1) {
            let is_output = match t.name.as_str() {
                // a row of the embeddings is looked up, which is nothing
                "token_embd.weight" if !tied => continue,
                "token_embd.weight" | "output.weight" => true,
                _ => false,
            };
            cost.weight_bytes += t.bytes as f64;
            match t.ty {
                // a prompt has logits after its last token only
                _ if is_output => {}
                TypeId::F32 | TypeId::F16 | TypeId::BF16 => cost.float += t.elements() as f64,
                _ => cost.quantized += t.elements() as f64,
            }
        }
        cost
    }

    /// Least seconds for `test`: reading, and multiplying, of which the larger counts in each part.
    pub fn seconds(&self, test: &Test, limits: &Limits) -> f64 {
        let reads = |bytes: f64| bytes / limits.bytes;
        // positions that the tokens of a run of `n` from `first` on look at, all together
        let seen = |first: usize, n: usize| n as f64 * (first as f64 + (n as f64 + 1.0) / 2.0);
        let (p, g) = (test.prompt, test.generated);
        let passes = p.div_ceil(test.ubatch.min(test.batch).max(1)) as f64;
        let work = p as f64 * (self.quantized / limits.int8 + self.float / limits.f32)
            + seen(test.depth, p) * self.attention / limits.f32;
        let prompt = work.max(reads(passes * self.weight_bytes));
        let kv = seen(test.depth + p, g) * self.kv_bytes;
        prompt + reads(g as f64 * self.weight_bytes + kv)
    }
}

/// Peak rates of the machine, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes read from memory.
    pub bytes: f64,
    /// Products of bytes.
    pub int8: f64,
    /// Multiply-adds of f32.
    pub f32: f64,
}

/// Measures the models and sets them beside the limits, which are measured before and after each.
///
/// # Errors
/// A model that cannot be loaded; nothing to do; output that cannot be written.
pub fn run(args: &Args, subjects: &[Subject], out: &mut dyn Write) -> Result<()> {
    let isa = Isa::from_env()?;
    let tests = grid::tests(args)?;
    let counts = models::thread_counts(args, &[threads(None)]);
    let mut table = Table::new(args.output, "rbench.roofline/1", out)?;
    let loading = args.only_loading("--roofline")?;
    for subject in subjects {
        let name = subject.name();
        let file = subject.open(args)?;
        table.about(subject, &file);
        for &threads in &counts {
            let options = args.load_options(isa, loading)?;
            let model = Weights::load(&file, &options).with_context(|| format!("'{name}'"))?;
            let pool = models::start_pool(threads)?;
            let cost = Cost::of(&file, model.config());
            let machine = Machine::new(threads)?;
            let measure = || Limits { bytes: machine.bandwidth(), int8: machine.int8(isa), f32: machine.f32(isa) };
            for test in &tests {
                let before = measure();
                let samples = models::measure(&model, &pool, test, args.repetitions, args, &|_| ())?;
                let after = measure();
                let mean = |f: fn(&Limits) -> f64| (f(&before) + f(&after)) / 2.0;
                let limits = Limits { bytes: mean(|l| l.bytes), int8: mean(|l| l.int8), f32: mean(|l| l.f32) };
                let row = Row {
                    file: &name,
                    model: Description::of(&file),
                    isa,
                    repack: !args.no_repack,
                    place: ModelSetup::of(args, loading),
                    threads,
                    test,
                    cost,
                    limits,
                    seconds: Summary::of(&samples).median,
                };
                table.row(&row.line())?;
            }
        }
    }
    table.finish()?;
    Ok(())
}

struct Row<'a> {
    file: &'a str,
    model: Description,
    isa: Isa,
    repack: bool,
    place: ModelSetup,
    threads: usize,
    test: &'a Test,
    cost: Cost,
    limits: Limits,
    seconds: f64,
}

impl Row<'_> {
    fn line(&self) -> Line {
        let tokens = self.test.tokens() as f64;
        let bound = tokens / self.cost.seconds(self.test, &self.limits);
        let reached = tokens / self.seconds;
        let (cost, limits) = (&self.cost, &self.limits);
        let number = |x: f64| format!("{x:.1}");
        let cells = vec![
            Cell::left("model", 28, self.model.kind.clone()).above(),
            Cell::left("backend", 10, self.place.backend(self.isa, self.repack)).above(),
            Cell::right("threads", 7, self.threads.to_string()).above(),
            Cell::right("test", 14, self.test.name()).key(),
            Cell::right("MB/token", 8, number(cost.weight_bytes / 1e6)),
            Cell::right("GB/s", 6, number(limits.bytes / 1e9)),
            Cell::right("GMAC/s", 7, number(limits.int8 / 1e9)),
            Cell::right("bound t/s", 9, number(bound)),
            Cell::right("t/s", 8, number(reached)),
            Cell::right("share", 5, format!("{:.0} %", reached / bound * 100.0)),
        ];
        let fields = object([
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("cpu_info", json!(processor())),
            ("model_filename", json!(self.file)),
            ("model_type", json!(self.model.kind)),
            ("isa", json!(self.isa.name())),
            ("repack", json!(self.repack)),
            ("n_threads", json!(self.threads)),
            ("device", json!(self.place.device.to_string())),
            ("n_gpu_layers", self.place.layers_field()),
            ("n_prompt", json!(self.test.prompt)),
            ("n_gen", json!(self.test.generated)),
            ("n_depth", json!(self.test.depth)),
            ("test", json!(self.test.name())),
            ("weight_bytes_per_token", json!(cost.weight_bytes)),
            ("kv_bytes_per_position", json!(cost.kv_bytes)),
            ("quantized_macs_per_token", json!(cost.quantized)),
            ("float_macs_per_token", json!(cost.float)),
            ("attention_macs_per_position", json!(cost.attention)),
            ("read_gbs", json!(limits.bytes / 1e9)),
            ("int8_gmacs", json!(limits.int8 / 1e9)),
            ("f32_gmacs", json!(limits.f32 / 1e9)),
            ("bound_ts", json!(bound)),
            ("median_ts", json!(reached)),
            ("share", json!(reached / bound)),
        ]);
        Line { cells, fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { weight_bytes: 100.0, quantized: 1000.0, float: 10.0, kv_bytes: 2.0, attention: 4.0 };
    const LIMITS: Limits = Limits { bytes: 10.0, int8: 100.0, f32: 1.0 };

    fn test(prompt: usize, generated: usize, depth: usize) -> Test {
        Test { prompt, generated, depth, batch: 8, ubatch: 4 }
    }

    #[test]
    fn a_text_reads_weights_and_cache() {
        // the second token sees itself, the first, and three before
        assert_eq!(COST.seconds(&test(0, 2, 3), &LIMITS), (200.0 + 2.0 * 9.0) / 10.0);
    }

    #[test]
    fn a_prompt_multiplies_or_reads() {
        let work = 5.0 * (10.0 + 10.0) + 15.0 * 4.0;
        assert_eq!(COST.seconds(&test(5, 0, 0), &LIMITS), work);
        let slow = Limits { bytes: 0.1, ..LIMITS };
        // two micro-batches
        assert_eq!(COST.seconds(&test(5, 0, 0), &slow), 2.0 * 100.0 / 0.1);
    }
}
