//! Names from files on their way to a terminal.

use super::kit::*;

const NAME: &str = "blk.0.x\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\nrquantize: error: f.weight";

fn hidden(text: &str) -> Option<char> {
    text.chars().find(|&c| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c))
}

#[test]
fn names_do_nothing_to_the_terminal() {
    let dir = folder();
    let ternary: Vec<f32> = (0..256 * 4).map(|i| (i % 3) as f32 - 1.0).collect();
    small(&path(&dir, "t.gguf"), NAME, &ternary);
    small(&path(&dir, "f.gguf"), NAME, &values(256 * 4));
    for words in [
        "--dry-run t.gguf Q8_0",
        "--dry-run --json t.gguf Q8_0",
        "-v t.gguf out.gguf Q8_0",
        "-v --json t.gguf out.gguf TQ2_0",
        "-v f.gguf out.gguf TQ2_0",
        "-v --force f.gguf out.gguf TQ2_0",
        "-v --force f.gguf out.gguf I2_S",
        "--dry-run f.gguf AP2-3",
        "--verify t.gguf out.gguf TQ1_0",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = run(dir.path(), RQUANTIZE, &words);
        check(&output, &words);
    }
    for words in [&["t.gguf", "--tensors"][..], &["t.gguf", "--json"], &["t.gguf", "--check-tensors"]] {
        check(&run(dir.path(), RINSPECT, words), words);
    }
    check(&run(dir.path(), RGEN, &["-m", "t.gguf", "-p", "a"]), &["rgen"]);
}

fn check(output: &std::process::Output, words: &[&str]) {
    for stream in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(stream).unwrap();
        assert_eq!(hidden(text), None, "{words:?}: {text:?}");
        let forged = text.lines().any(|l| l.starts_with("rquantize: error: f.weight"));
        assert!(!forged, "{words:?}: {text:?}");
        assert!(text.lines().all(|l| l.len() <= 5000), "{words:?}");
    }
}

#[test]
fn messages_are_short_whatever_a_file_holds() {
    let dir = with_model();
    let long = "x".repeat(1 << 20);
    std::fs::write(path(&dir, "template"), format!("{{{{ raise_exception('{long}') }}}}")).unwrap();
    let words = ["-m", "m.gguf", "-cnv", "-st", "-p", "x", "--seed", "1", "--chat-template-file", "template"];
    let error = refused(&run(dir.path(), RGEN, &words));
    assert!(error.len() < 5000, "{}", error.len());
}

#[test]
fn what_a_model_says_can_be_escaped() {
    let dir = with_model();
    let words = ["-m", "m.gguf", "-n", "1", "-p", "a\u{1b}[31m\u{9b}b\n"];
    let text = succeeded(&run(dir.path(), RGEN, &words));
    assert!(text.contains('\u{1b}'));
    let words = [&words[..], &["--escape-control"]].concat();
    let text = succeeded(&run(dir.path(), RGEN, &words));
    assert_eq!(hidden(&text), None, "{text:?}");
    assert!(text.contains("\\u{1b}[31m"), "{text:?}");
}
