//! How fast products are, beside half floats of cuBLAS and beside the rate at which memory is copied, in the same run.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use trine_cuda::device::Device as _;
use trine_cuda::driver::Context;
use trine_formats::types::TypeId;

use super::checks::weights;
use super::product::{Product, Shape, Way};
use super::{Options, Report};
use crate::inputs::Rng;

/// Rows and columns that are timed.
const SHAPES: &[(usize, usize)] = &[(4096, 4096), (13824, 2560), (22016, 4096), (4096, 11008), (57344, 8192)];
const SMALL: &[(usize, usize)] = &[(64, 256)];
const TOKENS: &[usize] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Bytes of weights that do not stay in any cache, in copies that take turns.
const APART: usize = 256 << 20;
/// Times of which the median is taken, and starts between two looks at the clock.
const SAMPLES: usize = 21;
const STARTS: usize = 20;
/// Ratio to the earlier time above which a slower result is reported.
const SLOWER: f64 = 1.05;

/// Times everything until the time is up.
///
/// # Errors
/// The device's error, an earlier report that cannot be read.
pub fn run(context: &mut Context, options: &Options, report: &mut Report) -> Result<()> {
    let rate = copy_rate(context, if options.small { 1 << 16 } else { 1 << 30 })?;
    report.set("ceilings", json!({"copy_bytes_per_second": rate}))?;
    let (shapes, tokens) = match options.small {
        true => (SMALL, &TOKENS[..1]),
        false => (SHAPES, TOKENS),
    };
    let cublas = cublas(shapes, tokens);
    if let Err(why) = &cublas {
        report.set("cublas", json!(format!("not run: {why:#}")))?;
    }
    let start = Instant::now();
    for &(rows, columns) in shapes {
        for (ty, way) in [
            (TypeId::TQ2_0, Way::Exact),
            (TypeId::TQ2_0, Way::Halves),
            (TypeId::Q4_0, Way::Exact),
            (TypeId::Q4_0, Way::Halves),
            (TypeId::Q4_0, Way::Pruned),
            (TypeId::Q8_0, Way::Exact),
            (TypeId::F16, Way::Exact),
            // The same numbers as cuBLAS, in the same precision.
            (TypeId::F16, Way::Halves),
            (TypeId::BF16, Way::Halves),
        ] {
            for &tokens in tokens {
                if start.elapsed() > options.limit {
                    return report.set("speed_without_time", json!(true));
                }
                let shape = Shape { ty, rows, columns, tokens, way };
                let seconds = time(context, shape, options)?;
                let theirs = cublas.as_ref().ok().and_then(|times| {
                    let found = times
                        .iter()
                        .find(|t| (t["rows"] == rows) & (t["columns"] == columns) & (t["tokens"] == tokens));
                    found?["seconds"].as_f64()
                });
                report.push(
                    "speed",
                    json!({
                        "what": shape.name(),
                        "seconds": seconds,
                        "bytes_per_second": shape.bytes_read() as f64 / seconds,
                        "of_copy_rate": shape.bytes_read() as f64 / seconds / rate,
                        "cublas_f16_seconds": theirs,
                        "times_cublas_f16": theirs.map(|t| t / seconds),
                    }),
                )?;
            }
        }
    }
    match &options.against {
        Some(path) => compare(&fs::read_to_string(path).context("an earlier report")?, report),
        None => Ok(()),
    }
}

/// Bytes that are read and written in a second, together, by copies within the memory.
fn copy_rate(context: &mut Context, bytes: usize) -> Result<f64> {
    let mut buffer = context.allocate(2 * bytes)?;
    context.upload(&mut buffer, 0, &vec![1; bytes])?;
    let mut seconds = Vec::new();
    for _ in 0..SAMPLES {
        context.wait()?;
        let start = Instant::now();
        context.copy(&mut buffer, 0, bytes, bytes)?;
        context.wait()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(2.0 * bytes as f64 / crate::bench::median(seconds))
}

/// The median of the seconds of a product.
fn time(context: &mut Context, shape: Shape, options: &Options) -> Result<f64> {
    let (samples, starts, apart) = match options.small {
        true => (3, 1, 1),
        false => (SAMPLES, STARTS, APART),
    };
    let data = weights(&mut Rng::new(shape.tokens as u64), shape)?;
    let copies = apart.div_ceil(shape.bytes().max(1)).max(1);
    let mut product = Product::new(context, shape, &data, copies)?;
    // Activations are there once, and the kernels have run.
    product.run(context, &vec![0.5; shape.tokens * shape.columns])?;
    let (mut seconds, mut copy) = (Vec::new(), 0);
    for _ in 0..samples {
        context.wait()?;
        let start = Instant::now();
        for _ in 0..starts {
            product.start(context, copy)?;
            copy += 1;
        }
        context.wait()?;
        seconds.push(start.elapsed().as_secs_f64() / starts as f64);
    }
    Ok(crate::bench::median(seconds))
}

/// The seconds of the same products of half floats by cuBLAS, as PyTorch calls it.
fn cublas(shapes: &[(usize, usize)], tokens: &[usize]) -> Result<Vec<Value>> {
    let mut python = Command::new("python3")
        .args(["-c", include_str!("../../python/cublas_times.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("python3")?;
    let asked = json!({"shapes": shapes, "tokens": tokens, "samples": SAMPLES, "starts": STARTS});
    let mut stdin = python.stdin.take().context("a pipe")?;
    stdin.write_all(asked.to_string().as_bytes())?;
    drop(stdin);
    let output = python.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let last = told.lines().next_back().unwrap_or("no times").to_owned();
    serde_json::from_slice(&output.stdout).context(last)
}

/// Reports the results that are slower than in an earlier report of the same device.
fn compare(earlier: &str, report: &mut Report) -> Result<()> {
    let earlier: Value = serde_json::from_str(earlier)?;
    let before = |what: &Value| {
        let all = earlier["speed"].as_array()?;
        all.iter().find(|e| e["what"] == *what)?["seconds"].as_f64()
    };
    let slower = report.list("speed").iter().filter_map(|now| {
        let (was, is) = (before(&now["what"])?, now["seconds"].as_f64()?);
        let told = json!({"what": now["what"], "before": was, "now": is});
        (is > was * SLOWER).then_some(told)
    });
    let slower: Vec<Value> = slower.collect();
    report.set("slower", json!(slower))
}
