//! `--roofline`: the speed of a model beside what the machine's memory and multipliers allow.
//!
//! A generated token reads every matrix once, and the keys and values of all positions before it. So
//! tokens per second cannot exceed bandwidth / bytes. A prompt shares the reading of the weights among
//! the tokens of a micro-batch; its limit is the multipliers, or the reading where that takes longer.
//!
//! The processor's rates are measured. Those of a GPU are what its clocks and widths allow, as its driver tells them; of
//! a model that both run, each part counts by the rates of the device that runs it.

use std::io::Write;

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use trine::Isa;
use trine::model::{Config, OfLayer, Weights};
use trine_cuda::driver::Peaks;
use trine_formats::anyprec::{AnyPrec, Part};
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
    /// From the tensor table and the shape, of the blocks for which `counts` is true; of `None` it is asked for the
    /// logits. Any-precision matrices, which `planes` describes, count at the width beside it: their planes up to that,
    /// its tables, and the weights that are stored as they are.
    pub fn of(
        file: &ModelFile,
        config: &Config,
        planes: Option<(&AnyPrec, u8)>,
        counts: &dyn Fn(Option<usize>) -> bool,
    ) -> Cost {
        let of_layer = |layer| {
            let OfLayer { n_head, n_head_kv, head_dim, value_dim, .. } = config.layer(layer);
            [n_head, n_head_kv].map(|heads| heads * (head_dim + value_dim))
        };
        let cached = config.cached_layers().filter(|&layer| counts(Some(layer)));
        let cached: Vec<[usize; 2]> = cached.map(of_layer).collect();
        let all = |i: usize| cached.iter().map(|of| of[i]).sum::<usize>();
        let mut cost = Cost { kv_bytes: (all(1) * 2) as f64, attention: all(0) as f64, ..Cost::default() };
        let apart = |(described, _): (&AnyPrec, u8)| described.tensor("output.weight").is_some();
        let tied = file.tensor_info("output.weight").is_none() && !planes.is_some_and(apart);
        let plain = file.tensors().filter(|t| t.rows() > 1 && !t.name.contains(Part::INFIX));
        let plain = plain.map(|t| (&t.name, t.ty, t.bytes, t.elements()));
        let at_width = planes.into_iter().flat_map(|(described, width)| {
            let matrices = described.tensors().iter();
            matrices.map(move |t| {
                let parts = parts(width).filter_map(|part| file.tensor_info(&part.name(&t.name)));
                (&t.name, TypeId::I8, parts.map(|part| part.bytes).sum(), (t.rows * t.columns) as u64)
            })
        });
        for (name, ty, bytes, elements) in plain.chain(at_width) {
            let is_output = match name.as_str() {
                // a row of the embeddings is looked up, which is nothing
                "token_embd.weight" if !tied => continue,
                "token_embd.weight" | "output.weight" => true,
                _ => false,
            };
            if !counts(block(name)) {
                continue;
            }
            cost.weight_bytes += bytes as f64;
            match ty {
                // a prompt has logits after its last token only
                _ if is_output => {}
                TypeId::F32 | TypeId::F16 | TypeId::BF16 => cost.float += elements as f64,
                _ => cost.quantized += elements as f64,
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

/// The parts of an any-precision matrix that a product at a width reads.
fn parts(width: u8) -> impl Iterator<Item = Part> {
    let sparse = [Part::SparsePtr, Part::SparseCol, Part::SparseVal];
    (0..width).map(Part::Plane).chain([Part::Lut(width), Part::Scale(width), Part::Class]).chain(sparse)
}

/// The block of a tensor; `None` at the ends of a model.
fn block(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Peak rates of a device, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes read from memory.
    pub bytes: f64,
    /// Products of bytes.
    pub int8: f64,
    /// Multiply-adds of f32.
    pub f32: f64,
}

/// The GPU's peak rates; `None` for the processor alone.
///
/// # Errors
/// A GPU that cannot be used, or whose driver does not tell its rates.
fn of_gpu(args: &Args) -> Result<Option<Limits>> {
    let Some(gpu) = args.device.gpu()? else {
        return Ok(None);
    };
    let Peaks { bytes, int8, f32 } = gpu.peaks().ok_or_else(|| {
        let (device, (major, minor)) = (args.device.device, gpu.capability);
        anyhow!(
            "--roofline --device {device}: the peak rates of '{}' (compute capability {major}.{minor}) are not known; leave --roofline out",
            gpu.name
        )
    })?;
    Ok(Some(Limits { bytes, int8, f32 }))
}

/// A part of a model beside the rates of what runs it.
#[derive(Clone, Copy)]
struct Share {
    cost: Cost,
    limits: Limits,
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
    let gpu = of_gpu(args)?;
    for subject in subjects {
        let name = subject.name();
        let file = subject.open(args)?;
        table.about(subject, &file);
        for &threads in &counts {
            let options = args.load_options(isa, loading)?;
            let model = Weights::load(&file, &options).with_context(|| format!("'{name}'"))?;
            let pool = models::start_pool(threads)?;
            let layers = gpu.map_or(0, |_| loading.layers.unwrap_or(usize::MAX));
            let first = (model.config().n_layer + 1).saturating_sub(layers);
            let is_there = |block: Option<usize>| block.map_or(layers > 0, |block| block >= first);
            let width = args.bits.or(model.widths().last().copied());
            let planes = model.any_precision().zip(width);
            let cost = |counts: &dyn Fn(Option<usize>) -> bool| Cost::of(&file, model.config(), planes, counts);
            let here = cost(&|block| !is_there(block));
            let there = gpu.map(|limits| Share { cost: cost(&is_there), limits });
            let there = there.filter(|_| layers > 0);
            // Nothing of the processor counts where it runs nothing.
            let machine = (here != Cost::default()).then(|| Machine::new(threads)).transpose()?;
            let measure = || {
                let of = |m: &Machine| Limits { bytes: m.bandwidth(), int8: m.int8(isa), f32: m.f32(isa) };
                machine.as_ref().map(of)
            };
            for test in &tests {
                let before = measure();
                let samples = models::measure(&model, &pool, test, args.repetitions, args, &|_| ())?;
                let after = measure();
                let here = before.zip(after).map(|(before, after)| {
                    let mean = |f: fn(&Limits) -> f64| (f(&before) + f(&after)) / 2.0;
                    let limits = Limits { bytes: mean(|l| l.bytes), int8: mean(|l| l.int8), f32: mean(|l| l.f32) };
                    Share { cost: here, limits }
                });
                let row = Row {
                    file: &name,
                    model: Description::of(&file),
                    isa,
                    repack: !args.no_repack,
                    place: ModelSetup::of(args, loading),
                    threads,
                    test,
                    shares: there.into_iter().chain(here).collect(),
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
    /// The GPU's, where it runs a part, and the processor's, where it runs one.
    shares: Vec<Share>,
    seconds: f64,
}

impl Row<'_> {
    fn line(&self) -> Line {
        let tokens = self.test.tokens() as f64;
        let seconds = self.shares.iter().map(|share| share.cost.seconds(self.test, &share.limits));
        let bound = tokens / seconds.sum::<f64>();
        let reached = tokens / self.seconds;
        let all = |f: fn(&Cost) -> f64| self.shares.iter().map(|share| f(&share.cost)).sum::<f64>();
        // Of two devices the GPU's rates are shown.
        let rate = |f: fn(&Limits) -> f64| self.shares.first().map_or(0.0, |share| f(&share.limits));
        let number = |x: f64| format!("{x:.1}");
        let cells = vec![
            Cell::left("model", 28, self.model.kind.clone()).above(),
            Cell::left("backend", 10, self.place.backend(self.isa, self.repack)).above(),
            Cell::right("threads", 7, self.threads.to_string()).above(),
            Cell::right("test", 14, self.test.name()).key(),
            Cell::right("MB/token", 8, number(all(|c| c.weight_bytes) / 1e6)),
            Cell::right("GB/s", 6, number(rate(|l| l.bytes) / 1e9)),
            Cell::right("GMAC/s", 7, number(rate(|l| l.int8) / 1e9)),
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
            ("weight_bytes_per_token", json!(all(|c| c.weight_bytes))),
            ("kv_bytes_per_position", json!(all(|c| c.kv_bytes))),
            ("quantized_macs_per_token", json!(all(|c| c.quantized))),
            ("float_macs_per_token", json!(all(|c| c.float))),
            ("attention_macs_per_position", json!(all(|c| c.attention))),
            ("read_gbs", json!(rate(|l| l.bytes) / 1e9)),
            ("int8_gmacs", json!(rate(|l| l.int8) / 1e9)),
            ("f32_gmacs", json!(rate(|l| l.f32) / 1e9)),
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
