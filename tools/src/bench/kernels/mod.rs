//! `--kernels`: products of matrices with one activation row and with many, by type and instruction
//! set, beside what the machine reaches at best.

mod planes;
mod subject;
mod typed;
mod widely;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use trine::Isa;
use trine::pool;

use super::args::Args;
use super::machine::{DRAM, Machine};
use super::models;
use super::output::{Line, Table, object};
use crate::args::threads;
use crate::provenance::processor;
use crate::stats::Summary;
use crate::table::Cell;
use planes::Planes;
use subject::{BenchMatrix, COLUMNS, Subject};
use typed::Typed;
use widely::Widely;

/// Weights per thread that stay in its second-level cache.
const CACHE: usize = 384 << 10;
/// Rows and activation rows of the matrix product.
const GEMM: (usize, usize) = (1024, 512);
/// Number of runs of a figure …
const RUNS: usize = 9;
/// … unless they take longer than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Measures all kernels at all thread counts.
///
/// # Errors
/// A type without kernels was asked for; no memory; output that cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let counts = models::thread_counts(args, &[1, threads(None)]);
    // TRINE_ISA asks for one; otherwise all are compared.
    let best = Isa::from_env()?;
    let forced = std::env::var_os("TRINE_ISA").is_some_and(|v| !v.is_empty());
    let isas = Isa::available().filter(|isa| *isa == best || !forced);
    let methods: Vec<_> = args.method.iter().map(|&method| method.into()).collect();
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    subjects.extend(isas.flat_map(Typed::all).map(|s| Box::new(s) as Box<dyn Subject>));
    // The forms of trine's own are measured as models run them.
    subjects.extend(Planes::all(best).map(|s| Box::new(s) as Box<dyn Subject>));
    subjects.extend(Widely::all(best).map(|s| Box::new(s) as Box<dyn Subject>));
    subjects.retain(|s| methods.contains(&s.method()) && (args.types.is_empty() || args.types.contains(&s.ty())));
    if let Some(ty) = args.types.iter().find(|&&ty| !subjects.iter().any(|s| s.ty() == ty)) {
        bail!("--types: trine has no kernel for {ty}");
    }
    subjects.sort_by_key(|s| s.ty().order());
    let mut table = Table::new(args.output, "rbench.kernels/1", out)?;
    for &threads in &counts {
        let machine = Machine::new(threads)?;
        for subject in &subjects {
            if args.progress {
                note!("rbench: {} {}, {threads} threads", subject.ty(), subject.isa());
            }
            table.row(&measure(&**subject, &machine)?)?;
        }
    }
    table.finish()?;
    Ok(())
}

fn measure(subject: &dyn Subject, machine: &Machine) -> Result<Line> {
    let threads = machine.pool().threads();
    let rows = |bytes: usize| (bytes / subject.row_bytes()).next_multiple_of(64);

    // From memory, in turns with the reading loop: both see the same neighbours.
    let large = subject.matrix(rows(DRAM))?;
    let one = large.activations(1);
    let mut out = large.outputs(1);
    let mut reads = Vec::new();
    let gemv = machine.pool().install(|| repeat(|| large.multiply(&one, &mut out), || reads.push(machine.read())));
    let dram = large.bytes() as f64 / Summary::of(&gemv).median;
    let read = DRAM as f64 / Summary::of(&reads).median;
    drop(large);

    // From the caches: every thread goes over weights of its own.
    let small: Vec<Box<dyn BenchMatrix>> = (0..threads).map(|_| subject.matrix(rows(CACHE))).collect::<Result<_>>()?;
    let passes = 64;
    let all = small.iter().map(|m| m.bytes()).sum::<usize>() * passes;
    let cached = machine.pool().install(|| {
        let run = || {
            pool::for_each(threads, |i| {
                let mut out = small[i].outputs(1);
                for _ in 0..passes {
                    small[i].multiply(&one, &mut out);
                }
            });
        };
        repeat(run, || ())
    });
    let cached = all as f64 / best(&cached);

    let (gemm_rows, tokens) = GEMM;
    let matrix = subject.matrix(gemm_rows)?;
    let acts = matrix.activations(tokens);
    let mut out = matrix.outputs(tokens);
    let gemm = machine.pool().install(|| repeat(|| matrix.multiply(&acts, &mut out), || ()));
    let macs = (gemm_rows * tokens * COLUMNS) as f64 / best(&gemm);
    let peak = match subject.is_float() {
        true => machine.f32(subject.isa()),
        false => machine.int8(subject.isa()),
    };
    Ok(line(subject, threads, [dram, read, cached, macs, peak]))
}

/// The seconds of every run of `work`, each followed by `between`; at least one.
fn repeat(mut work: impl FnMut(), mut between: impl FnMut()) -> Vec<f64> {
    let start = Instant::now();
    let mut samples = Vec::new();
    // the first run is for the caches and the page tables
    for i in 0..=RUNS {
        let begun = Instant::now();
        work();
        if i > 0 || start.elapsed() > PATIENCE {
            samples.push(begun.elapsed().as_secs_f64());
            between();
        }
        if start.elapsed() > PATIENCE {
            break;
        }
    }
    samples
}

/// The shortest: nothing but other programs can slow a kernel down that waits for no memory.
fn best(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

fn line(subject: &dyn Subject, threads: usize, rates: [f64; 5]) -> Line {
    let [dram, read, cached, macs, peak] = rates.map(|r| r / 1e9);
    let number = |x: f64| format!("{x:.1}");
    let percent = |x: f64| format!("{:.0} %", x * 100.0);
    let cells = vec![
        Cell::left("type", 7, subject.ty().to_string()).key(),
        Cell::left("backend", 10, format!("CPU {}", subject.isa())).key(),
        Cell::left("layout", 11, subject.layout()).key(),
        Cell::right("threads", 7, threads.to_string()).above(),
        Cell::right("GEMV GB/s", 9, number(dram)),
        Cell::right("of memory", 9, percent(dram / read)),
        Cell::right("in cache GB/s", 13, number(cached)),
        Cell::right("GEMM GMAC/s", 11, number(macs)),
        Cell::right("of peak", 7, percent(macs / peak)),
    ];
    let fields = object([
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("cpu_info", json!(processor())),
        ("type", json!(subject.ty().to_string())),
        ("isa", json!(subject.isa().name())),
        ("layout", json!(subject.layout())),
        ("n_threads", json!(threads)),
        ("columns", json!(COLUMNS)),
        ("gemv_gbs", json!(dram)),
        ("read_gbs", json!(read)),
        ("gemv_share", json!(dram / read)),
        ("gemv_cache_gbs", json!(cached)),
        ("gemm_tokens", json!(GEMM.1)),
        ("gemm_gmacs", json!(macs)),
        ("peak_gmacs", json!(peak)),
        ("gemm_share", json!(macs / peak)),
    ]);
    Line { cells, fields }
}
