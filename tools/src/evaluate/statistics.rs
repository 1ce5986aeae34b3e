//! The statistics of a comparison: for programs the same fields wherever one is reported, and for people.

use std::io::{self, Write};

use serde_json::{Value, json};
use trine::eval::kld::{Divergence, Sorted, Uncertain};

/// A value with its standard error.
pub fn pair(x: Uncertain) -> Value {
    json!({ "value": x.value, "error": x.error })
}

/// Adds all statistics of `d` to the object `report`.
pub fn add(report: &mut Value, d: &Divergence) {
    report["tokens_scored"] = d.count().into();
    report["ln_ppl"] = pair(d.log_ppl());
    report["ln_ppl_base"] = pair(d.log_ppl_base());
    report["ln_ppl_ratio"] = pair(d.log_ratio());
    report["kld"] = pair(d.kld());
    report["kld_quantiles"] = quantiles(&d.sorted_kld());
    report["p_diff"] = pair(d.p_diff());
    report["p_diff_quantiles"] = quantiles(&d.sorted_p_diff());
    report["p_diff_rms"] = pair(d.p_diff_rms());
    report["same_top"] = pair(d.same_top());
}

/// Writes all statistics of `d` as llama-perplexity does, behind its table of chunks; of too few positions there are none.
pub fn write(d: &Divergence, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    match d.report() {
        Some(report) => write!(out, "{report}")?,
        None => note!("{} positions are too few for statistics; 100 are needed", d.count()),
    }
    Ok(())
}

fn quantiles(v: &Sorted) -> Value {
    let at = |f: f32| v.percentile(f);
    json!({
        "min": v.min(), "0.1%": at(0.001), "1%": at(0.01), "5%": at(0.05), "10%": at(0.1),
        "25%": at(0.25), "median": v.median(), "75%": at(0.75), "90%": at(0.9), "95%": at(0.95),
        "99%": at(0.99), "99.9%": at(0.999), "max": v.max(),
    })
}
