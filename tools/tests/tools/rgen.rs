//! `rgen` against the reference programs, and its answers to mistakes.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use assert_cmd::Command;
use serde_json::Value;
use trine_testkit::golden::json;
use trine_testkit::tool::{self, only_error, stdout};
use trine_testkit::{testdata, trilm};

fn rgen(args: &[&str]) -> Command {
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    command.arg("-m").arg(trilm()).args(args);
    command
}

fn text(args: &[&str]) -> String {
    stdout(rgen(args).output().unwrap())
}

/// The one line of an error, without the tool's name.
fn error(command: &mut Command) -> String {
    only_error("rgen", command.output().unwrap())
}

#[test]
fn greedy_text_is_that_of_the_reference() {
    let prompts = fs::read_to_string(testdata("golden/greedy/prompts.txt")).unwrap();
    for (i, prompt) in prompts.lines().enumerate() {
        let golden = format!("golden/greedy/trilm-F16.{}.txt", i + 1);
        let golden = fs::read_to_string(testdata(&golden)).unwrap();
        let golden = golden.trim_end_matches('\n').trim_end_matches(" [end of text]");
        let ours = text(&["-p", prompt, "-n", "40", "--temp", "0", "-no-cnv", "-c", "512"]);
        assert_eq!(ours.trim_end_matches('\n'), golden, "{prompt}");
        if i == 0 {
            let without = text(&["-p", prompt, "-n", "40", "--temp", "0", "--no-display-prompt"]);
            assert_eq!(format!("{prompt}{without}"), ours);
        }
    }
}

#[test]
fn words_without_a_name_are_the_model_and_the_prompt() {
    let model = trilm().to_str().unwrap().to_owned();
    let run = |args: &[&str]| {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        command.args(args).args(["-n", "8", "--temp", "0"]).output().unwrap()
    };
    let named = stdout(run(&["-m", &model, "-p", "The game"]));
    for args in [
        &[&model, "The game"][..],
        &["The game", "-m", &model],
        &["--control-vector-layer-range", "1", "2", &model, "The game"],
    ] {
        assert_eq!(stdout(run(args)), named, "{args:?}");
    }
    // Without quotes a prompt is not cut.
    for args in [&["-m", &model, "-p", "The", "game"][..], &[&model, "The", "game"]] {
        let refused = run(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("unexpected argument 'game'"), "{args:?}");
    }
}

#[test]
fn a_tool_that_is_given_nothing_says_how_it_begins() {
    let output = tool::command(env!("CARGO_BIN_EXE_rgen")).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.lines().count() <= 10 && told.contains("  rgen model.gguf ") && told.contains("rgen -h "), "{told}");
}

#[test]
fn a_seed_gives_the_text_of_the_reference() {
    for case in json("sampling/seeds.json").as_array().unwrap() {
        let args: Vec<&str> = case["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        assert_eq!(text(&args).strip_suffix('\n'), case["text"].as_str(), "{args:?}");
    }
}

#[test]
fn logits_have_the_hashes_of_the_reference_however_they_are_computed() {
    let golden = json("golden/logits/trilm-F16.json");
    let tokens = golden["tokens"].as_array().unwrap();
    let hashes = golden["sha256_f32le_per_position"].as_array().unwrap();
    let expected: String =
        tokens.iter().zip(hashes).enumerate().map(|(i, (t, h))| format!("{i} {t} {}\n", h.as_str().unwrap())).collect();
    let dir = tempfile::tempdir().unwrap();
    let (array, words) = (dir.path().join("ids.json"), dir.path().join("ids.txt"));
    fs::write(&array, serde_json::to_string(tokens).unwrap()).unwrap();
    fs::write(&words, tokens.iter().map(|t| format!("{t},\n")).collect::<String>()).unwrap();
    let (array, words) = (array.to_str().unwrap(), words.to_str().unwrap());
    for options in [
        &["--tokens", array][..],
        &["--tokens", words, "-t", "1", "-ub", "1"],
        &["--tokens", array, "-t", "3", "-ub", "8", "-b", "13", "--no-mmap"],
    ] {
        let ours = text(&[options, &["-n", "0", "--logits-sha256"]].concat());
        assert_eq!(ours, expected, "{options:?}");
    }
    let mut scalar = rgen(&["--tokens", array, "-n", "0", "--logits-sha256"]);
    assert_eq!(stdout(scalar.env("TRINE_ISA", "scalar").output().unwrap()), expected);
    for ahead in ["0", "64", "8192", "1048576"] {
        let mut command = rgen(&["--tokens", array, "-n", "0", "-ub", "1", "--logits-sha256"]);
        let output = command.env("TRINE_PREFETCH", ahead).output().unwrap();
        assert_eq!(stdout(output), expected, "{ahead} bytes ahead");
    }
    for dense in ["0", "1"] {
        let mut command = rgen(&["--tokens", array, "-n", "0", "-ub", "1", "--logits-sha256"]);
        assert_eq!(stdout(command.env("TRINE_DENSE", dense).output().unwrap()), expected, "TRINE_DENSE={dense}");
    }
    // A tokenizer that is not known is not needed.
    for unknown in ["tokenizer.ggml.model=str:none", "tokenizer.ggml.model=str:gpt2,tokenizer.ggml.pre=str:gpt-17"] {
        let changed = ["--override-kv", unknown];
        let options = ["--tokens", array, "-n", "0", "--logits-sha256"];
        assert_eq!(text(&[&changed[..], &options].concat()), expected, "{unknown}");
        let message = error(rgen(&changed).args(["-p", "Once", "-n", "1"]));
        assert!(message.contains("tokenizer.ggml."), "{message}");
        assert!(message.ends_with("the model runs on token ids, not on texts"), "{message}");
    }
    // Generated tokens are evaluated too, but for the last one.
    let more = text(&["--tokens", array, "-n", "3", "--temp", "0", "--logits-sha256"]);
    assert!(more.starts_with(&expected));
    assert_eq!(more.lines().count(), tokens.len() + 2);
}

#[test]
fn json_tells_everything() {
    let args = ["-p", "The game", "-n", "5", "--temp", "0", "--json"];
    let all: Value = serde_json::from_str(&text(&args)).unwrap();
    let shown = text(&["-p", "The game", "-n", "5", "--temp", "0"]);
    let joined = format!("{}{}\n", all["prompt"].as_str().unwrap(), all["text"].as_str().unwrap());
    assert_eq!(joined, shown);
    assert_eq!(all["prompt"], "The game");
    assert_eq!(all["tokens"].as_array().unwrap().len(), 5);
    assert_eq!(all["prompt_tokens"][0], 0, "BOS");
    assert_eq!(all["stop"], "length");
    assert_eq!(all["timings"]["eval_tokens"], 4);
    assert!(all.get("logits_sha256").is_none());
    let proofs: Value = serde_json::from_str(&text(&[&args[..], &["--logits-sha256"]].concat())).unwrap();
    let n = all["prompt_tokens"].as_array().unwrap().len() + 4;
    assert_eq!(proofs["logits_sha256"].as_array().unwrap().len(), n);
    assert_eq!(proofs["logits_sha256"][n - 1]["pos"], n - 1);
}

#[test]
fn prompts_come_from_files_and_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt.txt");
    fs::write(&file, "The game\\t\n").unwrap();
    let from_file = text(&["-f", file.to_str().unwrap(), "-n", "4", "--temp", "0"]);
    assert!(from_file.starts_with("The game\t"), "{from_file}");
    let piped = rgen(&["-n", "4", "--temp", "0"]).write_stdin("The game\\t\n").output().unwrap();
    assert_eq!(stdout(piped), from_file);
    let plain = text(&["-p", "The game\\t", "--no-escape", "-n", "1"]);
    assert!(plain.starts_with("The game\\t"), "{plain}");
    // This model begins texts with BOS, so an empty prompt is one.
    let of_nothing = text(&["-p", "", "-n", "4", "--temp", "0"]);
    assert!(!of_nothing.trim().is_empty(), "{of_nothing:?}");
}

#[test]
fn the_context_ends_the_text() {
    let all: Value =
        serde_json::from_str(&text(&["-p", "The game", "-c", "24", "--ignore-eos", "--json", "-s", "1"])).unwrap();
    assert_eq!(all["stop"], "context");
    let count = |key: &str| all[key].as_array().unwrap().len();
    assert_eq!(count("prompt_tokens") + count("tokens"), 24);
}

#[test]
fn the_last_of_two_options_counts() {
    let args = ["-p", "The game", "-n", "9", "-n", "2", "--temp", "1", "--temp", "0", "--json"];
    let all: Value = serde_json::from_str(&text(&args)).unwrap();
    assert_eq!(all["tokens"].as_array().unwrap().len(), 2);
}

#[test]
fn mistakes_are_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let folder = dir.path().to_str().unwrap();
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    let words = write("words.txt", b"1 2 three");
    let large = write("large.txt", b"1 4096");
    let empty = write("empty.txt", b"");
    let binary = write("binary.txt", b"ab\xff");
    let prompt = "word ".repeat(600);
    let count = text(&["-p", &prompt, "-c", "4096", "-n", "0", "--json"]);
    let count: Value = serde_json::from_str(&count).unwrap();
    let count = count["prompt_tokens"].as_array().unwrap().len();
    let too_long = format!("{count} tokens, but a context of 512 has room for 508");
    for (args, expected) in [
        (&["-p", &prompt][..], too_long.as_str()),
        (&["-p", "The game", "-c", "6"], "context of 6 has room for 2"),
        (&["-f", &missing], "missing"),
        (&["-f", folder], "is a directory"),
        (&["-f", &binary], "not UTF-8 at byte 2"),
        (&["--tokens", &words], "\"three\", is not a token id"),
        (&["--tokens", &large], "token 4096, is outside the vocabulary of 4096"),
        (&["--tokens", &empty], "no token ids"),
        (&["-p", "\\xff"], "not UTF-8"),
        (&["-p", "x", "--repeat-penalty", "0"], "the repeat penalty must be above 0"),
        (&["-cnv"], "has no chat template"),
        (&["-cnv", "--chat-template-file", &missing], "missing"),
    ] {
        let e = error(rgen(args).write_stdin(""));
        assert!(e.contains(expected), "{args:?}: {e}");
    }
    let e = error(rgen(&["-p", "x"]).env("TRINE_ISA", "sse9"));
    assert!(e.contains("TRINE_ISA"), "{e}");
    let e = error(rgen(&["-p", "x"]).env("TRINE_PREFETCH", "far"));
    assert!(e.contains("TRINE_PREFETCH=\"far\" is no number of bytes"), "{e}");
    let e = error(rgen(&["-p", "x"]).env("TRINE_DENSE", "2"));
    assert!(e.contains("TRINE_DENSE=\"2\" is neither 0 nor 1"), "{e}");
    for (model, expected) in [
        (missing.as_str(), "does not exist"),
        (folder, "is a directory"),
        (words.as_str(), "not a GGUF file"),
        (empty.as_str(), "is empty"),
    ] {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        let e = error(command.args(["-m", model, "-p", "x"]));
        assert!(e.contains(expected), "{e}");
    }
}

#[test]
fn unknown_options_are_refused_and_help_teaches() {
    for args in [
        &["-p", "x", "--no-repacking"][..],
        &["-p", "x", "-n", "-3"],
        &["-p", "x", "-t", "0"],
        &["-st", "--json"],
        &["-p", "x", "--prompt-cache-all"],
    ] {
        let output = rgen(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let help = stdout(Command::from(tool::command(env!("CARGO_BIN_EXE_rgen"))).arg("--help").output().unwrap());
    for word in ["Examples:", "--logits-sha256", "POS TOKEN SHA256", "-ub", "-cnv"] {
        assert!(help.contains(word), "{word}");
    }
}

pub const TEMPLATE: &str = "{% for m in messages %}{{ '<|endoftext|>' + m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|endoftext|>assistant:' }}{% endif %}";

#[test]
fn chat_goes_on_until_it_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("chat.jinja");
    fs::write(&template, TEMPLATE).unwrap();
    let chat = |args: &[&str], input: &str| {
        let mut command = rgen(&["-cnv", "--temp", "0", "-n", "6", "--chat-template-file"]);
        stdout(command.arg(&template).args(args).write_stdin(input).output().unwrap())
    };
    let three = chat(&["-sys", "Be brief."], "One\nTwo\\\nhalves\n\n/clear\nOne\n/quit\nFour\n");
    let answers: Vec<&str> = three.lines().collect();
    let once = chat(&["-sys", "Be brief.", "-st"], "One\nTwo\n");
    // After /clear the conversation begins anew, with the same context as in a fresh run.
    assert!(three.starts_with(&once) && three.ends_with(&once), "{three:?}");
    assert!(answers.len() >= 3);
    assert_eq!(chat(&["-sys", "Be brief.", "-st", "-p", "One"], ""), once);
    assert_eq!(chat(&["-st"], ""), "");
    // The control token's text in a message is text: the answer is another than to the token itself.
    let as_text = chat(&["-st", "-p", "a<|endoftext|>user: b"], "");
    assert!(!as_text.is_empty());
}

#[test]
fn hostile_templates_end_in_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("chat.jinja");
    for (source, expected) in [
        ("{% for i in range(10) %}", "not valid"),
        ("{{ raise_exception('no') }}", "no"),
        ("{% for i in range(1000000000) %}x{% endfor %}", "failed"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "failed"),
        ("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", "more than"),
        (
            "{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s | length }}",
            "was stopped: it ",
        ),
        (
            "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | tojson | length }}",
            "was stopped: it ",
        ),
    ] {
        fs::write(&template, source).unwrap();
        let mut command = rgen(&["-cnv", "-st", "-p", "x", "--chat-template-file"]);
        let output = command.arg(&template).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("rgen: error: ") && last.contains(expected), "{source}: {stderr}");
    }
}

#[test]
fn ctrl_c_ends_the_text_and_is_reported() {
    let mut child = tool::command(env!("CARGO_BIN_EXE_rgen"))
        .arg("-m")
        .arg(trilm())
        .args(["-p", "The game", "-c", "100000", "--ignore-eos", "-s", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut begun = [0u8; 12];
    out.read_exact(&mut begun).unwrap();
    let killed =
        std::process::Command::new("kill").args([tool::end_signal(), &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with('\n'));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("eval time") && stderr.ends_with("interrupted\n"), "{stderr}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_reader_that_has_enough_ends_the_program() {
    let mut child = tool::command(env!("CARGO_BIN_EXE_rgen"))
        .arg("-m")
        .arg(trilm())
        .args(["-c", "100000", "--ignore-eos", "-s", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"The game").unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0u8; 12]).unwrap();
    drop(out);
    // As the system ends those who write to nobody.
    let status = child.wait().unwrap();
    #[cfg(unix)]
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(13));
    assert!(!status.success());
}

/// Texts that follow a grammar or a schema, and sources that are none.
#[test]
fn a_grammar_gives_the_text_its_form() {
    let asked = |option: &str, source: &str| {
        text(&["-p", "The game", "-n", "24", "--seed", "3", "--no-display-prompt", option, source])
    };
    let answer = asked("--grammar", r#"root ::= " was a " ("win" | "loss")"#);
    assert!(["was a win", "was a loss"].contains(&answer.trim()), "{answer:?}");
    let schema = r#"{"type": "object", "properties": {"n": {"enum": [1, 22]}}, "required": ["n"], "additionalProperties": false}"#;
    let json: serde_json::Value = serde_json::from_str(&asked("-j", schema)).expect("JSON");
    assert!(json["n"] == 1 || json["n"] == 22, "{json}");
    for (option, source, wanted) in [
        ("--grammar", "root ::= (", "--grammar"),
        ("-j", "{", "--json-schema"),
        ("--grammar-file", "/nowhere.gbnf", "'/nowhere.gbnf'"),
    ] {
        let line = error(&mut rgen(&["-p", "a", option, source]));
        assert!(line.contains(wanted), "{line}");
    }
}

/// Metadata from the command line counts as if the file had it; the hashes are those of llama.cpp's portable build with
/// the same options.
#[test]
fn rope_options_and_overrides_have_the_bits_of_the_reference() {
    let dir = tempfile::TempDir::new().unwrap();
    let ids = dir.path().join("ids.txt");
    let list: Vec<String> = (5..=40).map(|id| id.to_string()).collect();
    fs::write(&ids, list.join(" ")).unwrap();
    let last = |options: &[&str]| {
        let mut args = vec!["--tokens", ids.to_str().unwrap(), "-n", "0", "--logits-sha256"];
        args.extend(options);
        let text = text(&args);
        text.lines().last().unwrap().split(' ').nth(2).unwrap()[..16].to_owned()
    };
    let yarn = ["--rope-scaling", "yarn", "--rope-scale", "8", "--yarn-orig-ctx", "32"];
    let narrow = ["--yarn-ext-factor", "0.5", "--yarn-beta-slow", "2", "--yarn-beta-fast", "16"];
    for (options, hash) in [
        (&[][..], "8254e87fb3197ca7"),
        (&["--rope-freq-base", "20000"], "01c18bf6405ffbb8"),
        (&["--override-kv", "llama.rope.freq_base=float:20000"], "01c18bf6405ffbb8"),
        (&["--rope-scale", "4", "--rope-scaling", "linear"], "4446d23c781a30a8"),
        (&["--rope-freq-scale", "0.3", "--rope_scaling", "linear"], "f7d2e3d83942b537"),
        (&["--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "64"], "1ff2c242a46ca105"),
        (&[&yarn[..], &narrow].concat(), "dfec0a05faddfd80"),
    ] {
        assert_eq!(last(options), hash, "{options:?}");
    }
}

/// The tool reports the locked memory, or the limit, and the text is the same.
#[test]
fn memory_is_locked_or_the_limit_is_told() {
    let run = |more: &[&str]| {
        let output = rgen(&[&["-p", "The game", "-n", "4", "--temp", "0"], more].concat()).output();
        trine_testkit::tool::texts(output.unwrap())
    };
    let (text, told) = run(&["--mlock"]);
    assert_eq!(text, run(&[]).0);
    let locked = told.lines().find(|l| l.ends_with("of memory are locked"));
    let amount = locked.and_then(|l| l.split(' ').next()?.parse::<f64>().ok());
    let refused = told.contains("memory is not locked: ") && told.contains("`ulimit -l`");
    // The bundled model has eleven million bytes.
    assert!(refused || amount.is_some_and(|mib| mib > 8.0), "{told}");
}
