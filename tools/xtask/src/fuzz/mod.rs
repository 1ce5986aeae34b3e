//! `cargo xtask fuzz`: all fuzz targets, one after the other, each for its share of the time.

mod told;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{output, root, succeed, triple};
use told::Told;

/// Memory that one allocation of a target may take, in MiB: far more than sound data of these sizes needs.
const ALLOCATION: u32 = 256;
/// Seconds that one input may take.
const INPUT: u32 = 10;

/// The targets to run.
#[derive(Debug, PartialEq)]
pub struct Plan {
    hours: f64,
    target: Option<String>,
    json: bool,
}

impl Plan {
    /// The plan of a command line: `HOURS [--target NAME] [--json]`.
    pub fn of(words: &[&str]) -> Option<Plan> {
        let (hours, mut rest) = words.split_first()?;
        let hours = hours.parse().ok().filter(|hours: &f64| hours.is_finite() && *hours > 0.0)?;
        let mut plan = Plan { hours, target: None, json: false };
        loop {
            rest = match rest {
                [] => return Some(plan),
                ["--json", rest @ ..] => {
                    plan.json = true;
                    rest
                }
                ["--target", name, rest @ ..] => {
                    plan.target = Some((*name).to_owned());
                    rest
                }
                _ => return None,
            }
        }
    }
}

/// A target's run.
struct Run {
    target: String,
    /// Seconds that it ran.
    seconds: u64,
    told: Told,
    /// Files of its corpus after it was minimised.
    corpus: usize,
}

/// The program of all targets, and folders below `target/fuzz` of the repository, which git ignores.
struct Folders {
    program: PathBuf,
    corpus: PathBuf,
    found: PathBuf,
    log: PathBuf,
}

/// Builds the targets and runs them.
///
/// # Errors
/// A missing compiler, and a crash: its file, and the command that runs it again.
pub fn run(plan: &Plan) -> Result<()> {
    let triple = triple()?;
    let below = root().canonicalize()?.join("target/fuzz");
    let [build, corpus, found, log] = ["build", "corpus", "found", "log"].map(|name| below.join(name));
    let program = build.join(&triple).join("fuzz/trine-fuzz");
    let folders = Folders { program, corpus, found, log };
    // For a target by name, so that no flag reaches a program that cargo runs while it builds.
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo", "build", "--locked", "--profile", "fuzz", "--target", &triple]);
    cargo.arg("--target-dir").arg(&build).current_dir(root().join("compat-tests/fuzz"));
    // That of the compiler that compiled this program.
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    succeed(&mut cargo).context("a nightly compiler is needed: rustup toolchain install nightly")?;
    let all = output(&mut Command::new(&folders.program))?;
    let all: Vec<&str> = all.lines().collect();
    let targets = match plan.target.as_deref() {
        None => all,
        Some(one) if all.contains(&one) => vec![one],
        Some(one) => bail!("there is no target '{one}': there are {}", all.join(", ")),
    };

    let seconds = (plan.hours * 3600.0 / targets.len() as f64).ceil().max(1.0) as u64;
    let mut runs = Vec::new();
    for target in targets {
        eprintln!("{target}: {seconds} s");
        runs.push(folders.fuzz(target, seconds)?);
    }
    match plan.json {
        true => println!("{:#}", Value::from_iter(runs.iter().map(Run::to_json))),
        false => print!("{}", table(&runs)),
    }
    let crashes: Vec<String> = runs.iter().filter_map(Run::crash).collect();
    if !crashes.is_empty() {
        bail!("found\n{}", crashes.join("\n"));
    }
    Ok(())
}

impl Folders {
    /// The program for one target.
    fn program(&self, target: &str) -> Command {
        let mut command = Command::new(&self.program);
        // A static that several parts hold a copy of is no fault here.
        command.env("ASAN_OPTIONS", "detect_odr_violation=0");
        command.env("FUZZ_TARGET", target).stdout(Stdio::null());
        command
    }

    /// Runs a target for some seconds and minimises its corpus.
    fn fuzz(&self, target: &str, seconds: u64) -> Result<Run> {
        let [corpus, less, found] =
            [self.corpus.join(target), self.corpus.join(format!("{target}.less")), self.found.join(target)];
        for folder in [&corpus, &found, &self.log] {
            fs::create_dir_all(folder)?;
        }
        let log = self.log.join(format!("{target}.txt"));
        let mut command = self.program(target);
        command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        command.arg(format!("-malloc_limit_mb={ALLOCATION}")).arg(format!("-timeout={INPUT}"));
        command.arg(format!("-artifact_prefix={}/", found.display())).arg(&corpus);
        command.args(seeds(target)).stderr(File::create(&log)?);
        let begun = Instant::now();
        let status = command.status().with_context(|| format!("cannot run '{}'", self.program.display()))?;
        let seconds = begun.elapsed().as_secs();
        let told = Told::of(&String::from_utf8_lossy(&fs::read(&log)?));
        if !status.success() && told.crash.is_none() {
            bail!("{target} ended with {status}: see '{}'", log.display());
        }

        let _ = fs::remove_dir_all(&less);
        fs::create_dir_all(&less)?;
        let mut command = self.program(target);
        command.arg("-merge=1").args([&less, &corpus]).stderr(Stdio::null());
        // Without an end of its own it leaves the corpus as it is.
        if command.status()?.success() {
            fs::remove_dir_all(&corpus)?;
            fs::rename(&less, &corpus)?;
        } else {
            fs::remove_dir_all(&less)?;
        }
        Ok(Run { target: target.to_owned(), seconds, told, corpus: fs::read_dir(&corpus)?.count() })
    }
}

/// Folders with inputs that a target begins with: those that the tests keep of its name, and of the form that it reads.
fn seeds(target: &str) -> Vec<PathBuf> {
    let kept = root().join("testdata/hostile");
    let forms: &[&str] = match target {
        "gguf_read"
        | "decode_tensors"
        | "rewrite"
        | "tokenizer_from_meta"
        | "model_load"
        | "any_precision"
        | "adapter"
        | "hessian" => &["accepted", "refused"],
        "imatrix_read" => &["imatrix", "accepted"],
        "template_render" => &["template"],
        other => &[other],
    };
    forms.iter().map(|form| kept.join(form)).filter(|folder| folder.is_dir()).collect()
}

impl Run {
    fn to_json(&self) -> Value {
        json!({
            "target": self.target,
            "seconds": self.seconds,
            "executions": self.told.executions,
            "executions_per_second": self.told.per_second,
            "coverage": self.told.coverage,
            "features": self.told.features,
            "corpus": self.corpus,
            "crashes": usize::from(self.told.crash.is_some()),
            "file": self.told.crash,
            "replay": self.replay(),
        })
    }

    /// The command that gives the target what it crashed on.
    fn replay(&self) -> Option<String> {
        let file = self.told.crash.as_ref()?;
        Some(format!("FUZZ_TARGET={} target/fuzz/build/*/fuzz/trine-fuzz {file}", self.target))
    }

    fn crash(&self) -> Option<String> {
        Some(format!("{}: {}\n  {}", self.target, self.told.crash.as_ref()?, self.replay()?))
    }
}

/// A table in Markdown.
fn table(runs: &[Run]) -> String {
    let mut text =
        "| target | seconds | executions | executions/s | edges | features | corpus | crashes |\n".to_owned();
    text += "|---|--:|--:|--:|--:|--:|--:|--:|\n";
    for Run { target, seconds, told, corpus } in runs {
        let Told { executions, per_second, coverage, features, crash } = told;
        let crashes = usize::from(crash.is_some());
        text += &format!(
            "| {target} | {seconds} | {executions} | {per_second} | {coverage} | {features} | {corpus} | {crashes} |\n"
        );
    }
    let sum: u64 = runs.iter().map(|run| run.told.executions).sum();
    let seconds: u64 = runs.iter().map(|run| run.seconds).sum();
    text += &format!("\n{sum} executions in {seconds} s.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let plan = |hours, target: Option<&str>, json| Plan { hours, target: target.map(str::to_owned), json };
        assert_eq!(Plan::of(&["2"]), Some(plan(2.0, None, false)));
        assert_eq!(Plan::of(&["0.5", "--json", "--target", "gbnf"]), Some(plan(0.5, Some("gbnf"), true)));
        for bad in [&[][..], &["0"], &["-1"], &["NaN"], &["inf"], &["1", "--target"], &["1", "gbnf"], &["--json"]] {
            assert_eq!(Plan::of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_crash_names_its_file_and_the_command_that_runs_it() {
        let crash = Some("found/gbnf/crash-1".to_owned());
        let told = Told { executions: 7, per_second: 3, coverage: 5, features: 9, crash };
        let run = Run { target: "gbnf".to_owned(), seconds: 4, told, corpus: 2 };
        assert!(table(&[run]).ends_with("\n| gbnf | 4 | 7 | 3 | 5 | 9 | 2 | 1 |\n\n7 executions in 4 s.\n"));
        let told = Told { crash: Some("f".to_owned()), ..Told::default() };
        let run = Run { target: "gbnf".to_owned(), seconds: 4, told, corpus: 2 };
        assert_eq!(run.crash().unwrap(), "gbnf: f\n  FUZZ_TARGET=gbnf target/fuzz/build/*/fuzz/trine-fuzz f");
        assert_eq!(run.to_json()["crashes"], 1);
    }
}
