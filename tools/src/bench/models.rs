//! Times prompts and generated texts of whole models.

use std::io::Write;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use trine::Isa;
use trine::exec::Profile;
use trine::model::Weights;
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};

use super::Subject;
use super::args::Args;
use super::describe::Description;
use super::grid::{self, Test};
use super::numbers;
use super::output::{ModelSetup, Record, Shown, Table};
use crate::args::threads;
use crate::feed::Feed;

/// A pool of `threads`.
///
/// # Errors
/// The system starts no more threads.
pub fn start_pool(threads: usize) -> Result<Pool> {
    Pool::new(threads).with_context(|| format!("cannot start {threads} threads"))
}

/// The numbers of threads asked for, `default` where none are; never more than there are processors.
pub fn thread_counts(args: &Args, default: &[usize]) -> Vec<usize> {
    let given = numbers::all(&args.threads);
    let wanted = match given[..] {
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
    let tests = grid::tests(args)?;
    let mut table = Table::new(args.output, "rbench.models/1", out)?;
    let shown = Shown::of(args);
    let counts = thread_counts(args, &[threads(None)]);
    let loadings = args.loadings();
    let mut tested = false;
    for subject in subjects {
        let name = subject.name();
        let file = subject.open(args)?;
        table.about(subject, &file);
        let description = Description::of(&file);
        for (&loading, &threads) in loadings.iter().flat_map(|l| counts.iter().map(move |t| (l, t))) {
            let options = args.load_options(isa, loading)?;
            let model = Weights::load(&file, &options).with_context(|| format!("'{name}'"))?;
            let pool = start_pool(threads)?;
            for test in &tests {
                let say = |what: &str| {
                    if args.progress {
                        note!("rbench: {name}, {threads} threads, {}: {what}", test.name());
                    }
                };
                if tested && args.delay > 0 {
                    sleep(Duration::from_secs(args.delay));
                }
                tested = true;
                let samples = measure(&model, &pool, test, args.repetitions, args, &say)?;
                let record = Record {
                    file: &name,
                    model: &description,
                    isa,
                    repack: !args.no_repack,
                    place: ModelSetup::of(args, loading),
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

/// Seconds of every one of the `repetitions` of `test`; `say` is told what happens.
///
/// # Errors
/// The model refuses the tokens.
pub fn measure(
    model: &Weights,
    pool: &Pool,
    test: &Test,
    repetitions: usize,
    args: &Args,
    say: &dyn Fn(&str),
) -> Result<Vec<f64>> {
    measure_with(model, pool, test, (repetitions, None), args, say)
}

/// The same with times of the operations of all repetitions.
///
/// # Errors
/// The model refuses the tokens.
pub fn measure_with(
    model: &Weights,
    pool: &Pool,
    test: &Test,
    (repetitions, profile): (usize, Option<&Arc<Profile>>),
    args: &Args,
    say: &dyn Fn(&str),
) -> Result<Vec<f64>> {
    let options = SessionOptions { n_ctx: test.depth + test.tokens(), n_ubatch: test.ubatch };
    let mut session = Session::new(model, pool, options);
    session.profile_by(profile.cloned());
    if let Some(bits) = args.bits {
        session.set_bits(bits)?;
    }
    let mut run = Feed::new(session);
    if !args.no_warmup {
        say("warming up");
        run.prompt(test.prompt, test.batch)?;
        run.generate(test.generated.min(1))?;
        run.truncate(0);
    }
    run.prompt(test.depth, test.batch)?;
    let mut samples = Vec::with_capacity(repetitions);
    for i in 0..repetitions {
        say(&format!("{} of {repetitions}", i + 1));
        let left = run.truncate(test.depth);
        run.prompt(test.depth - left, test.batch)?;
        if let (0, Some(profile)) = (i, profile) {
            profile.clear();
        }
        let start = Instant::now();
        run.prompt(test.prompt, test.batch)?;
        run.generate(test.generated)?;
        samples.push(start.elapsed().as_secs_f64());
    }
    Ok(samples)
}
