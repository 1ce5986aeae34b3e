//! `rgen` and `rperplexity` on a file of several widths.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use trine_testkit::{tool, trilm};

struct Model {
    dir: TempDir,
}

/// The ternary model at 1, 2 and 3 bits: one bit is too few for three values, two hold them exactly.
fn model() -> &'static Path {
    static MODEL: OnceLock<Model> = OnceLock::new();
    let made = MODEL.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        let quantize = Command::new(env!("CARGO_BIN_EXE_rquantize"))
            .arg(trilm())
            .arg(dir.path().join("ap.gguf"))
            .arg("AP1-3")
            .output()
            .unwrap();
        assert!(quantize.status.success(), "{quantize:?}");
        Model { dir }
    });
    made.dir.path()
}

fn rgen(file: &Path, args: &[&str]) -> Command {
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    command.arg("-m").arg(file).args(args);
    command
}

/// Standard output and standard error.
fn ok(file: &Path, args: &[&str]) -> (String, String) {
    tool::texts(rgen(file, args).output().unwrap())
}

fn error(file: &Path, args: &[&str]) -> String {
    tool::refusal("rgen", rgen(file, args).output().unwrap()).error
}

const HASHES: [&str; 5] = ["-p", "The game of", "-n", "0", "--logits-sha256"];

fn hashes(file: &Path, more: &[&str]) -> String {
    ok(file, &[&HASHES[..], more].concat()).0
}

#[test]
fn a_width_is_chosen_when_the_program_runs() {
    let ap = model().join("ap.gguf");
    let widest = hashes(&ap, &[]);
    assert_eq!(hashes(&ap, &["--bits", "3"]), widest);
    // the tables of two bits hold the same weights
    assert_eq!(hashes(&ap, &["--bits", "2"]), widest);
    let one = hashes(&ap, &["--bits", "1"]);
    assert_ne!(one, widest);
    assert_eq!(hashes(&ap, &["--bits", "1", "--no-mmap", "-t", "1"]), one);
    let floats = hashes(&ap, &["--number-path", "f32"]);
    assert_ne!(floats, widest);
    assert_eq!(hashes(&ap, &["--number-path", "i16"]), widest);
    let (text, said) = ok(&ap, &["-p", "The game", "-n", "8", "--temp", "0", "--bits", "2"]);
    assert!(said.contains("any-precision: 2 bits, of 1, 2, 3"), "{said}");
    let (json, _) = ok(&ap, &["-p", "The game", "-n", "8", "--temp", "0", "--bits", "2", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["bits"], 2);
    let generated = json["text"].as_str().unwrap();
    assert_eq!(text.trim_end_matches('\n'), format!("The game{generated}"));
}

#[test]
fn the_roofline_counts_the_planes_of_the_width_in_use() {
    let ap = model().join("ap.gguf");
    let inspected = Command::new(env!("CARGO_BIN_EXE_rinspect")).arg("--json").arg(&ap).output().unwrap();
    let inspected: Value = serde_json::from_slice(&inspected.stdout).unwrap();
    let described = &inspected["any_precision"];
    let run_bytes = |width: usize| described["widths"][width - 1]["run_bytes"].as_f64().unwrap();
    let counted = |options: &[&str]| {
        let args = ["--roofline", "-p", "0", "-n", "1", "-r", "1", "-t", "1", "-o", "json", "-m"];
        let mut command = tool::command(env!("CARGO_BIN_EXE_rbench"));
        let output = command.args(args).arg(&ap).args(options).output().unwrap();
        let rows: Value = serde_json::from_str(&tool::stdout(output)).unwrap();
        let number = |key: &str| rows[0][key].as_f64().unwrap();
        [number("weight_bytes_per_token"), number("quantized_macs_per_token")]
    };
    let [all, macs] = counted(&[]);
    assert_eq!(counted(&["--bits", "3"]), [all, macs]);
    for (width, bits) in [(1, "1"), (2, "2")] {
        assert_eq!(counted(&["--bits", bits]), [all - (run_bytes(3) - run_bytes(width)), macs]);
    }
    assert_eq!(macs, described["weights"].as_f64().unwrap());
}

#[test]
fn a_width_that_is_not_there_is_refused() {
    let ap = model().join("ap.gguf");
    let text = error(&ap, &["-p", "x", "--bits", "5"]);
    assert!(text.contains("'") && text.contains("5 bits are not in the file"), "{text}");
    assert!(text.contains("1, 2 and 3"), "{text}");
    let text = error(&trilm(), &["-p", "x", "--bits", "4"]);
    assert!(text.contains("no any-precision file") && text.contains("rquantize"), "{text}");
    for wrong in ["0", "9", "x"] {
        let output = rgen(&ap, &["-p", "x", "--bits", wrong]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_file_that_ends_early_runs_at_the_widths_it_has() {
    let ap = model().join("ap.gguf");
    let bytes = std::fs::read(&ap).unwrap();
    let cut = model().join("cut.gguf");
    std::fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();
    assert_eq!(hashes(&cut, &[]), hashes(&ap, &["--bits", "2"]));
    let (_, said) = ok(&cut, &["-p", "The", "-n", "1"]);
    assert!(said.contains("2 bits, of 1, 2; the file ends early, it was made for 1, 2, 3"), "{said}");
    let text = error(&cut, &["-p", "x", "--bits", "3"]);
    assert!(text.contains("it has 1 and 2"), "{text}");
}

/// Standard output and standard error of a chat; the answers have `-n` tokens.
fn chat(lines: &str, args: &[&str]) -> (String, String) {
    let template = model().join("template.jinja");
    let source = "{% for m in messages %}{{ m.role }} : {{ m.content }} \n {% endfor %}{% if add_generation_prompt %}assistant :{% endif %}";
    std::fs::write(&template, source).unwrap();
    let mut child = tool::command(env!("CARGO_BIN_EXE_rgen"))
        .arg("-m")
        .arg(model().join("ap.gguf"))
        .args(["-cnv", "-n", "30", "--temp", "0", "--chat-template-file"])
        .arg(&template)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

#[test]
fn the_width_changes_in_a_chat() {
    let (wide, _) = chat("Where was the game played\n", &[]);
    let (narrow, _) = chat("Where was the game played\n", &["--bits", "1"]);
    assert_ne!(wide, narrow);
    let (changed, said) = chat("/bits 1\nWhere was the game played\n", &[]);
    assert_eq!(changed, narrow);
    assert!(said.contains("any-precision: 1 bits, of 1, 2, 3"), "{said}");
    let (back, said) = chat("/bits 1\n/bits\n/bits 3\nWhere was the game played\n", &["--bits", "2"]);
    assert_eq!(back, wide);
    assert_eq!(said.matches("any-precision: 1 bits").count(), 2, "{said}");
    let (_, said) = chat("/help\n", &[]);
    assert!(said.contains("/bits [N]") && said.contains("/clear"), "{said}");
}

#[test]
fn drafts_change_neither_text_nor_logits() {
    let ap = model().join("ap.gguf");
    let text = ["-p", "The game of", "-n", "60"];
    let with = |more: &[&str]| ok(&ap, &[&text[..], more].concat());
    let drafts = ["--draft-bits", "1", "--draft-always"];
    for sampling in [&["--temp", "0"][..], &["--seed", "7", "--repeat-penalty", "1.2"]] {
        let (expected, said) = with(sampling);
        assert!(!said.contains("draft"), "{said}");
        let (drafted, said) = with(&[sampling, &drafts[..]].concat());
        assert_eq!(drafted, expected);
        assert!(said.contains("draft accepted = "), "{said}");
        let hashes = ["--logits-sha256"];
        let (expected, _) = with(&[sampling, &hashes[..]].concat());
        let (drafted, _) = with(&[sampling, &hashes[..], &drafts[..], &["--draft", "7"]].concat());
        assert_eq!(drafted, expected);
    }
    let (json, _) = with(&["--temp", "0", "--bits", "2", "--draft-bits", "1", "--draft-always", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let draft = &json["draft"];
    assert_eq!((&draft["bits"], &draft["tokens"]), (&1.into(), &16.into()));
    let count = |name: &str| draft[name].as_u64().unwrap();
    assert!(count("rounds") > 0 && count("drafted") >= count("accepted"));
    assert_eq!(json["tokens"].as_array().unwrap().len(), 60);
    // whether they pay is measured; the text is the same either way
    assert_eq!(with(&["--temp", "0", "--draft-bits", "1"]).0, with(&["--temp", "0"]).0);
    let (plain, _) = chat("Where was the game played\nAnd when\n", &[]);
    assert_eq!(chat("Where was the game played\nAnd when\n", &drafts).0, plain);
}

#[test]
fn drafts_that_cannot_be_made_are_refused() {
    let ap = model().join("ap.gguf");
    let text = error(&ap, &["-p", "x", "--bits", "2", "--draft-bits", "2"]);
    assert!(text.contains("drafts at 2 bits are of no use for a text at 2"), "{text}");
    let text = error(&ap, &["-p", "x", "--draft-bits", "4"]);
    assert!(text.contains("1, 2 and 3"), "{text}");
    let text = error(&trilm(), &["-p", "x", "--draft-bits", "3"]);
    assert!(text.contains("no any-precision file"), "{text}");
    for wrong in [&["--draft", "4"][..], &["--draft-always"], &["--draft-bits", "1", "--draft", "0"]] {
        let output = rgen(&ap, &[&["-p", "x"], wrong].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}

fn rperplexity(args: &[&str]) -> std::process::Output {
    let wiki = trine_testkit::wikitext();
    Command::new(env!("CARGO_BIN_EXE_rperplexity"))
        .arg("-m")
        .arg(model().join("ap.gguf"))
        .arg("-f")
        .arg(wiki)
        .args(["-c", "128", "--chunks", "3"])
        .args(args)
        .output()
        .unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = rperplexity(args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn perplexity_of_several_widths_is_a_table() {
    let json = |args: &[&str]| -> Value {
        let all = [args, &["--json"]].concat();
        serde_json::from_str(&printed(&all)).unwrap()
    };
    let all = json(&["--bits", "1,3,2,3"]);
    let rows = all["widths"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for (row, bits) in rows.iter().zip(["1", "3", "2"]) {
        let single = json(&["--bits", bits]);
        assert_eq!(row["bits"].to_string(), bits);
        for key in ["ppl", "ppl_error", "tokens_scored"] {
            assert_eq!(row[key], single[key], "{bits} bits: {key}");
        }
    }
    assert_eq!(json(&[])["ppl"], rows[1]["ppl"]);
    assert_ne!(rows[0]["ppl"], rows[1]["ppl"]);
    // planes of rows of 256 or 768 weights, and 2^b half floats for each
    let weights = 6.0 * (256.0 * (2.0 * 256.0 + 2.0 * 128.0) + 3.0 * 256.0 * 768.0);
    let table_rows = 6.0 * (2.0 * 256.0 + 2.0 * 128.0 + 2.0 * 768.0 + 256.0);
    for row in rows {
        let bits = row["bits"].as_f64().unwrap();
        let expected = bits + table_rows * 16.0 * f64::from(1 << bits as u32) / weights;
        let got = row["bits_per_weight"].as_f64().unwrap();
        assert!((got - expected).abs() < 1e-9, "{bits}: {got} {expected}");
    }
    let table = printed(&["--bits", "1,2"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["bits", "bits/weight", "PPL", "+/-", "tokens/s"]);
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1][..2], ["1", "1.1042"]);
    assert_eq!(lines[2][2], format!("{:.4}", rows[2]["ppl"].as_f64().unwrap()));
    let one = printed(&["--bits", "2"]);
    assert!(one.contains(&format!("Final estimate: PPL = {}", lines[2][2])), "{one}");
}

#[test]
fn tables_that_cannot_be_made_are_refused() {
    let refused = |args: &[&str]| {
        let output = rperplexity(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--bits", "1,5"]).contains("5 bits are not in the file"));
    assert!(refused(&["--bits", "5"]).contains("1, 2 and 3"));
    let text = refused(&["--bits", "1,2", "--kl-divergence-base", "x.kld"]);
    assert!(text.contains("--kl-divergence-base is for one width"), "{text}");
    let text = refused(&["--bits", "1,2", "--ppl-output-type", "1"]);
    assert!(text.contains("--ppl-output-type is for one width"), "{text}");
    assert!(!Path::new("x.kld").exists());
}
