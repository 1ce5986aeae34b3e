//! `rperplexity --hellaswag`, `--winogrande` and `--multiple-choice` against llama-perplexity, `--questions` against the
//! rules of lm-evaluation-harness, and damaged files.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;
use trine_testkit::tool::{refusal, stdout};
use trine_testkit::{is_long, testdata, trilm};

fn path(name: &str) -> String {
    let path = testdata(&format!("tasks/{name}"));
    path.to_str().unwrap().to_owned()
}

fn rperplexity(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rperplexity"));
    command.arg("-m").arg(trilm()).args(args);
    command
}

fn golden(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

#[test]
fn scores_are_those_of_the_reference() {
    let (hellaswag, winogrande, choice) = (path("hellaswag.txt"), path("winogrande.csv"), path("multiple-choice.bin"));
    let (questions, lambada) = (path("questions.jsonl"), path("lambada.jsonl"));
    let cases: &[(&str, &[&str])] = &[
        ("hellaswag.out", &["-f", &hellaswag, "--hellaswag"]),
        ("hellaswag-5.out", &["-f", &hellaswag, "--hellaswag", "--hellaswag-tasks", "5", "-np", "16"]),
        ("winogrande.out", &["-f", &winogrande, "--winogrande"]),
        (
            "winogrande-40.out",
            &["-f", &winogrande, "--winogrande", "--winogrande-tasks", "40", "-np", "32", "-c", "64"],
        ),
        ("multiple-choice.out", &["-bf", &choice, "--multiple-choice"]),
        ("questions.out", &["-f", &questions, "--questions"]),
        ("lambada.out", &["-f", &lambada, "--questions", "-c", "40"]),
        ("multiple-choice-6.out", &["-f", &choice, "--multiple-choice", "--multiple-choice-tasks", "6", "-np", "24"]),
    ];
    for (name, args) in cases {
        let expected = golden(name);
        assert_eq!(stdout(rperplexity(args).output().unwrap()), expected, "{name}");
        // Nothing else decides a digit.
        if !is_long() && !args.contains(&"-np") {
            continue;
        }
        let args = [*args, &["-ub", "7", "-t", "1", "--no-repack"]].concat();
        assert_eq!(stdout(rperplexity(&args).output().unwrap()), expected, "{name}");
    }
}

#[test]
fn what_stands_beside_a_text_decides_its_last_digits() {
    // Two tasks stand in the context of the first run together, and three in that of the second. If this made no
    // difference, the placement of texts would not be tested by the comparison with the reference.
    let winogrande = path("winogrande.csv");
    let args = ["-f", &winogrande, "--winogrande"];
    let pairs = stdout(rperplexity(&args).output().unwrap());
    let threes = [&args[..], &["-np", "6"]].concat();
    let threes = stdout(rperplexity(&threes).output().unwrap());
    let scores = |text: &str| -> Vec<f64> {
        let rows = text.lines().filter(|l| l.contains('\t'));
        let words = rows.flat_map(|l| l.split_whitespace().skip(2).take(2));
        words.map(|w| w.parse().unwrap()).collect()
    };
    let (pairs, threes) = (scores(&pairs), scores(&threes));
    assert_eq!(pairs.len(), 2 * 112);
    let differ = pairs.iter().zip(&threes).filter(|(a, b)| a != b).count();
    assert!(differ > 0, "no digit depends on the context");
    assert!(pairs.iter().zip(&threes).all(|(a, b)| (a - b).abs() < 0.01));
}

#[test]
fn json_has_the_same_numbers() {
    let args = ["-f", &path("winogrande.csv"), "--winogrande", "--json"];
    let out = stdout(rperplexity(&args).output().unwrap());
    let json: Value = serde_json::from_str(&out).unwrap();
    let expected = golden("winogrande.out");
    let last = expected.lines().rfind(|l| l.contains('\t')).unwrap();
    let percent = last.split('\t').nth(1).unwrap();
    assert_eq!(json["count"], 112);
    let accuracy = 100.0 * json["accuracy"].as_f64().unwrap();
    assert_eq!(format!("{accuracy:.4}"), percent);
    assert_eq!(json["running"].as_array().unwrap().len(), 112);
    let first = json["running"][0]["scores"][0].as_f64().unwrap();
    let row = expected.lines().next().unwrap();
    assert_eq!(row.split_whitespace().nth(2).unwrap(), format!("{first:.6}"));
}

#[test]
fn json_of_questions_has_sums_and_errors() {
    let args = ["-f", &path("questions.jsonl"), "--questions", "--questions-tasks", "4", "--json"];
    let json: Value = serde_json::from_str(&stdout(rperplexity(&args).output().unwrap())).unwrap();
    assert_eq!((&json["tasks"], &json["count"], &json["accuracy"]), (&"questions".into(), &4.into(), &0.75.into()));
    assert_eq!(json["measures"]["acc"]["value"], 0.75);
    assert!((json["measures"]["acc"]["error"].as_f64().unwrap() - 0.25).abs() < 1e-12);
    assert_eq!(json["measures"]["acc_norm"]["value"], 0.0);
    assert!((json["chance"].as_f64().unwrap() - (0.25 + 0.25 + 1.0 / 3.0 + 1.0 / 3.0) / 4.0).abs() < 1e-12);
    let sums = json["running"][0]["sums"].as_array().unwrap();
    assert!(sums.len() == 4 && sums.iter().all(|sum| sum.as_f64().unwrap() < 0.0));
}

#[test]
fn damaged_files_are_named_by_line_and_byte() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tasks");
    let name = file.to_str().unwrap();
    let mut choice = fs::read(path("multiple-choice.bin")).unwrap();
    choice.truncate(choice.len() - 3);
    let task = |lines: &str| lines.as_bytes().to_vec();
    for (kind, bytes, told) in [
        ("--hellaswag", task("a\n1\nb\n"), "line 3: the file ends within a task"),
        ("--hellaswag", task("a\nb\nc\nd\ne\nf\n"), "line 2: the number of the right ending"),
        ("--hellaswag", task("a\n1\nb\nb\nb\nb\n"), "task of line 1: a choice has no token of its own"),
        ("--winogrande", task("0,one two,a,b,1\n\n"), "line 1: its sentence has no gap"),
        ("--winogrande", task("0,one _ two,a,b,1\n"), "line 1: llama-perplexity drops the last line"),
        ("--winogrande", task("0,so _ be it,x,x,1\n\n"), "line 1: a choice has no token of its own"),
        ("--multiple-choice", choice, "task 10 at byte "),
        ("--multiple-choice", vec![9, 0, 0], "header at byte 0"),
        ("--hellaswag", vec![0xff, b'\n'], "not UTF-8 at byte 0"),
        ("--questions", task("{\"text\": \"a b\"}\n{\"text\": 3}\n"), "line 2: one of \"question\""),
        (
            "--questions",
            task("{\"question\": \"a\", \"choices\": [\"b\", \" \"], \"answer\": 0}"),
            "line 1: a choice is empty",
        ),
    ] {
        fs::write(&file, bytes).unwrap();
        let out = rperplexity(&["-f", name, kind]).output().unwrap();
        let error = refusal("rperplexity", out).error;
        assert!(error.contains(told) && error.contains("tasks'"), "{kind}: {error}");
    }
    let long = "word ".repeat(200);
    fs::write(&file, format!("{long}\n0\na\nb\nc\nd\n")).unwrap();
    let out = rperplexity(&["-f", name, "--hellaswag", "-c", "40"]).output().unwrap();
    let error = refusal("rperplexity", out).error;
    assert!(error.contains("task of line 1: the task needs ") && error.contains(" of 160; give -c "), "{error}");
    for args in [
        &["-f", name, "--hellaswag", "--winogrande"][..],
        &["-f", name, "--hellaswag", "--chunks", "3"],
        &["-f", name, "--hellaswag-tasks", "3"],
        &["-f", name, "-bf", name, "--multiple-choice"],
    ] {
        assert_eq!(rperplexity(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
}
