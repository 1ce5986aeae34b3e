//! `rgen --embedding`: the library's vectors, in llama-embedding's forms.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use trine::{EmbedOptions, Model, Pooling, Scale};
use trine_testkit::archs::{listing, of_vectors};
use trine_testkit::tool::{self, stdout};

const TEXTS: [&str; 3] = ["the cat sat on the mat", "chess is a game", "two players played chess"];

fn run(model: &Path, words: &[&str]) -> std::process::Output {
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    command.arg("-m").arg(model).args(["-p", &TEXTS.join("\\n"), "--embedding"]).args(words).output().expect("a run")
}

fn vectors(value: &Value) -> Vec<Vec<f32>> {
    let numbers =
        |v: &Value| v.as_array().expect("a vector").iter().map(|x| x.as_f64().expect("a number") as f32).collect();
    value.as_array().expect("a list").iter().map(numbers).collect()
}

/// The library's vectors of the texts.
fn expected(model: &Model, pooling: Option<Pooling>, scale: Scale) -> Vec<Vec<f32>> {
    let options = EmbedOptions { pooling, scale, ..EmbedOptions::default() };
    let tokens = |text: &&str| model.tokenizer().encode(text, true, true).expect("tokens");
    TEXTS.iter().map(|text| model.embed(&tokens(text), &options).expect("a vector")).collect()
}

#[test]
fn vectors_are_those_of_the_library() {
    let folder = trine_testkit::folder();
    let encoder = folder.path().join("bert.gguf");
    fs::write(&encoder, listing(&of_vectors("bert-rank-plain")).file()).expect("room for the model");
    for path in [trine_testkit::trilm(), encoder] {
        let model = trine::open(&path).expect("a model");
        for (words, pooling, scale) in [
            (&["--pooling", "mean"][..], Some(Pooling::Mean), Scale::Length),
            (&["--pooling", "cls", "--embd-normalize", "-1"], Some(Pooling::Cls), Scale::None),
            (&["--pooling", "last", "--embd-normalize", "0"], Some(Pooling::Last), Scale::Largest),
        ] {
            let expected = expected(&model, pooling, scale);
            let report: Value =
                serde_json::from_str(&stdout(run(&path, &[words, &["--json"]].concat()))).expect("JSON");
            assert_eq!(report["schema"], "rgen.embeddings/1");
            assert_eq!(vectors(&report["embeddings"]), expected, "{words:?}");
            let digits = if scale == Scale::Largest { 0 } else { 7 };
            let raw: Vec<Vec<String>> =
                expected.iter().map(|v| v.iter().map(|x| format!("{x:.digits$}")).collect()).collect();
            let lines: String = raw.iter().map(|v| v.join(" ") + "\n").collect();
            assert_eq!(stdout(run(&path, &[words, &["--embd-output-format", "raw"]].concat())), lines);
            let rounded: Vec<Vec<f32>> =
                raw.iter().map(|v| v.iter().map(|x| x.parse().expect("a number")).collect()).collect();
            let of = |format: &str| -> Value {
                serde_json::from_str(&stdout(run(&path, &[words, &["--embd-output-format", format]].concat())))
                    .expect("JSON")
            };
            assert_eq!(vectors(&of("array")), rounded);
            for format in ["json", "json+"] {
                let list = of(format);
                let data = list["data"].as_array().expect("a list");
                let all: Vec<Value> = data.iter().map(|entry| entry["embedding"].clone()).collect();
                assert_eq!(vectors(&all.into()), rounded);
                assert!(
                    data.iter().enumerate().all(|(i, entry)| entry["index"] == i && entry["object"] == "embedding")
                );
                assert_eq!(list["cosineSimilarity"].is_array(), format == "json+");
            }
            let cosines = vectors(&of("json+")["cosineSimilarity"]);
            for (i, row) in cosines.iter().enumerate() {
                for (j, cosine) in row.iter().enumerate() {
                    assert!(*cosine == cosines[j][i] && (-1.0..=1.0).contains(cosine) && (i != j || *cosine == 1.0));
                }
            }
        }
    }
}

#[test]
fn of_every_token_where_nothing_is_pooled_and_shown_for_people_without_a_format() {
    let path = trine_testkit::trilm();
    let model = trine::open(&path).expect("a model");
    let report: Value = serde_json::from_str(&stdout(run(&path, &["--pooling", "none", "--json"]))).expect("JSON");
    let states = vectors(&report["embeddings"]);
    let tokens: usize =
        TEXTS.iter().map(|text| model.tokenizer().encode(text, true, true).expect("tokens").len()).sum();
    assert_eq!(states.len(), tokens);
    for state in &states {
        let length: f64 = state.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    let shown = stdout(run(&path, &["--pooling", "mean"]));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("embedding 0: ") && lines[2].ends_with(" ..."), "{shown}");
    assert_eq!(lines[4], "cosine similarity matrix:");
    assert!(lines[6].starts_with("  1.00 ") && lines[6].ends_with(TEXTS[0]), "{shown}");
    let parted = stdout(run(&path, &["--embd-separator", "a", "--embd-output-format", "raw"]));
    assert_eq!(parted.lines().count(), TEXTS.join("\n").split('a').count());
    let alone = run(&path, &["--embd-separator", "<#sep#>"]);
    assert!(!stdout(alone).contains("cosine"));
}

#[test]
fn what_cannot_be_asked_is_told_in_a_line() {
    let path = trine_testkit::trilm();
    for (words, expected) in [
        (&["--pooling", "rank"][..], "rgen --rerank FILE ranks texts"),
        (&["--pooling", "sum"], "it is one of mean, cls, last, none"),
        (&["--embd-normalize", "3"], "it is 2, 0 or -1"),
        (&["--embd-separator", ""], "--embd-separator is empty"),
        (&["-c", "4"], "part 1 of the prompt: the text has"),
    ] {
        let run = run(&path, words);
        assert_ne!(run.status.code(), Some(0));
        let told = String::from_utf8(run.stderr).expect("a text");
        assert!(told.contains(expected), "{words:?}: {told}");
        assert!(run.stdout.is_empty());
    }
}
