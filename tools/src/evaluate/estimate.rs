//! Estimates of the perplexity as they are printed.

use serde_json::{Value, json};
use trine::eval::perplexity::Estimate;

use super::args::Args;

/// Adds the estimate of all chunks to the object `report`, and the running ones.
pub(super) fn add(report: &mut Value, total: &Estimate, running: Vec<Value>) {
    report["tokens_scored"] = total.count.into();
    report["ppl"] = total.ppl().into();
    report["ppl_error"] = total.ppl_error().into();
    report["mean_nll"] = total.mean().into();
    report["mean_nll_error"] = total.mean_error().into();
    report["running"] = running.into();
}

/// The running estimate after chunk number `done`, for programs.
pub(super) fn running(done: usize, total: &Estimate, chunk: &Estimate) -> Value {
    json!({ "chunk": done, "ppl": total.ppl(), "chunk_nll": chunk.mean() })
}

/// The running estimate after chunk number `done` as it is printed.
pub(super) fn estimate_line(args: &Args, done: usize, step: usize, total: &Estimate) -> String {
    if args.ppl_output_type == 1 {
        let at = (done - 1) * step;
        format!("{at:8}  {:.4}  {:4.6}  {:4.6}\n", total.ppl(), total.mean(), total.mean_error())
    } else {
        format!("[{done}]{:.4},", total.ppl())
    }
}

/// The estimate of all chunks as it is printed behind those lines.
pub(super) fn final_estimate(args: &Args, total: &Estimate) -> String {
    let end = if args.ppl_output_type == 0 { "\n" } else { "" };
    format!("{end}Final estimate: PPL = {:.4} +/- {:.5}\n", total.ppl(), total.ppl_error())
}
