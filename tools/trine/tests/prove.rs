//! `trine prove`: this machine computes what the reference computed.
#![allow(missing_docs)]

use trine_testkit::tool;

#[test]
fn all_models_have_the_published_bits() {
    let run = |words: &[&str]| {
        let output = tool::command(env!("CARGO_BIN_EXE_trine")).arg("prove").args(words).output().expect("a run");
        tool::stdout(output)
    };
    let table = run(&["-t", "2"]);
    let (lines, summary) = table.trim_end().rsplit_once('\n').expect("lines");
    let models = lines.lines().count();
    assert!(models > 90 && lines.lines().all(|line| line.ends_with("  equal")), "{lines}");
    assert!(summary.starts_with(&format!("{models} of {models} equal")), "{summary}");
    // The other form says the same.
    let report = run(&["--json"]);
    assert!(report.contains("\"schema\": \"trine.prove/1\""), "{report}");
    assert!(report.contains(&format!("\"equal\": {models},")), "{report}");
    assert_eq!(report.matches("\"equal\": true").count(), models);
}
