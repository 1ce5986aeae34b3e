//! The commands of `rgen -cnv`, through a pipe.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use trine_testkit::gguf::with_controls;
use trine_testkit::tool::{self, stdout, texts};
use trine_testkit::trilm;

use super::rgen::TEMPLATE;

/// Answers and what is said beside them.
fn chat(folder: &Path, args: &[&str], input: &str) -> (String, String) {
    let template = folder.join("chat.jinja");
    fs::write(&template, TEMPLATE).unwrap();
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    let usual = ["-cnv", "-n", "6", "--seed", "7", "--chat-template-file"];
    command.current_dir(folder).arg("-m").arg(trilm()).args(usual);
    command.env("XDG_STATE_HOME", folder.join("state"));
    command.arg(&template).args(args).write_stdin(input);
    texts(command.output().unwrap())
}

/// A model that has marks of its own for thoughts, which are control tokens: answers have the usual ones.
#[test]
fn thoughts_have_the_usual_marks() {
    const ANALYSIS: &str = "<|channel|>analysis<|message|>";
    let dir = tempfile::tempdir().unwrap();
    let (model, template) = (dir.path().join("m.gguf"), dir.path().join("t.jinja"));
    with_controls(&model, &[(4000, ANALYSIS), (4001, "<|channel|>final<|message|>"), (4002, "<|other|>")]);
    let seen = "{% for m in messages %}{{ m.content }} {{ m.thinking }}\n{% endfor %}{# message.thinking <|channel|>analysis<|message|> #}";
    fs::write(&template, seen).unwrap();
    let answer = |token: u32, input: &'static str| {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        command.current_dir(dir.path()).args(["-m", "m.gguf", "-cnv", "-n", "3", "--seed", "7"]);
        command.args(["--chat-template-file", "t.jinja", "--logit-bias", &format!("{token}+1000"), "--no-warmup"]);
        texts(command.env("XDG_STATE_HOME", dir.path()).write_stdin(input).output().unwrap())
    };
    let thought = format!("<think>\n{ANALYSIS}{ANALYSIS}\n</think>\n\n\n");
    assert_eq!(answer(4000, "One\n").0, thought);
    // What is saved is the answer alone.
    let (twice, told) = answer(4000, "One\n/save chat.json\nTwo\n");
    assert_eq!(twice, thought.repeat(2), "{told}");
    let saved: Value = serde_json::from_slice(&fs::read(dir.path().join("chat.json")).unwrap()).unwrap();
    assert!(!saved.to_string().contains("analysis"), "{saved}");
    assert_eq!(answer(4001, "One\n").0, "\n");
    assert_eq!(answer(4002, "One\n").0, "\n");
}

#[test]
fn what_is_taken_back_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, _) = chat(dir.path(), &[], "One\n");
    let (detour, told) = chat(dir.path(), &[], "Two\n/undo\nOne\n");
    assert!(detour.ends_with(&plain) && detour.len() > plain.len(), "{detour:?}");
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
fn a_chat_goes_on_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, told) = chat(dir.path(), &[], "/sessions\nOne\nTwo\n");
    assert!(told.contains("no chat was saved by name"), "{told}");
    let (first, _) = chat(dir.path(), &[], "One\n/save trip-1\n");
    let (second, told) = chat(dir.path(), &[], "/sessions\n/load trip-1\nTwo\n/save other\n");
    assert_eq!(first + &second, whole);
    let listed: Vec<&str> = told.lines().filter(|l| l.starts_with("trip-1 ")).collect();
    assert!(listed.len() == 1 && listed[0].contains("2 messages") && listed[0].ends_with("One"), "{told}");
    // Chats lie in the user's folder and not where the program runs.
    let chats = dir.path().join("state/trine/chats");
    assert_eq!(trine_testkit::names_in(&chats), ["other.json", "trip-1.json"]);
    assert!(!dir.path().join("trip-1").exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&chats).unwrap().permissions().mode() & 0o777, 0o700);
    }
    fs::write(chats.join("broken.json"), "{}").unwrap();
    let (_, told) = chat(dir.path(), &[], "/sessions\n");
    assert!(told.contains("cannot be read"), "{told}");
}

#[test]
fn what_is_set_holds_from_the_next_answer_on() {
    let dir = tempfile::tempdir().unwrap();
    let (set, told) = chat(dir.path(), &[], "/set temp 0\n/set predict 3\n/system Be brief.\nOne\n");
    let (given, _) = chat(dir.path(), &["--temp", "0", "-n", "3", "-sys", "Be brief."], "One\n");
    assert_eq!(set, given);
    assert!(told.contains("temp 0, ") && told.contains("predict 3"), "{told}");
    assert!(told.contains("is told: Be brief."), "{told}");
}

#[test]
fn mistakes_are_errors_and_say_nothing_to_the_model() {
    let dir = tempfile::tempdir().unwrap();
    for (line, error) in [
        ("/sav talk.json", "there is no command /sav; /help lists all"),
        ("/save", "a name, or the path of a file, follows /save"),
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
        assert!(lines.len() == 1 && lines[0].contains(error), "{line}: {told}");
    }
}

#[test]
fn commands_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (answers, told) = chat(dir.path(), &["-sys", "Be brief."], "One\n/clear\n/?\n/bye\nTwo\n");
    let (one, _) = chat(dir.path(), &["-sys", "Be brief."], "One\n");
    assert_eq!(answers, one);
    assert!(told.contains("(2 messages are forgotten; the system prompt stays)"), "{told}");
    assert!(told.contains("/regen "), "{told}");
}

#[test]
fn times_come_at_the_end_of_a_chat_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (_, told) = chat(dir.path(), &[], "One\n");
    assert!(!told.contains("eval time"), "{told}");
    let (_, told) = chat(dir.path(), &["--show-timings"], "One\n");
    assert!(told.contains("eval time"), "{told}");
}

#[test]
fn speeds_are_told_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let speeds = |args: &[&str], input: &str| {
        let (_, told) = chat(dir.path(), args, input);
        told.lines().filter(|l| l.contains(" tokens read, ")).count()
    };
    assert_eq!(speeds(&[], "One\nTwo\n"), 0);
    assert_eq!(speeds(&[], "One\n/speed\nTwo\n"), 1);
    assert_eq!(speeds(&["--show-timings"], "One\nTwo\n/set timings off\nThree\n"), 2);
}

#[test]
fn a_full_context_forgets_its_beginning_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let input = "One two three four five six\n".repeat(8);
    let args = ["-c", "64", "--temp", "0", "-sys", "Be brief.", "--context-shift", "--show-timings"];
    let (_, told) = chat(dir.path(), &args, &input);
    assert_eq!(told.matches(" tokens read, ").count(), 8, "{told}");
    let notes = told.lines().filter(|l| l.contains("messages are forgotten"));
    assert!(notes.count() > 1, "{told}");
    // Within one answer as well.
    let (long, told) = chat(dir.path(), &["-c", "64", "-n", "200", "--context-shift", "--ignore-eos"], "One\n");
    assert!(told.contains("what came first was forgotten"), "{told}");
    let (short, told) = chat(dir.path(), &["-c", "64", "-n", "200", "--ignore-eos"], "One\n");
    assert!(told.contains("the context of 64 tokens is full"), "{told}");
    assert!(long.len() > short.len());
}

#[test]
fn a_reverse_prompt_ends_an_answer_and_the_chat_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--temp", "0", "-n", "12"];
    let (whole, _) = chat(dir.path(), &options, "One\nTwo\n");
    let first = whole.lines().next().unwrap();
    let word = first.split_whitespace().nth(2).unwrap();
    let (cut, told) = chat(dir.path(), &[&options[..], &["-r", word]].concat(), "One\nTwo\n");
    let answer = cut.lines().next().unwrap();
    assert!(first.starts_with(answer) && answer.len() < first.len(), "{cut}{told}");
    assert!(answer.trim_end().ends_with(word), "{answer}");
    assert!(cut.lines().count() > 1, "{cut}");
}

#[test]
fn options_of_a_chat_mean_a_chat_and_a_template_may_be_given_as_text() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        command.current_dir(dir.path()).arg("-m").arg(trilm());
        command.args(["--temp", "0", "-n", "5"]).args(args);
        command.write_stdin("").output().unwrap()
    };
    let said = stdout(run(&["-cnv", "-st", "-p", "Hi", "--chat-template", TEMPLATE]));
    assert_eq!(stdout(run(&["-st", "-p", "Hi", "--chat-template", TEMPLATE])), said);
    fs::write(dir.path().join("hi.txt"), "Hi\n").unwrap();
    assert_eq!(stdout(run(&["-st", "-f", "hi.txt", "--chat-template", TEMPLATE])), said);
    // Said to be none, it is none.
    let text = stdout(run(&["-no-cnv", "-st", "-p", "Hi", "--chat-template", TEMPLATE]));
    assert_eq!(text, stdout(run(&["-p", "Hi"])));
    let chatml = stdout(run(&["-st", "-p", "Hi", "--chat-template", "chatml"]));
    assert!(!chatml.is_empty() && chatml != said);
    // A name that llama.cpp knows is the template of this name: Llama 2's turns are no ChatML.
    let llama = stdout(run(&["-st", "-p", "Hi", "--chat-template", "llama2"]));
    assert!(!llama.is_empty() && llama != chatml);
    let turn = ["--no-display-prompt", "-p", "[INST] Hi [/INST]"];
    assert_eq!(stdout(run(&turn)), llama);
    let refused = run(&["-st", "-p", "Hi", "--chat-template", "gemma-9"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("'gemma-9' is neither Jinja nor a name that llama.cpp knows")
    );
}

#[test]
fn variables_of_templates_are_given_on_the_command_line() {
    let template = "{{ messages[0].content }}{% if enable_thinking is defined %} {{ enable_thinking }}{% endif %}{% if reasoning_effort %} {{ reasoning_effort }}{% endif %}";
    let run = |args: &[&str]| {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        command.arg("-m").arg(trilm()).args(["--temp", "0", "-n", "5"]);
        command.args(args).write_stdin("").output().unwrap()
    };
    let chat = |args: &[&str]| {
        let own = ["-st", "-p", "Hi", "--chat-template", template];
        stdout(run(&[&own[..], args].concat()))
    };
    let text = |prompt: &str| stdout(run(&["--no-display-prompt", "-p", prompt]));
    for (args, prompt) in [
        (&[][..], "Hi True"),
        (&["-rea", "auto"], "Hi True"),
        (&["--reasoning", "off"], "Hi False"),
        (&["-rea", "1", "--reasoning-effort", "low"], "Hi True low"),
        (&["--chat-template-kwargs", r#"{"enable_thinking": 3}"#], "Hi 3"),
    ] {
        assert_eq!(chat(args), text(prompt), "{args:?}");
    }
    for (json, why) in [("[1]", "give a JSON object"), (r#"{"messages": 1}"#, "every template gets")] {
        let refused = run(&["-st", "-p", "Hi", "--chat-template-kwargs", json]);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains(why), "{told}");
    }
    let output = run(&["-st", "-p", "Hi", "--chat-template", "chatml", "-rea", "on"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("does not know the variable 'enable_thinking'"), "{told}");
}

/// Expected: `date -u -d @1735645509` in the forms of llama.cpp.
#[test]
fn templates_tell_the_date_of_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("date.jinja");
    fs::write(&template, "{{ raise_exception([date_string, datetime, strftime_now('%F %H')] | join('; ')) }}").unwrap();
    let told = |now: &str, more: &[&str]| {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        command.arg("-m").arg(trilm()).args(["-cnv", "-st", "-p", "One", "--chat-template-file"]).arg(&template);
        tool::refusal("rgen", command.args(more).env("TRINE_NOW", now).output().unwrap()).error
    };
    assert!(told("1735645509", &[]).contains("31 Dec 2024; Dec 31 2024; 2024-12-31 11"));
    let more = ["--chat-template-kwargs", r#"{"date_string": "26 Jul 2024"}"#];
    assert!(told("1735645509", &more).contains("26 Jul 2024; Dec 31 2024; 2024-12-31 11"));
    for wrong in ["", "today", "-1", "253402300800"] {
        assert!(told(wrong, &[]).contains("TRINE_NOW"), "{wrong}");
    }
}
