//! `rgen --prompt-cache`: no text and no logits depend on it, and what is not its own is refused.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use trine_testkit::tool::{self, refusal, stdout, texts};
use trine_testkit::{folder, testdata, trilm, wikitext};

use super::rgen::TEMPLATE;

fn on(model: &Path, cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    command.arg("-m").arg(model).arg("--prompt-cache").arg(cache);
    command.args(args).write_stdin("").output().unwrap()
}

fn without(model: &Path, args: &[&str]) -> String {
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    stdout(command.arg("-m").arg(model).args(args).output().unwrap())
}

/// A text of several pages of keys and values.
fn long() -> String {
    let text = fs::read_to_string(wikitext()).unwrap();
    text.chars().take(1200).collect()
}

/// Lines of hashes that a run with the cache prints must be the last of a run without.
fn proofs_are_the_last(model: &Path, cache: &Path, types: &[&str]) {
    let text = long();
    let args = |prompt: &str| -> Vec<String> {
        let own = ["-p", prompt, "--no-escape", "-n", "3", "--temp", "0", "--logits-sha256"];
        own.iter().chain(types).map(|a| (*a).to_owned()).collect()
    };
    let run = |prompt: &str| {
        let args = args(prompt);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (out, told) = texts(on(model, cache, &args));
        let whole = without(model, &args);
        assert!(whole.ends_with(&out) && !out.is_empty(), "{types:?}: {told}");
        (whole.lines().count() - out.lines().count(), told)
    };
    let (left_out, told) = run(&text);
    assert!(left_out == 0 && told.contains("is not there yet"), "{told}");
    let (all_but_one, told) = run(&text);
    assert!(all_but_one > 250, "{all_but_one}: {told}");
    // A longer prompt goes on from there, and one that parts from it goes back to where it does.
    let (before, told) = run(&format!("{text} The game"));
    assert!(before > 240, "{before}: {told}");
    let (shared, told) = run(&format!("{} Otherwise", &text[..600]));
    assert!(shared > 90, "{shared}: {told}");
}

#[test]
fn logits_are_those_of_a_run_without() {
    let dir = folder();
    for (i, types) in
        [&[][..], &["-ctk", "q8_0", "-ctv", "q4_0"], &["-ctk", "f32", "-ctv", "bf16"]].into_iter().enumerate()
    {
        proofs_are_the_last(&trilm(), &dir.path().join(format!("{i}.cache")), types);
    }
}

#[test]
fn sampled_texts_and_read_only_files_are_the_same() {
    let dir = folder();
    let cache = dir.path().join("p.cache");
    let text = long();
    let args = ["-p", &text, "--no-escape", "-n", "20", "-s", "7", "--repeat-penalty", "1.3"];
    let expected = without(&trilm(), &args);
    assert_eq!(stdout(on(&trilm(), &cache, &args)), expected);
    let kept = fs::read(&cache).unwrap();
    assert_eq!(stdout(on(&trilm(), &cache, &args)), expected);
    let other = [&args[..], &["--prompt-cache-ro", "-p", "The game of"]].concat();
    assert_eq!(
        stdout(on(&trilm(), &cache, &other)),
        without(&trilm(), &other[..9].iter().copied().chain(["-p", "The game of"]).collect::<Vec<_>>())
    );
    assert_eq!(fs::read(&cache).unwrap(), kept);
    assert_eq!(trine_testkit::names_in(dir.path()), ["p.cache"]);
}

#[test]
fn a_text_that_was_kept_is_continued_without_a_prompt() {
    let dir = folder();
    let cache = dir.path().join("all.cache");
    let greedy = |n: &'static str| ["-n", n, "--temp", "0"];
    let start = ["-p", "The game of", "--prompt-cache-all"];
    let first = stdout(on(&trilm(), &cache, &[&start[..], &greedy("8")].concat()));
    let whole = stdout(on(&trilm(), &cache, &greedy("6")));
    let expected = without(&trilm(), &["-p", "The game of", "-n", "14", "--temp", "0"]);
    assert!(expected.starts_with(first.trim_end()), "{first}");
    assert_eq!(whole, expected);
}

#[test]
fn chats_and_turns_begin_from_the_file() {
    let dir = folder();
    let cache = dir.path().join("c.cache");
    let chat = ["--chat-template", TEMPLATE, "-p", "Who won?", "-st", "-n", "8", "--temp", "0"];
    let turns = ["-p", "User: who won?", "-i", "-n", "8", "--temp", "0"];
    for (args, all) in [(&chat[..], true), (&turns, false)] {
        let expected = {
            let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
            command.arg("-m").arg(trilm()).args(args);
            stdout(command.write_stdin("").output().unwrap())
        };
        let args = match all {
            true => [args, &["--prompt-cache-all"]].concat(),
            false => args.to_vec(),
        };
        for _ in 0..2 {
            assert_eq!(stdout(on(&trilm(), &cache, &args)), expected, "{args:?}");
        }
        let (_, told) = texts(on(&trilm(), &cache, &args));
        assert!(told.contains("tokens were evaluated before"), "{told}");
        fs::remove_file(&cache).unwrap();
    }
}

#[test]
fn what_was_made_otherwise_or_is_damaged_is_refused_and_stays() {
    let dir = folder();
    let cache = dir.path().join("p.cache");
    let args = ["-p", "The game of chess", "-n", "2"];
    stdout(on(&trilm(), &cache, &args));
    let good = fs::read(&cache).unwrap();
    let refuses = |bytes: &[u8], more: &[&str], expected: &str| {
        fs::write(&cache, bytes).unwrap();
        let output = on(&trilm(), &cache, &[&args[..], more].concat());
        let error = refusal("rgen", output).error;
        assert!(error.contains(expected) && error.contains("remove it"), "{error}");
        assert_eq!(fs::read(&cache).unwrap(), bytes);
    };
    refuses(&good, &["-ctk", "q8_0"], "keys as f16");
    refuses(&good, &["--rope-freq-base", "5000"], "made with the options");
    refuses(&good, &["-c", "4"], "larger -c");
    refuses(b"ggsn", &[], "no saved context");
    refuses(b"ggsn and a lot of other things", &[], "no saved context");
    let mut other = good.clone();
    other[8] = 9;
    refuses(&other, &[], "version 9");
    for cut in [10, 40, good.len() / 2, good.len() - 33, good.len() - 1] {
        refuses(&good[..cut], &[], "");
    }
    refuses(&good[..good.len() - 1], &[], "ends early");
    refuses(&[&good[..], b"x"].concat(), &[], "behind its end");
    for at in [good.len() / 2, good.len() - 40, good.len() - 1] {
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        refuses(&flipped, &[], "do not have their sum");
    }
    // Another model of the same shape, and the same one with an adapter.
    let twin = dir.path().join("twin.gguf");
    let mut copy = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    copy.arg(trilm()).arg(&twin);
    copy.args(["copy", "--override-kv", "general.name=str:Twin"]);
    copy.assert().success();
    fs::write(&cache, &good).unwrap();
    let error = refusal("rgen", on(&twin, &cache, &args)).error;
    assert!(error.contains("a model of SHA-256"), "{error}");
    let lora = testdata("adapters/lora-f32.gguf");
    refuses(&good, &["--lora", lora.to_str().unwrap()], "adapters: []");
    // An empty file is one that is yet to be written.
    fs::write(&cache, b"").unwrap();
    stdout(on(&trilm(), &cache, &args));
    assert_eq!(fs::read(&cache).unwrap(), good);
}
