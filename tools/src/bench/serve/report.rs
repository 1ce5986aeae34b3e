//! Results of a load.

use std::iter::repeat_n;
use std::time::Duration;

use serde_json::json;

use super::super::args::Args;
use super::super::output::{Line, object};
use super::load::{Arrivals, Ran};
use crate::table::Cell;

/// The shares of values below the numbers that are told.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// Milliseconds at the quantiles: the least value with at least this share of the values not above it (nearest rank). 0
/// without values.
fn quantiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    QUANTILES.map(|(_, share)| {
        let rank = (share * values.len() as f64).ceil() as usize;
        values.get(rank.max(1) - 1).copied().unwrap_or(0.0)
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Name of the server.
fn label(args: &Args, url: &str) -> String {
    args.label.clone().unwrap_or_else(|| url.to_owned())
}

/// The row of a load.
pub fn line(url: &str, arrivals: Arrivals, args: &Args, ran: &Ran) -> Line {
    let all = ran.served.len();
    let whole: Vec<_> = ran.served.iter().filter(|s| s.whole).collect();
    let refused = ran.served.iter().filter(|s| matches!(s.status, 429 | 503)).count();
    let failed = all - whole.len() - refused;
    let first = quantiles(whole.iter().filter_map(|s| s.first).map(ms).collect());
    let per_token = whole.iter().filter_map(|s| {
        let after = s.parts.last()?.0.duration_since(s.parts.first()?.0);
        let pairs = s.tokens.checked_sub(1).filter(|n| *n > 0)?;
        Some(ms(after) / pairs as f64)
    });
    let per_token = quantiles(per_token.collect());
    // With interruptions, what came while there were some.
    let since = ran.interrupted.map(|i| i.since);
    let pairs = whole.iter().flat_map(|s| s.parts.windows(2));
    let pairs = pairs.filter(|p| since.is_none_or(|since| p[1].0 >= since));
    // A part of several tokens came late by as many steps, and each of them is a gap.
    let gaps = pairs.flat_map(|p| {
        let tokens = p[1].1 - p[0].1;
        repeat_n(ms(p[1].0.duration_since(p[0].0)) / tokens as f64, tokens)
    });
    let between = quantiles(gaps.collect());
    let tokens: usize = whole.iter().map(|s| s.tokens).sum();
    let seconds = ran.time.as_secs_f64();
    let rate = |n: usize| n as f64 / seconds.max(f64::MIN_POSITIVE);
    let three = |values: [f64; 3]| values.map(|v| format!("{v:.1}")).join(" / ");
    let cells: Vec<Cell> = vec![
        Cell::left("load", 12, arrivals.to_string()).key(),
        Cell::right("requests", 8, all.to_string()),
        Cell::right("refused", 7, refused.to_string()),
        Cell::right("failed", 6, failed.to_string()),
        Cell::right("t/s", 8, format!("{:.2}", rate(tokens))),
        Cell::right("req/s", 7, format!("{:.3}", rate(whole.len()))),
        Cell::right("TTFT ms p50 / p90 / p99", 26, three(first)),
        Cell::right("TPOT ms p50 / p90 / p99", 23, three(per_token)),
        Cell::right("ITL ms p50 / p90 / p99", 23, three(between)),
    ];
    let (clients, poisson) = match arrivals {
        Arrivals::Closed(n) => (Some(n), None),
        Arrivals::Poisson(rate) => (None, Some(rate)),
    };
    let mut fields = object([
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("url", json!(url)),
        ("label", json!(label(args, url))),
        ("clients", json!(clients)),
        ("rate", json!(poisson)),
        ("n_prompt", json!(args.prompt_tokens)),
        ("n_shared", json!(args.shared_tokens)),
        ("interruptions", json!(ran.interrupted.map_or(0, |i| i.prompts))),
        ("n_gen", json!(args.new_tokens)),
        ("requests", json!(all)),
        ("refused", json!(refused)),
        ("failed", json!(failed)),
        ("tokens", json!(tokens)),
        ("seconds", json!(seconds)),
        ("tokens_per_second", json!(rate(tokens))),
        ("requests_per_second", json!(rate(whole.len()))),
    ]);
    for (name, values) in [("ttft", first), ("tpot", per_token), ("itl", between)] {
        for ((quantile, _), value) in QUANTILES.iter().zip(values) {
            fields.insert(format!("{name}_ms_{quantile}"), json!(value));
        }
    }
    Line { cells, fields }
}

#[cfg(test)]
mod tests {
    use super::quantiles;

    #[test]
    fn nearest_ranks() {
        assert_eq!(quantiles((1..=100).rev().map(f64::from).collect()), [50.0, 90.0, 99.0]);
        assert_eq!(quantiles(vec![7.0]), [7.0; 3]);
        assert_eq!(quantiles(vec![2.0, 1.0]), [1.0, 2.0, 2.0]);
        assert_eq!(quantiles(Vec::new()), [0.0; 3]);
    }
}
