//! The printed form of the statistics, digit for digit that of llama-perplexity.

use std::fmt::Write;

use super::kld::{Divergence, Sorted, Uncertain};

/// Head of the table whose lines [`Divergence::table_row`] gives.
pub const TABLE_HEAD: &str = "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p";

/// C's `%{width}.{digits}f`, which differs from ours where the value is not a number.
fn c(value: f64, width: usize, digits: usize) -> String {
    if value.is_nan() {
        let name = if value.is_sign_negative() { "-nan" } else { "nan" };
        format!("{name:>width$}")
    } else {
        format!("{value:width$.digits$}")
    }
}

fn pair(x: Uncertain, factor: f64, value: (usize, usize), error: (usize, usize)) -> String {
    format!("{} ± {}", c(factor * x.value, value.0, value.1), c(factor * x.error, error.0, error.1))
}

impl Divergence {
    /// One line of the table of chunks, see [`TABLE_HEAD`].
    pub fn table_row(&self, chunk: usize) -> String {
        table_row(self, chunk)
    }

    /// The statistics in the words of llama-perplexity; `None` below 100 positions.
    pub fn report(&self) -> Option<String> {
        (self.count() >= 100).then(|| report(self))
    }
}

fn table_row(d: &Divergence, chunk: usize) -> String {
    let mut s = format!("{chunk:4}");
    for column in [
        pair(d.log_ppl().exp(), 1.0, (9, 4), (9, 4)),
        pair(d.log_ratio(), 1.0, (10, 5), (10, 5)),
        pair(d.kld(), 1.0, (10, 5), (10, 5)),
        pair(d.p_diff_rms(), 100.0, (6, 3), (6, 3)) + " %",
        pair(d.same_top(), 100.0, (6, 3), (6, 3)) + " %",
    ] {
        s.push_str("    ");
        s.push_str(&column);
    }
    s
}

fn report(d: &Divergence) -> String {
    let mut s = String::new();
    let mut line = |label: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(s, "{label}{value}");
    };
    let long = |x| pair(x, 1.0, (10, 6), (10, 6));
    let (q, base) = (d.log_ppl(), d.log_ppl_base());
    let (ppl, ppl_base) = (q.exp(), base.exp());
    let covariance = d.covariance();
    let ppl_covariance = ppl.value * ppl_base.value * covariance;
    let ppl_variance = ppl.error * ppl.error + ppl_base.error * ppl_base.error - 2.0 * ppl_covariance;
    let difference = Uncertain { value: ppl.value - ppl_base.value, error: ppl_variance.sqrt() };
    let correlation = c(100.0 * (covariance / (q.error * base.error)), 6, 2) + "%";
    line("====== Perplexity statistics ======", "");
    line("Mean PPL(Q)                   : ", &long(ppl));
    line("Mean PPL(base)                : ", &long(ppl_base));
    line("Cor(ln(PPL(Q)), ln(PPL(base))): ", &correlation);
    line("Mean ln(PPL(Q)/PPL(base))     : ", &long(d.log_ratio()));
    line("Mean PPL(Q)/PPL(base)         : ", &long(d.log_ratio().exp()));
    line("Mean PPL(Q)-PPL(base)         : ", &long(difference));
    line("", "");
    line("====== KL divergence statistics ======", "");
    line("Mean    KLD: ", &long(d.kld()));
    let kld = d.sorted_kld();
    let quantiles = [
        ("99.9%", 0.999),
        ("99.0%", 0.990),
        ("95.0%", 0.950),
        ("90.0%", 0.900),
        ("75.0%", 0.750),
        ("Median", 0.5),
        ("25.0%", 0.250),
        ("10.0%", 0.100),
        (" 5.0%", 0.050),
        (" 1.0%", 0.010),
        (" 0.1%", 0.001),
    ];
    let quantile = |v: &Sorted, label: &str, fraction: f32| {
        f64::from(if label == "Median" { v.median() } else { v.percentile(fraction) })
    };
    line("Maximum KLD: ", &c(f64::from(kld.max()), 10, 6));
    // The divergence has no quartiles in the reference's table.
    for (label, fraction) in quantiles.iter().filter(|q| !["75.0%", "25.0%"].contains(&q.0)) {
        line(&format!("{label:<7} KLD: "), &c(quantile(&kld, label, *fraction), 10, 6));
    }
    line("Minimum KLD: ", &c(f64::from(kld.min()), 10, 6));
    line("", "");
    line("====== Token probability statistics ======", "");
    let percent = |v: f64| c(100.0 * v, 6, 3) + "%";
    line("Mean    Δp: ", &(pair(d.p_diff(), 100.0, (6, 3), (5, 3)) + " %"));
    let p_diff = d.sorted_p_diff();
    line("Maximum Δp: ", &percent(f64::from(p_diff.max())));
    for (label, fraction) in quantiles {
        line(&format!("{label:<7} Δp: "), &percent(quantile(&p_diff, label, fraction)));
    }
    line("Minimum Δp: ", &percent(f64::from(p_diff.min())));
    line("RMS Δp    : ", &(pair(d.p_diff_rms(), 100.0, (6, 3), (5, 3)) + " %"));
    line("Same top p: ", &(pair(d.same_top(), 100.0, (6, 3), (5, 3)) + " %"));
    s
}
