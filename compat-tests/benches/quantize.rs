//! Encoders: trine against ggml's quantizers, one thread, same process, same weights, in turns.

use std::process::ExitCode;

use anyhow::{Result, bail};
use trine_compat_tests::bench::{Args, Clock, Work, floats, in_turns, median, speedup};
use trine_compat_tests::{Unavailable, oracle};
use trine_formats::types::REGISTRY;

/// Weights per row, rows.
const COLUMNS: usize = 4096;
const ROWS: usize = 32;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("quantize: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(args) = Args::parse()? else {
        return Ok(());
    };
    let oracle = match oracle::get() {
        Ok(oracle) => oracle,
        Err(Unavailable::Machine(why)) => {
            println!("SKIPPED: {why}");
            return Ok(());
        }
        Err(Unavailable::Failed(e)) => bail!("{e:#}"),
    };
    println!("medians of {} runs in turns; ratio = ggml's time / trine's", args.runs);
    println!();
    println!("| type | importance | trine Mweights/s | ggml Mweights/s | ratio |");
    println!("|---|---|--:|--:|--:|");
    let x = floats(7, COLUMNS * ROWS);
    let weights: Vec<f32> = floats(8, COLUMNS).iter().map(|v| v * v).collect();
    for ty in REGISTRY.iter().filter(|t| t.is_quantized() && t.dot_ref.is_some()) {
        let (Some(encode), Some(row_bytes)) = (ty.encode, ty.row_bytes(COLUMNS as u64)) else {
            continue;
        };
        if !args.wants(ty) {
            continue;
        }
        let row_bytes = row_bytes as usize;
        for importance in [None, Some(&weights[..])] {
            let (mut ours, mut theirs) = (vec![0u8; ROWS * row_bytes], vec![0u8; ROWS * row_bytes]);
            let times = {
                let (x, ours, theirs) = (&x, &mut ours, &mut theirs);
                let mut works: [Work<'_>; 2] = [
                    Box::new(|| {
                        let rows = x.chunks_exact(COLUMNS).zip(ours.chunks_exact_mut(row_bytes));
                        rows.for_each(|(x, out)| encode(x, importance, out));
                    }),
                    Box::new(|| oracle.quantize(ty, x, COLUMNS, importance, theirs)),
                ];
                in_turns(&mut works, args.runs, Clock::new(1))
            };
            if ours != theirs {
                bail!("{}: the encoders differ", ty.name);
            }
            let rate = |t: &Vec<f64>| (COLUMNS * ROWS) as f64 / median(t.clone()) / 1e6;
            println!(
                "| {} | {} | {:.1} | {:.1} | {:.2} |",
                ty.name,
                if importance.is_some() { "yes" } else { "no" },
                rate(&times[0]),
                rate(&times[1]),
                speedup(&times[0], &times[1])
            );
        }
    }
    Ok(())
}
