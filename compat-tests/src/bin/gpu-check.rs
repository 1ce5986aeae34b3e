//! `gpu-check`: trine's kernels on a real GPU, from correctness to speed, for the minutes when there is one.
//! docs/cuda.md says how it is run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use trine_compat_tests::gpu::{self, Options};

const USAGE: &str = "gpu-check [--device N] [--out FILE.json] [--small] [--only-checks] [--limit SECONDS] [--against FILE.json] [MODEL.gguf ...]";

fn main() -> ExitCode {
    let report = options().and_then(|options| gpu::run(&options));
    match report {
        Ok(report) if report.failed() == 0 => ExitCode::SUCCESS,
        Ok(report) => {
            eprintln!("error: {} checks failed", report.failed());
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options> {
    let mut options = Options {
        device: 0,
        out: "gpu-check.json".into(),
        small: false,
        only_checks: false,
        models: Vec::new(),
        against: None,
        limit: Duration::from_secs(150),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--device" => options.device = value()?.parse().context("--device")?,
            "--out" => options.out = value()?.into(),
            "--small" => options.small = true,
            "--only-checks" => options.only_checks = true,
            "--limit" => {
                let seconds = value()?.parse().context("--limit")?;
                options.limit = Duration::from_secs(seconds);
            }
            "--against" => options.against = Some(value()?.into()),
            _ if word.starts_with('-') => bail!("there is no {word}: {USAGE}"),
            _ => options.models.push(PathBuf::from(word)),
        }
    }
    Ok(options)
}
