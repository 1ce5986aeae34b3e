//! `rgen --rerank`: the library's ranks, the best line first.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;
use trine::RankOptions;
use trine_testkit::archs::{listing, of_vectors};
use trine_testkit::tool::{self, only_error, stdout};

const QUERY: &str = "who played chess?";
const LINES: [&str; 4] = ["the cat sat on the mat", "chess is a game", "", "two players played chess"];

#[test]
fn lines_are_ranked_as_the_library_ranks_them() {
    let folder = trine_testkit::folder();
    let [model, lines] = ["rank.gguf", "lines.txt"].map(|name| folder.path().join(name));
    fs::write(&model, listing(&of_vectors("bert-rank-plain")).file()).expect("room for the model");
    fs::write(&lines, LINES.join("\n") + "\n").expect("a file");
    let ranks = trine::open(&model).expect("a model").rank(QUERY, &LINES, &RankOptions::default()).expect("ranks");
    let mut expected: Vec<(usize, f32)> = ranks.into_iter().enumerate().collect();
    expected.sort_by(|a, b| b.1.total_cmp(&a.1));
    let run = |model: &std::path::Path, more: &[&str]| {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        command.arg("-m").arg(model).args(["-p", QUERY, "--rerank"]).arg(&lines).args(more).output().expect("a run")
    };
    let text: String = expected.iter().map(|(i, rank)| format!("{rank}\t{}\n", LINES[*i])).collect();
    assert_eq!(stdout(run(&model, &[])), text);
    let report: Value = serde_json::from_str(&stdout(run(&model, &["--json"]))).expect("JSON");
    assert_eq!((&report["schema"], &report["query"]), (&"rgen.ranks/1".into(), &QUERY.into()));
    for (result, (index, rank)) in report["results"].as_array().expect("results").iter().zip(&expected) {
        assert_eq!(result["index"], *index);
        assert_eq!(result["relevance_score"].as_f64().expect("a number") as f32, *rank);
        assert_eq!(result["document"], LINES[*index]);
    }
    let refused = only_error("rgen", run(&trine_testkit::trilm(), &[]));
    assert!(refused.contains("lines.txt', line 1: the model does not rank texts"), "{refused}");
    // an encoder continues no text
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    let ended = command.arg("-m").arg(&model).args(["-p", "chess", "-n", "4"]).output().expect("a run");
    let refused = only_error("rgen", ended);
    assert!(refused.contains("makes vectors of texts and no logits"), "{refused}");
}
