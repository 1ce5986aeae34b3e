//! Times several sequences at once, as llama-batched-bench does.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine::Isa;
use trine::model::Weights;
use trine::pool::Pool;
use trine::step::{Engine, PagePool, Segment, Sequence, StepOptions};

use super::Subject;
use super::args::{Args, Format};
use super::describe::Description;
use super::models::{start_pool, thread_counts};
use super::numbers;
use super::output::{Line, ModelSetup, Shown, Table, object};
use crate::args::threads;
use crate::feed::RandomTokens;
use crate::provenance::processor;
use crate::stats::Summary;
use crate::table::{self, Cell};
use crate::terminal;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    /// Tokens of each prompt.
    prompt: usize,
    /// Tokens generated after each prompt.
    generated: usize,
    /// Sequences.
    sequences: usize,
    /// True if all sequences continue one prompt.
    shared: bool,
    /// Tokens computed at once.
    ubatch: usize,
}

impl Test {
    /// Tokens of prompts that are computed.
    fn prompt_tokens(&self) -> usize {
        self.prompt * if self.shared { 1 } else { self.sequences }
    }

    /// Tokens that are generated.
    fn generated_tokens(&self) -> usize {
        self.generated * self.sequences
    }

    /// Positions in the cache at the end.
    fn positions(&self) -> usize {
        self.prompt_tokens() + self.generated_tokens()
    }
}

/// Seconds that a test took.
#[derive(Clone, Copy)]
struct Times {
    prompt: f64,
    generated: f64,
}

/// Runs everything and writes the table.
///
/// # Errors
/// A model that cannot be loaded; nothing to do; output that cannot be written.
pub fn run(args: &Args, subjects: &[Subject], out: &mut dyn Write) -> Result<()> {
    let isa = Isa::from_env()?;
    let counts = thread_counts(args, &[threads(None)]);
    let tests = tests(args)?;
    let loadings = args.loadings();
    let several = Several {
        loadings: loadings.len() > 1,
        models: subjects.len() > 1,
        threads: counts.len() > 1,
        ubatches: [&args.ubatch_size, &args.batch_size].into_iter().any(|list| numbers::all(list).len() > 1),
    };
    let mut table = Table::new(args.output, "rbench.batched/1", out)?;
    let mut notes = Vec::new();
    for subject in subjects {
        let name = subject.name();
        let file = subject.open(args)?;
        table.about(subject, &file);
        let description = Description::of(&file);
        for &loading in &loadings {
            let options = args.load_options(isa, loading)?;
            let model = Weights::load(&file, &options).with_context(|| format!("'{name}'"))?;
            for &threads in &counts {
                let pool = start_pool(threads)?;
                let mut measured = Vec::with_capacity(tests.len());
                for test in &tests {
                    if args.progress {
                        note!("rbench: {name}, {threads} threads, {test:?}");
                    }
                    let times = measure(&model, &pool, test, args)?;
                    measured.push((*test, times));
                    let record = Record {
                        file: &name,
                        model: &description,
                        isa,
                        repack: !args.no_repack,
                        place: ModelSetup::of(args, loading),
                        threads,
                        test,
                        times,
                    };
                    table.row(&record.line(several))?;
                }
                let place = format!("{}, {threads} threads", description.kind);
                notes.extend(against_prompts(&measured).map(|note| format!("{place}: {note}")));
            }
        }
    }
    let out = table.finish()?;
    if args.output == Format::Md && !notes.is_empty() {
        writeln!(out)?;
        for note in notes {
            let lines = terminal::lines(&note, Some(table::columns()), 4);
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
    }
    Ok(())
}

/// Every combination of the lists.
fn tests(args: &Args) -> Result<Vec<Test>> {
    let mut all = Vec::new();
    let sequences = numbers::all(&args.npl);
    for batch in numbers::all(&args.batch_size) {
        for ubatch in numbers::all(&args.ubatch_size) {
            for prompt in numbers::all(&args.npp) {
                for generated in numbers::all(&args.ntg) {
                    all.extend(sequences.iter().map(|&sequences| Test {
                        prompt,
                        generated,
                        sequences,
                        shared: args.pps,
                        ubatch: ubatch.min(batch),
                    }));
                }
            }
        }
    }
    all.retain(|t| t.prompt + t.generated > 0);
    if all.is_empty() {
        bail!("nothing to do: give -npp or -ntg a number above 0");
    }
    Ok(all)
}

/// The median times of all repetitions.
fn measure(model: &Weights, pool: &Pool, test: &Test, args: &Args) -> Result<Times> {
    let layout = model.page_layout();
    let each = (test.prompt + test.generated).div_ceil(layout.positions);
    // One more for the copy of a page that is shared.
    let pages = PagePool::new(layout, test.sequences * (each + 1));
    let mut bench = Bench {
        engine: Engine::with_pages(model, pool, pages).with_sequences(test.sequences),
        tokens: RandomTokens::new(model.n_vocab()),
        options: StepOptions { n_ubatch: test.ubatch, bits: args.bits, ..StepOptions::default() },
    };
    if !args.no_warmup {
        bench.run(&Test { prompt: test.prompt.min(16), generated: test.generated.min(1), ..*test })?;
    }
    let mut prompts = Vec::with_capacity(args.repetitions);
    let mut generations = Vec::with_capacity(args.repetitions);
    for _ in 0..args.repetitions {
        let times = bench.run(test)?;
        prompts.push(times.prompt);
        generations.push(times.generated);
    }
    Ok(Times { prompt: Summary::of(&prompts).median, generated: Summary::of(&generations).median })
}

/// A run of the tests of one model.
struct Bench {
    engine: Engine,
    tokens: RandomTokens,
    options: StepOptions,
}

impl Bench {
    /// One repetition: all prompts in one step, then steps of a token of each sequence.
    fn run(&mut self, test: &Test) -> Result<Times> {
        let prompts = if test.shared { 1 } else { test.sequences };
        let mut sequences: Vec<Sequence> = (0..prompts).map(|_| self.engine.sequence()).collect();
        let start = Instant::now();
        self.step(&mut sequences, test.prompt)?;
        let prompt = start.elapsed().as_secs_f64();
        let forks: Vec<Sequence> = (prompts..test.sequences).map(|_| sequences[0].fork(test.prompt)).collect();
        sequences.extend(forks);
        let start = Instant::now();
        for _ in 0..test.generated {
            self.step(&mut sequences, 1)?;
        }
        let generated = start.elapsed().as_secs_f64();
        Ok(Times { prompt, generated })
    }

    /// Random tokens to the end of every sequence, with the logits of the last of each.
    fn step(&mut self, sequences: &mut [Sequence], tokens: usize) -> Result<()> {
        if tokens == 0 {
            return Ok(());
        }
        let texts: Vec<Vec<u32>> = sequences.iter().map(|_| self.tokens.take(tokens)).collect();
        let pairs = sequences.iter_mut().zip(&texts);
        let mut segments: Vec<Segment<'_>> =
            pairs.map(|(seq, text)| Segment { seq, tokens: text, logits_from: tokens - 1 }).collect();
        let sink = &mut |_, _, _: &[f32]| ();
        Ok(self.engine.step(&mut segments, &self.options, sink)?)
    }
}

/// Sentences on how fast a step of B sequences is beside a prompt of B tokens, where both were measured: they read the
/// same weights and compute as many rows.
fn against_prompts(measured: &[(Test, Times)]) -> impl Iterator<Item = String> {
    let prompts = measured.iter().filter(|(t, _)| t.sequences == 1 && t.prompt > 1);
    prompts.flat_map(|(prompt, prompt_times)| {
        let n = prompt.prompt;
        let as_many = move |t: &Test| {
            t.sequences == n && t.generated > 0 && t.ubatch.min(n) == prompt.ubatch.min(n)
        };
        let of_prompt = n as f64 / prompt_times.prompt;
        let steps = measured.iter().filter(move |(t, _)| as_many(t));
        steps.map(move |(t, times)| {
            let of_step = t.generated_tokens() as f64 / times.generated;
            format!(
                "a step of {n} sequences, each after {} tokens: {of_step:.2} t/s, {:.1} % of a prompt of {n} tokens ({of_prompt:.2} t/s)",
                t.prompt,
                100.0 * of_step / of_prompt
            )
        })
    })
}

/// The settings with several values, each of which gets a column.
#[derive(Clone, Copy)]
struct Several {
    models: bool,
    threads: bool,
    ubatches: bool,
    loadings: bool,
}

/// One measured test.
struct Record<'a> {
    file: &'a str,
    model: &'a Description,
    isa: Isa,
    repack: bool,
    place: ModelSetup,
    threads: usize,
    test: &'a Test,
    times: Times,
}

impl Record<'_> {
    /// Tokens per second; 0 of nothing.
    fn rates(&self) -> [f64; 3] {
        let Times { prompt, generated } = self.times;
        let (pp, tg) = (self.test.prompt_tokens(), self.test.generated_tokens());
        let pairs = [(pp, prompt), (tg, generated), (pp + tg, prompt + generated)];
        pairs.map(|(n, s)| if n == 0 { 0.0 } else { n as f64 / s })
    }

    fn line(&self, several: Several) -> Line {
        let (test, Times { prompt, generated }) = (self.test, self.times);
        let mut cells: Vec<Cell> = Vec::new();
        if several.models {
            cells.push(Cell::left("model", 28, self.model.kind.clone()).above());
        }
        if several.threads {
            cells.push(Cell::right("threads", 7, self.threads.to_string()).above());
        }
        if several.loadings {
            cells.extend(self.place.cells(Shown::ALL));
        }
        if several.ubatches {
            cells.push(Cell::right("n_ubatch", 8, test.ubatch.to_string()).key());
        }
        let [speed_pp, speed_tg, speed] = self.rates();
        let (seconds, rate) = (|s: f64| format!("{s:.3}"), |r: f64| format!("{r:.2}"));
        cells.extend([
            Cell::right("PP", 6, test.prompt.to_string()).key(),
            Cell::right("TG", 6, test.generated.to_string()).key(),
            Cell::right("B", 4, test.sequences.to_string()).key(),
            Cell::right("N_KV", 6, test.positions().to_string()),
            Cell::right("T_PP s", 8, seconds(prompt)).wide_only(),
            Cell::right("S_PP t/s", 8, rate(speed_pp)),
            Cell::right("T_TG s", 8, seconds(generated)).wide_only(),
            Cell::right("S_TG t/s", 8, rate(speed_tg)),
            Cell::right("T s", 8, seconds(prompt + generated)).wide_only(),
            Cell::right("S t/s", 8, rate(speed)),
        ]);
        // Named as in llama-batched-bench and llama-bench where these have the field.
        let fields = [
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("cpu_info", json!(processor())),
            ("model_filename", json!(self.file)),
            ("model_type", json!(self.model.kind)),
            ("model_size", json!(self.model.bytes)),
            ("model_n_params", json!(self.model.params)),
            ("isa", json!(self.isa.name())),
            ("repack", json!(self.repack)),
            ("device", json!(self.place.device.to_string())),
            ("n_gpu_layers", self.place.layers_field()),
            ("type_k", json!(self.place.loading.cache.keys.to_string())),
            ("type_v", json!(self.place.loading.cache.values.to_string())),
            ("n_threads", json!(self.threads)),
            ("n_ubatch", json!(test.ubatch)),
            ("is_pp_shared", json!(u8::from(test.shared))),
            ("pp", json!(test.prompt)),
            ("tg", json!(test.generated)),
            ("pl", json!(test.sequences)),
            ("n_kv", json!(test.positions())),
            ("t_pp", json!(prompt)),
            ("speed_pp", json!(speed_pp)),
            ("t_tg", json!(generated)),
            ("speed_tg", json!(speed_tg)),
            ("t", json!(prompt + generated)),
            ("speed", json!(speed)),
        ];
        Line { cells, fields: object(fields) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(prompt: usize, generated: usize, sequences: usize) -> Test {
        Test { prompt, generated, sequences, shared: false, ubatch: 512 }
    }

    #[test]
    fn a_shared_prompt_counts_once() {
        let apart = test(100, 10, 4);
        let shared = Test { shared: true, ..apart };
        assert_eq!((apart.prompt_tokens(), apart.positions()), (400, 440));
        assert_eq!((shared.prompt_tokens(), shared.positions()), (100, 140));
    }

    #[test]
    fn steps_are_set_beside_prompts_of_as_many_tokens() {
        let times = |prompt, generated| Times { prompt, generated };
        let measured = [
            (test(8, 4, 1), times(0.1, 0.2)),
            (test(8, 4, 2), times(0.1, 0.2)),
            (test(8, 4, 8), times(0.6, 0.5)),
            (test(64, 0, 8), times(0.6, 0.0)),
        ];
        let said: Vec<String> = against_prompts(&measured).collect();
        let expected =
            "a step of 8 sequences, each after 8 tokens: 64.00 t/s, 80.0 % of a prompt of 8 tokens (80.00 t/s)";
        assert_eq!(said, [expected]);
    }
}
