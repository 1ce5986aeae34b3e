//! The `rtokenize` program: its output and its errors.

use assert_cmd::Command;
use trine_testkit::{read, testdata};

fn rtokenize() -> Command {
    Command::new(env!("CARGO_BIN_EXE_rtokenize"))
}

/// The GPT-2 vocabulary, unpacked.
fn gpt2() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::with_suffix(".gguf").unwrap();
    std::fs::write(&file, read(&testdata("vocab/ggml-vocab-gpt-2.gguf.gz"))).unwrap();
    file
}

fn stdout(command: &mut Command) -> String {
    let output = command.assert().success().get_output().clone();
    String::from_utf8(output.stdout).unwrap()
}

fn failure(command: &mut Command) -> String {
    let output = command.assert().failure().get_output().clone();
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn prints_pieces_ids_and_json() {
    let model = gpt2();
    let args = |more: &[&str]| {
        let mut c = rtokenize();
        c.arg("-m").arg(model.path()).args(more);
        c
    };
    // The output of llama-tokenize for the same arguments.
    assert_eq!(stdout(&mut args(&["-p", "Hello world\\n"])), " 15496 -> 'Hello'\n   995 -> ' world'\n   198 -> '\n'\n");
    assert_eq!(
        stdout(&mut args(&["-p", "Hello world\\n", "--ids", "--show-count"])),
        "[15496, 995, 198]\nTotal number of tokens: 3\n"
    );
    assert_eq!(stdout(&mut args(&["-p", "a\\n", "--ids", "--no-escape"])), "[64, 59, 77]\n");
    assert_eq!(
        stdout(&mut args(&["-p", "Hello\\x21", "--json"])),
        "[{\"id\":15496,\"piece\":\"Hello\"},{\"id\":0,\"piece\":\"!\"}]\n"
    );
    assert_eq!(stdout(args(&["--ids"]).write_stdin("<|endoftext|>")), "[50256]\n");
    assert_eq!(
        stdout(args(&["--ids", "--no-parse-special"]).write_stdin("<|endoftext|>")),
        "[27, 91, 437, 1659, 5239, 91, 29]\n"
    );
    assert_eq!(stdout(&mut args(&["-p", "", "--ids"])), "[]\n");
    let text = testdata("vocab/ggml-vocab-gpt-2.gguf.inp");
    let count = stdout(args(&["--ids", "--show-count", "-f"]).arg(text));
    assert!(count.ends_with("Total number of tokens: 975\n"), "{count}");
}

#[test]
fn errors_are_one_line_with_the_place() {
    let model = gpt2();
    let e = failure(rtokenize().args(["-m", "no-such.gguf", "-p", "x"]));
    assert_eq!(e, "rtokenize: error: 'no-such.gguf' does not exist\n");

    let readme = testdata("vocab/README.md");
    let e = failure(rtokenize().arg("-m").arg(readme).args(["-p", "x"]));
    assert!(e.contains("is not a GGUF file"), "{e}");

    let e = failure(rtokenize().arg("-m").arg(model.path()).args(["-f", "no-such.txt"]));
    assert!(e.starts_with("rtokenize: error: cannot read 'no-such.txt': "), "{e}");

    let e = failure(rtokenize().arg("-m").arg(model.path()).write_stdin(&b"ab\xff"[..]));
    assert_eq!(e, "rtokenize: error: standard input is not UTF-8 at byte 2\n");

    let e = failure(rtokenize().arg("-m").arg(model.path()).write_stdin(""));
    assert_eq!(e, "rtokenize: error: no text: give one with -p, -f or on standard input\n");

    let e = failure(rtokenize().args(["-p", "x"]));
    assert!(e.contains("--model <FILE>"), "{e}");

    let mut bytes = std::fs::read(model.path()).unwrap();
    let pre = b"tokenizer.ggml.pre\x08\0\0\0\x05\0\0\0\0\0\0\0gpt-2";
    let at = bytes.windows(pre.len()).position(|w| w == pre).unwrap() + pre.len();
    bytes[at - 1] = b'9';
    std::fs::write(model.path(), &bytes).unwrap();
    let e = failure(rtokenize().arg("-m").arg(model.path()).args(["-p", "x"]));
    assert!(e.contains("'tokenizer.ggml.pre'") && e.contains("'gpt-9'"), "{e}");
    assert_eq!(e.lines().count(), 1, "{e}");

    let cut = bytes.len() / 2;
    std::fs::write(model.path(), &bytes[..cut]).unwrap();
    let e = failure(rtokenize().arg("-m").arg(model.path()).args(["-p", "x"]));
    assert_eq!(e.lines().count(), 1, "{e}");
}
