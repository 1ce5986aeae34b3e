//! `rbench --serve` against a server.

use clap::Parser;
use serde_json::Value;
use trine_tools::bench::args::Args;
use trine_tools::bench::serve;

use crate::local::{shared, start};

fn run(url: &str, more: &[&str]) -> anyhow::Result<Vec<Value>> {
    let own = ["rbench", "--serve", url, "--prompt-tokens", "8", "--new-tokens", "5", "-o", "json"];
    let args = Args::try_parse_from(own.iter().chain(more)).expect("options");
    let mut out = Vec::new();
    serve::run(&args, url, &mut out)?;
    Ok(serde_json::from_slice(&out).expect("JSON"))
}

#[test]
fn every_request_is_counted() {
    let url = format!("http://{}", shared());
    let rows = run(&url, &["--clients", "1,3", "--rate", "200", "--requests", "6"]).expect("a table");
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!((&row["requests"], &row["refused"], &row["failed"]), (&6.into(), &0.into(), &0.into()));
        assert_eq!(row["tokens"], 30, "{row}");
        let time = |name: &str| row[name].as_f64().expect("a number");
        assert!(time("ttft_ms_p50") > 0.0 && time("ttft_ms_p99") >= time("ttft_ms_p50"), "{row}");
        assert!(time("tokens_per_second") > 0.0);
    }
    assert_eq!((&rows[1]["clients"], &rows[2]["rate"]), (&3.into(), &200.0.into()));
}

#[test]
fn what_is_refused_is_no_answer() {
    let local = start(&["--parallel", "1", "--max-queue", "1"]);
    let url = format!("http://{}/v1", local.to);
    let rows = run(&url, &["--clients", "12", "--requests", "24", "--new-tokens", "60"]).expect("a table");
    let number = |name: &str| rows[0][name].as_u64().expect("a number");
    assert!(number("refused") > 0, "{rows:?}");
    assert_eq!(number("failed"), 0);
    assert_eq!(number("tokens"), (24 - number("refused")) * 60);
    assert!(run(&url, &[]).is_err(), "nothing to do");
    drop(local);
    assert!(run(&url, &["--clients", "1"]).is_err(), "no server");
}

#[test]
fn interruptions_shared_beginnings_and_a_plot() {
    let local = start(&[]);
    let url = format!("http://{}", local.to);
    let folder = trine_testkit::folder();
    let file = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let (plot, beside) = (file("load.svg"), file("other.json"));
    let rows = run(&url, &["--clients", "2", "--requests", "2", "--new-tokens", "60", "--interrupt", "150"]);
    let rows = rows.expect("a table");
    assert!(rows[0]["interruptions"].as_u64() > Some(0), "{rows:?}");
    assert_eq!((&rows[0]["requests"], &rows[0]["tokens"]), (&2.into(), &120.into()));
    std::fs::write(&beside, Value::from(rows).to_string()).expect("a file");
    let more = [
        "--clients",
        "1",
        "--requests",
        "4",
        "--shared-tokens",
        "6",
        "--label",
        "this one",
        "--plot",
        &plot,
        "--beside",
        &beside,
    ];
    run(&url, &more).expect("a table");
    let svg = std::fs::read_to_string(&plot).expect("a plot");
    assert!(svg.contains("this one") && svg.contains(&url), "{svg}");
    assert!(run(&url, &["--clients", "1", "--shared-tokens", "8"]).is_err());
    let drawn = |plot: &str, beside: &str| {
        let options = ["--clients", "1", "--plot", plot, "--beside", beside];
        run(&url, &options).expect_err("refused").to_string()
    };
    drawn(&plot, &file("none"));
    // An existing plot is not drawn over, and a device that never ends is not read.
    let refused = drawn(&beside, &beside);
    assert!(refused.contains("also an input"), "{refused}");
    drawn(&plot, "/dev/zero");
}
