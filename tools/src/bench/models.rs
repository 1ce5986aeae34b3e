//! Times prompts and generated texts of whole models.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use trine::Isa;
use trine::model::{LoadOptions, Model};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};

use super::Subject;
use super::args::{Args, Pair};
use super::describe::Description;
use super::output::{Record, Shown, Table};
use crate::args::threads;
use crate::feed::Feed;

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
/// There are none.
pub fn tests(args: &Args) -> Result<Vec<Test>> {
    let mut lengths: Vec<Pair> = args.n_prompt.iter().map(|&p| Pair(p, 0)).collect();
    lengths.extend(args.n_gen.iter().map(|&g| Pair(0, g)));
    lengths.extend(&args.prompt_gen);
    lengths.retain(|&Pair(p, g)| p + g > 0);
    let mut all = Vec::new();
    for &batch in &args.batch_size {
        for &ubatch in &args.ubatch_size {
            for &depth in &args.n_depth {
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

/// A pool of `threads`.
///
/// # Errors
/// The system starts no more threads.
pub fn start_pool(threads: usize) -> Result<Pool> {
    Pool::new(threads).with_context(|| format!("cannot start {threads} threads"))
}

/// The numbers of threads asked for, `default` where none are; never more than there are processors.
pub fn thread_counts(args: &Args, default: &[usize]) -> Vec<usize> {
    let wanted = match args.threads[..] {
        [] => default,
        ref given => given,
    };
    let mut counts = Vec::new();
    for &n in wanted {
        let used = threads(Some(n));
        if used < n {
            note!("warning: {n} threads are more than the {used} processors; {used} are used");
        }
        if !counts.contains(&used) {
            counts.push(used);
        }
    }
    counts
}

/// Runs everything and writes the table.
///
/// # Errors
/// A model that cannot be loaded; nothing to do; output that cannot be written.
pub fn run(args: &Args, subjects: &[Subject], out: &mut dyn Write) -> Result<()> {
    let isa = Isa::from_env()?;
    let tests = tests(args)?;
    let mut table = Table::new(args.output, out)?;
    let shown = Shown::of(args);
    let counts = thread_counts(args, &[threads(None)]);
    for subject in subjects {
        let name = subject.name();
        let file = subject.open(args)?;
        let description = Description::of(&file);
        for &threads in &counts {
            let options = LoadOptions {
                isa,
                repack: !args.no_repack,
                packing: args.packing.options(),
                ..LoadOptions::default()
            };
            let model = Model::load(&file, &options).with_context(|| format!("'{name}'"))?;
            let pool = start_pool(threads)?;
            for test in &tests {
                let say = |what: &str| {
                    if args.progress {
                        note!("rbench: {name}, {threads} threads, {}: {what}", test.name());
                    }
                };
                let samples = measure(&model, &pool, test, args, &say)?;
                let record = Record {
                    file: &name,
                    model: &description,
                    isa,
                    repack: !args.no_repack,
                    threads,
                    test,
                    samples: &samples,
                };
                table.row(&record.line(shown))?;
            }
        }
    }
    table.finish()?;
    Ok(())
}

/// Seconds of every repetition of `test`; `say` is told what happens.
///
/// # Errors
/// The model refuses the tokens.
pub fn measure(
    model: &Model,
    pool: &Pool,
    test: &Test,
    args: &Args,
    say: &dyn Fn(&str),
) -> Result<Vec<f64>> {
    let options = SessionOptions {
        n_ctx: test.depth + test.tokens(),
        n_ubatch: test.ubatch,
    };
    let mut run = Feed::new(Session::new(model, pool, options));
    if !args.no_warmup {
        say("warming up");
        run.prompt(test.prompt, test.batch)?;
        run.generate(test.generated.min(1))?;
        run.truncate(0);
    }
    run.prompt(test.depth, test.batch)?;
    let mut samples = Vec::with_capacity(args.repetitions);
    for i in 0..args.repetitions {
        say(&format!("{} of {}", i + 1, args.repetitions));
        run.truncate(test.depth);
        let start = Instant::now();
        run.prompt(test.prompt, test.batch)?;
        run.generate(test.generated)?;
        samples.push(start.elapsed().as_secs_f64());
    }
    Ok(samples)
}
