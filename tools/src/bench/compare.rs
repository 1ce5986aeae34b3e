//! Sets each speed beside that of llama.cpp or of ik_llama.cpp: their llama-bench runs in turns with this program, on the
//! same file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use trine::Isa;
use trine::model::Weights;

use super::Subject;
use super::args::Args;
use super::describe::Description;
use super::grid::{self, Test};
use super::models::{measure, start_pool, thread_counts};
use super::output::{Line, ModelSetup, Table, object};
use crate::args::threads;
use crate::provenance::processor;
use crate::stats::Summary;
use crate::table::Cell;
use crate::version;

/// A program that this one is set beside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rival {
    /// llama.cpp.
    Llama,
    /// ik_llama.cpp, with flash attention and with weights repacked when they are loaded, as it is fastest.
    Ik,
}

impl Rival {
    fn name(self) -> &'static str {
        match self {
            Rival::Llama => "llama.cpp",
            Rival::Ik => "ik_llama.cpp",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Rival::Llama => "--compare-llama",
            Rival::Ik => "--compare-ik",
        }
    }

    /// The options of its llama-bench for `test`, but for the model and the threads.
    ///
    /// # Errors
    /// It has no such test.
    fn options(self, test: &Test) -> Result<String> {
        let Test { prompt, generated, depth, batch, ubatch } = *test;
        let sizes = format!("-b {batch} -ub {ubatch} -r 1");
        Ok(match (self, prompt, generated, depth) {
            (Rival::Llama, p, 0, d) => format!("-d {d} {sizes} -p {p} -n 0"),
            (Rival::Llama, 0, g, d) => format!("-d {d} {sizes} -p 0 -n {g}"),
            (Rival::Llama, p, g, d) => format!("-d {d} {sizes} -p 0 -n 0 -pg {p},{g}"),
            (Rival::Ik, p, 0, 0) => format!("-fa 1 -rtr 1 {sizes} -p {p} -n 0"),
            (Rival::Ik, 0, g, 0) => format!("-fa 1 -rtr 1 {sizes} -p 0 -n {g}"),
            (Rival::Ik, 0, g, d) => format!("-fa 1 -rtr 1 {sizes} -p 0 -n 0 -gp {d},{g}"),
            (Rival::Ik, p, g, 0) => format!("-fa 1 -rtr 1 {sizes} -p 0 -n 0 -pg {p},{g}"),
            (Rival::Ik, ..) => bail!(
                "'{}': the llama-bench of ik_llama.cpp reads no prompts behind others: give -d with -p 0",
                test.name()
            ),
        })
    }
}

/// A rival's program for one measurement.
struct LlamaBench {
    program: PathBuf,
    rival: Rival,
}

impl LlamaBench {
    /// The program in the folder `dir` of a build, or in its `bin`.
    ///
    /// # Errors
    /// The folder has no such program.
    fn find(rival: Rival, dir: &Path) -> Result<LlamaBench> {
        let name = format!("llama-bench{}", std::env::consts::EXE_SUFFIX);
        let places = [dir.join(&name), dir.join("bin").join(&name)];
        match places.into_iter().find(|place| place.is_file()) {
            Some(program) => Ok(LlamaBench { program, rival }),
            None => {
                let (dir, rival) = (dir.display(), rival.name());
                bail!("'{dir}' has no {name}, nor has its bin: give the folder of a build of {rival}")
            }
        }
    }

    /// Tokens per second of `test`, and the commit that the program says it was built from.
    ///
    /// # Errors
    /// The program fails, or says something else.
    fn measure(&self, file: &Path, threads: usize, test: &Test) -> Result<(f64, String)> {
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(file).args(["-o", "json", "-t", &threads.to_string()]);
        command.args(self.rival.options(test)?.split(' '));
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run '{}'", self.program.display()))?;
        let said = || {
            let error = String::from_utf8_lossy(&output.stderr);
            let last = error.lines().rfind(|line| !line.trim().is_empty());
            last.unwrap_or("it says nothing").to_owned()
        };
        if !output.status.success() {
            bail!("'{}' fails: {}", self.program.display(), said());
        }
        let rows: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("'{}' writes no JSON: {}", self.program.display(), said()))?;
        let row = &rows[0];
        let commit = row["build_commit"].as_str().unwrap_or("unknown").to_owned();
        match row["avg_ts"].as_f64() {
            Some(speed) => Ok((speed, commit)),
            None => bail!("'{}' names no avg_ts", self.program.display()),
        }
    }
}

/// The measurement of one test.
struct Record<'a> {
    rival: Rival,
    file: &'a str,
    model: &'a Description,
    isa: Isa,
    repack: bool,
    place: ModelSetup,
    threads: usize,
    test: &'a Test,
    commit: &'a str,
    /// Tokens per second of every turn: ours, theirs.
    turns: &'a [(f64, f64)],
}

impl Record<'_> {
    fn line(&self) -> Line {
        let ours: Vec<f64> = self.turns.iter().map(|turn| turn.0).collect();
        let theirs: Vec<f64> = self.turns.iter().map(|turn| turn.1).collect();
        let ratios: Vec<f64> = self.turns.iter().map(|turn| turn.0 / turn.1).collect();
        let [our, their, ratio] = [&ours, &theirs, &ratios].map(|all| Summary::of(all).median);
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        let cells: Vec<Cell> = vec![
            Cell::left("model", 28, self.model.kind.clone()).above(),
            Cell::left("backend", 10, self.place.backend(self.isa, self.repack)).above(),
            Cell::right("threads", 7, self.threads.to_string()).above(),
            Cell::right("test", 14, self.test.name()).key(),
            Cell::right("t/s", 9, format!("{our:.2}")),
            Cell::right(self.rival.name(), self.rival.name().len(), format!("{their:.2}")),
            Cell::right("ratio", 6, format!("{ratio:.2}")),
            Cell::right("of all turns", 14, format!("{least:.2} .. {greatest:.2}")),
        ];
        let fields: Map<String, Value> = object([
            ("version", json!(version::VERSION)),
            ("build_commit", json!(version::COMMIT)),
            ("beside", json!(self.rival.name())),
            ("llama_build_commit", json!(self.commit)),
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
            ("median_ts", json!(our)),
            ("llama_median_ts", json!(their)),
            ("median_ratio", json!(ratio)),
            ("least_ratio", json!(least)),
            ("greatest_ratio", json!(greatest)),
            ("samples_ts", json!(ours)),
            ("llama_samples_ts", json!(theirs)),
        ]);
        Line { cells, fields }
    }
}

/// Runs everything in turns and writes the table.
///
/// # Errors
/// No llama-bench in `dir`, or one that fails or has no such test; a model that cannot be loaded; nothing to do; output that cannot be
/// written.
pub fn run(args: &Args, rival: Rival, dir: &Path, subjects: &[Subject], out: &mut dyn Write) -> Result<()> {
    let isa = Isa::from_env()?;
    let llama = LlamaBench::find(rival, dir)?;
    let tests = grid::tests(args)?;
    tests.iter().try_for_each(|test| rival.options(test).map(drop))?;
    let counts = thread_counts(args, &[threads(None)]);
    let mut table = Table::new(args.output, "rbench.compare/1", out)?;
    let loading = args.only_loading(rival.option())?;
    for subject in subjects {
        let name = subject.name();
        let Subject::File(path) = subject else {
            bail!("'{name}' is a synthetic model in memory: --save FILE keeps it for llama-bench");
        };
        let file = subject.open(args)?;
        table.about(subject, &file);
        let description = Description::of(&file);
        let options = args.load_options(isa, loading)?;
        let model = Weights::load(&file, &options).with_context(|| format!("'{name}'"))?;
        for &threads in &counts {
            for test in &tests {
                let mut turns = Vec::with_capacity(args.repetitions);
                let mut commit = String::new();
                for turn in 1..=args.repetitions {
                    if args.progress {
                        let of = args.repetitions;
                        note!("rbench: {name}, {threads} threads, {}: {turn} of {of}", test.name());
                    }
                    // The threads of ours end with the pool, before the other program starts its own.
                    let seconds = {
                        let pool = start_pool(threads)?;
                        measure(&model, &pool, test, 1, args, &|_| {})?
                    };
                    let ours = test.tokens() as f64 / seconds[0];
                    let theirs = llama.measure(path, threads, test)?;
                    commit = theirs.1;
                    turns.push((ours, theirs.0));
                }
                let record = Record {
                    rival,
                    file: &name,
                    model: &description,
                    isa,
                    repack: !args.no_repack,
                    place: ModelSetup::of(args, loading),
                    threads,
                    test,
                    commit: &commit,
                    turns: &turns,
                };
                table.row(&record.line())?;
            }
        }
    }
    table.finish()?;
    Ok(())
}
