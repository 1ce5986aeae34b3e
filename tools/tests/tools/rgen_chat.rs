//! The commands of `rgen -cnv`, through a pipe.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use trine_testkit::tool::texts;
use trine_testkit::trilm;

use super::rgen::TEMPLATE;

/// Answers and what is said beside them.
fn chat(folder: &Path, args: &[&str], input: &str) -> (String, String) {
    let template = folder.join("chat.jinja");
    fs::write(&template, TEMPLATE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rgen"));
    let usual = ["-cnv", "-n", "6", "--seed", "7", "--chat-template-file"];
    command
        .current_dir(folder)
        .arg("-m")
        .arg(trilm())
        .args(usual);
    command.arg(&template).args(args).write_stdin(input);
    texts(command.output().unwrap())
}

#[test]
fn what_is_taken_back_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, _) = chat(dir.path(), &[], "One\n");
    let (detour, told) = chat(dir.path(), &[], "Two\n/undo\nOne\n");
    assert!(
        detour.ends_with(&plain) && detour.len() > plain.len(),
        "{detour:?}"
    );
    assert!(told.contains("taken back: Two"), "{told}");
}

#[test]
fn an_answer_is_made_again_with_the_next_seed() {
    let dir = tempfile::tempdir().unwrap();
    let (both, told) = chat(dir.path(), &[], "One\n/regen\n");
    let (first, _) = chat(dir.path(), &[], "One\n");
    let (second, _) = chat(dir.path(), &["--seed", "8"], "One\n");
    assert_eq!(both, first + &second);
    assert!(told.contains("sampler seed: 8"), "{told}");
}

#[test]
fn a_chat_goes_on_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, _) = chat(dir.path(), &[], "One\nTwo\n");
    let (first, _) = chat(dir.path(), &[], "/system off\nOne\n/save talk.json\n");
    let (second, told) = chat(dir.path(), &[], "/load talk.json\nTwo\n");
    assert_eq!(first + &second, whole);
    assert!(told.contains("goes on after 2 messages"), "{told}");
    let saved = fs::read_to_string(dir.path().join("talk.json")).unwrap();
    let saved: Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved["schema"], "rgen.chat/1");
    assert_eq!(saved["messages"][0]["content"], "One");
}

#[test]
fn what_is_set_holds_from_the_next_answer_on() {
    let dir = tempfile::tempdir().unwrap();
    let (set, told) = chat(
        dir.path(),
        &[],
        "/set temp 0\n/set predict 3\n/system Be brief.\nOne\n",
    );
    let (given, _) = chat(
        dir.path(),
        &["--temp", "0", "-n", "3", "-sys", "Be brief."],
        "One\n",
    );
    assert_eq!(set, given);
    assert!(
        told.contains("temp 0, ") && told.contains("predict 3"),
        "{told}"
    );
    assert!(told.contains("is told: Be brief."), "{told}");
}

#[test]
fn mistakes_are_errors_and_say_nothing_to_the_model() {
    let dir = tempfile::tempdir().unwrap();
    for (line, error) in [
        (
            "/sav talk.json",
            "there is no command /sav; /help lists all",
        ),
        ("/save", "the name of a file follows /save"),
        ("/save chat.jinja", "give another name"),
        ("/load missing.json", "missing.json"),
        ("/load chat.jinja", "is no chat that /save has written"),
        ("/undo", "nothing was said yet"),
        ("/regen", "nothing was said yet"),
        ("/clear all", "nothing follows /clear"),
        ("/set temp", "a value follows /set temp"),
        ("/set temp warm", "temp: 'warm' is no number"),
        ("/set top_p 2", "top-p: it is a probability"),
        ("/set nothing 1", "there is no setting 'nothing'"),
        ("/bits 4", "no any-precision file"),
        ("/speed", "there was no answer yet"),
    ] {
        let (answers, told) = chat(dir.path(), &[], &format!("{line}\n"));
        assert_eq!(answers, "", "{line}");
        let lines: Vec<&str> = told.lines().filter(|l| l.starts_with("error: ")).collect();
        assert!(
            lines.len() == 1 && lines[0].contains(error),
            "{line}: {told}"
        );
    }
}

#[test]
fn speeds_are_told_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let speeds = |args: &[&str], input: &str| {
        let (_, told) = chat(dir.path(), args, input);
        told.lines()
            .filter(|l| l.contains(" tokens read, "))
            .count()
    };
    assert_eq!(speeds(&[], "One\nTwo\n"), 0);
    assert_eq!(speeds(&[], "One\n/speed\nTwo\n"), 1);
    assert_eq!(
        speeds(&["--show-timings"], "One\nTwo\n/set timings off\nThree\n"),
        2
    );
}

#[test]
fn a_full_context_forgets_its_beginning_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let input = "One two three four five six\n".repeat(8);
    let args = [
        "-c",
        "64",
        "--temp",
        "0",
        "-sys",
        "Be brief.",
        "--context-shift",
        "--show-timings",
    ];
    let (_, told) = chat(dir.path(), &args, &input);
    assert_eq!(told.matches(" tokens read, ").count(), 8, "{told}");
    let notes = told
        .lines()
        .filter(|l| l.contains("messages are forgotten"));
    assert!(notes.count() > 1, "{told}");
    // Within one answer as well.
    let (long, told) = chat(
        dir.path(),
        &["-c", "64", "-n", "200", "--context-shift", "--ignore-eos"],
        "One\n",
    );
    assert!(told.contains("what came first was forgotten"), "{told}");
    let (short, told) = chat(
        dir.path(),
        &["-c", "64", "-n", "200", "--ignore-eos"],
        "One\n",
    );
    assert!(told.contains("the context of 64 tokens is full"), "{told}");
    assert!(long.len() > short.len());
}
