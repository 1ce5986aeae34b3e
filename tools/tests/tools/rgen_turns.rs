//! `rgen` with reverse prompts, in turns and beyond a full context, against llama-completion.

use std::fs;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value as Json;
use trine_testkit::tool::{self, stdout, texts};
use trine_testkit::{testdata, trilm};

fn rgen(args: &[&str]) -> Command {
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    command.arg("-m").arg(trilm()).args(args);
    command
}

fn run(args: &[&str], input: &str) -> Output {
    rgen(args).write_stdin(input).output().unwrap()
}

/// One command line of llama-completion that `rgen` takes as it is, what was typed and what it printed.
struct Golden {
    args: Vec<String>,
    input: String,
    output: String,
}

/// See `testdata/turns/README.md`.
fn goldens() -> Vec<Golden> {
    let list = fs::read(testdata("turns/turns.json")).unwrap();
    let list: Vec<Json> = serde_json::from_slice(&list).unwrap();
    let text = |v: &Json| v.as_str().unwrap().to_owned();
    let golden = |v: &Json| Golden {
        args: v["args"].as_array().unwrap().iter().map(text).collect(),
        input: text(&v["input"]),
        output: text(&v["output"]),
    };
    list.iter().map(golden).collect()
}

#[test]
fn texts_in_turns_are_those_of_the_reference() {
    let goldens = goldens();
    assert!(goldens.len() >= 8, "{}", goldens.len());
    for Golden { args, input, output } in goldens {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let text = stdout(run(&words, &input));
        // Words of that program, which are no part of the text, and line breaks at its end.
        let expected = output.replace("EOF by user\n", "");
        let expected = expected.trim_end_matches('\n');
        let expected = expected.trim_end_matches(" [end of text]");
        assert_eq!(text.trim_end_matches('\n'), expected, "{args:?}");
    }
}

#[test]
fn a_reverse_prompt_is_the_reason_in_json() {
    let args = ["-p", "The game of", "-n", "40", "--temp", "0", "--json"];
    let json = |more: &[&str]| -> Json {
        let args = [&args[..], more].concat();
        serde_json::from_str(&stdout(run(&args, ""))).unwrap()
    };
    let whole = json(&[]);
    assert_eq!(whole["schema"], "rgen.text/1");
    let text = whole["text"].as_str().unwrap();
    let word = text.split_whitespace().nth(6).unwrap();
    let cut = json(&["-r", word]);
    assert_eq!((&cut["stop"], &whole["stop"]), (&"reverse".into(), &"length".into()));
    let short = cut["text"].as_str().unwrap();
    assert!(short.len() < text.len() && text.starts_with(short) && short.contains(word));
    // A prompt that ends with it is all there is.
    let none = json(&["-r", "of"]);
    assert_eq!(none["tokens"], Json::Array(Vec::new()));
}

#[test]
fn a_full_context_is_shifted_when_asked() {
    let args = ["-p", "The game of", "-n", "60", "--temp", "0", "-c", "24", "--ignore-eos"];
    let (ended, told) = texts(run(&args, ""));
    assert!(told.contains("the context of 24 tokens is full"), "{told}");
    let on = [&args[..], &["--context-shift", "--keep", "2"]].concat();
    let (text, told) = texts(run(&on, ""));
    assert!(told.contains("(context full: what came first is forgotten"), "{told}");
    let same = text.trim_end().starts_with(ended.trim_end());
    assert!(same && text.len() > ended.len(), "{text}");
    // What is evaluated again has the bits of a context that never had the rest: the text goes on as from those tokens.
    let json: Json = {
        let on = [&on[..], &["--json"]].concat();
        serde_json::from_str(&stdout(run(&on, ""))).unwrap()
    };
    let ids = |key: &str| -> Vec<u64> {
        let ids = json[key].as_array().unwrap().iter();
        ids.map(|id| id.as_u64().unwrap()).collect()
    };
    let all = [ids("prompt_tokens"), ids("tokens")].concat();
    assert_eq!(ids("tokens").len(), 60);
    let bos = usize::from(all[0] <= 2);
    let (keep, evaluated) = (2 + bos, 23);
    let forgotten = (evaluated - keep) / 2;
    let left = [&all[..keep], &all[keep + forgotten..=evaluated]].concat();
    let list = left.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ids");
    fs::write(&file, list).unwrap();
    let again = ["--tokens", file.to_str().unwrap(), "-n", "1", "--temp", "0", "-c", "24", "--ignore-eos", "--json"];
    let again: Json = serde_json::from_str(&stdout(run(&again, ""))).unwrap();
    assert_eq!(again["tokens"][0].as_u64(), Some(all[evaluated + 1]));
    // One context and no more with -2; without the option as before.
    for more in [&["-n", "-2", "--context-shift"][..], &["--context-shift", "--no-context-shift"]] {
        let args = [&args[..], more].concat();
        assert_eq!(stdout(run(&args, "")), ended, "{more:?}");
    }
}

#[test]
fn options_of_turns_do_not_go_with_a_chat() {
    for args in [&["-cnv", "-i"][..], &["-i", "-p", "x", "--json"], &["-i", "--context-shift", "-p", "x"]] {
        assert_eq!(run(args, "").status.code(), Some(2), "{args:?}");
    }
}
