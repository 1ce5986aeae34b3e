//! `cargo xtask fuzz`: all fuzz targets, one after the other, each for its share of the time.

mod told;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{cargo, output, root, succeed, triple};
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

/// Folders below `target/fuzz` of the repository, which git ignores.
struct Folders {
    build: PathBuf,
    programs: PathBuf,
    corpus: PathBuf,
    found: PathBuf,
    log: PathBuf,
}

/// Builds the targets and runs them.
///
/// # Errors
/// A missing compiler, and a crash: its file, and the command that runs it again.
pub fn run(plan: &Plan) -> Result<()> {
    let targets = match (targets()?, &plan.target) {
        (all, None) => all,
        (all, Some(one)) if all.contains(one) => vec![one.clone()],
        (all, Some(one)) => bail!("there is no target '{one}': there are {}", all.join(", ")),
    };
    let triple = triple()?;
    let below = root().canonicalize()?.join("target/fuzz");
    let [build, corpus, found, log] = ["build", "corpus", "found", "log"].map(|name| below.join(name));
    let folders = Folders { programs: build.join(triple).join("release"), build, corpus, found, log };
    let mut build = nightly();
    build.args(["build", "--target-dir"]).arg(&folders.build).args(&plan.target);
    succeed(&mut build).context("cargo-fuzz and a nightly compiler are needed: cargo install cargo-fuzz")?;

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

/// cargo-fuzz of the nightly compiler, where the targets are.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]).current_dir(root().join("compat-tests"));
    command
}

/// The names of all targets.
fn targets() -> Result<Vec<String>> {
    let mut cargo = cargo();
    cargo.current_dir(root().join("compat-tests/fuzz"));
    let metadata = output(cargo.args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let bins = metadata["packages"][0]["targets"].as_array().context("cargo metadata names no targets")?;
    let mut names: Vec<String> = bins.iter().filter_map(|bin| Some(bin["name"].as_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

impl Folders {
    /// Runs a target for some seconds and minimises its corpus.
    fn fuzz(&self, target: String, seconds: u64) -> Result<Run> {
        let [corpus, less, found] =
            [self.corpus.join(&target), self.corpus.join(format!("{target}.less")), self.found.join(&target)];
        for folder in [&corpus, &found, &self.log] {
            fs::create_dir_all(folder)?;
        }
        let program = self.programs.join(&target);
        let log = self.log.join(format!("{target}.txt"));
        let mut command = Command::new(&program);
        command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        command.arg(format!("-malloc_limit_mb={ALLOCATION}")).arg(format!("-timeout={INPUT}"));
        command.arg(format!("-artifact_prefix={}/", found.display())).arg(&corpus);
        command.args(seeds(&target)).stdout(Stdio::null()).stderr(File::create(&log)?);
        // As cargo-fuzz sets it: a static of several copies is no fault here.
        command.env("ASAN_OPTIONS", "detect_odr_violation=0");
        let begun = Instant::now();
        let status = command.status().with_context(|| format!("cannot run '{}'", program.display()))?;
        let seconds = begun.elapsed().as_secs();
        let told = Told::of(&String::from_utf8_lossy(&fs::read(&log)?));
        if !status.success() && told.crash.is_none() {
            bail!("{target} ended with {status}: see '{}'", log.display());
        }

        let _ = fs::remove_dir_all(&less);
        fs::create_dir_all(&less)?;
        let mut command = Command::new(&program);
        command.arg("-merge=1").args([&less, &corpus]).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("ASAN_OPTIONS", "detect_odr_violation=0");
        // Without an end of its own it leaves the corpus as it is.
        if command.status()?.success() {
            fs::remove_dir_all(&corpus)?;
            fs::rename(&less, &corpus)?;
        } else {
            fs::remove_dir_all(&less)?;
        }
        Ok(Run { target, seconds, told, corpus: fs::read_dir(&corpus)?.count() })
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
        Some(format!("(cd compat-tests && cargo +nightly fuzz run {} {file})", self.target))
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
        assert_eq!(run.crash().unwrap(), "gbnf: f\n  (cd compat-tests && cargo +nightly fuzz run gbnf f)");
        assert_eq!(run.to_json()["crashes"], 1);
    }

    #[test]
    fn targets_are_those_of_the_manifest() {
        let targets = targets().unwrap();
        let files = fs::read_dir(root().join("compat-tests/fuzz/fuzz_targets")).unwrap();
        assert_eq!(targets.len(), files.count());
        assert!(targets.iter().any(|target| target == "request"));
    }
}
