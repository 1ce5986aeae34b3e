//! `rperplexity` against llama-perplexity, and its answers to mistakes.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;
use trine_testkit::tool::{refusal, stdout};
use trine_testkit::{sha256, testdata, trilm};

fn path(name: &str) -> String {
    testdata(name).to_str().unwrap().to_owned()
}

fn rperplexity(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rperplexity"));
    command.arg("-m").arg(trilm()).args(args);
    command
}

/// The error's line, which is the last, without the tool's name.
fn error(command: &mut Command) -> String {
    refusal("rperplexity", command.output().unwrap()).error
}

fn wiki() -> String {
    path("wikitext-2/wiki.test.raw")
}

#[test]
fn the_running_estimate_is_that_of_the_reference() {
    let golden: Value = serde_json::from_slice(&fs::read(testdata("golden/perplexity.json")).unwrap()).unwrap();
    let entry = |model: &str| {
        let values = golden["values"].as_array().unwrap();
        values.iter().find(|v| v["model"] == model).unwrap()["running"].clone()
    };
    let wiki = wiki();
    let running = entry("trilm-wt-5.8m-F16.gguf");
    let expected: String = (0..3).map(|i| format!("[{}]{:.4},", i + 1, running[i].as_f64().unwrap())).collect();
    let whole = stdout(rperplexity(&["-f", &wiki, "--chunks", "3"]).output().unwrap());
    assert_eq!(whole.lines().next(), Some(expected.as_str()));
    for options in [&["-b", "100", "-t", "1"][..], &["-ub", "64", "-t", "3", "--no-mmap"]] {
        let args = [&["-f", wiki.as_str(), "--chunks", "3"], options].concat();
        assert_eq!(stdout(rperplexity(&args).output().unwrap()), whole, "{options:?}");
    }
}

/// Printed by `llama-perplexity -c 128 -b 128 --chunks 6 --ppl-output-type 1` for this model and text.
#[test]
fn the_table_is_that_of_the_reference() {
    let table = "       0  53.1877  3.973827  0.295693
     128  75.7886  4.327948  0.214510
     256  98.2622  4.587639  0.175562
     384  75.6159  4.325667  0.166288
     512  75.0260  4.317835  0.147141
     640  70.3378  4.253309  0.131301
Final estimate: PPL = 70.3378 +/- 9.23544
";
    let args = ["-f", &wiki(), "-c", "128", "--chunks", "6", "--ppl-output-type", "1"];
    for batching in [&[][..], &["-b", "128"], &["-ub", "300"], &["-b", "300", "-ub", "70"]] {
        let args = [&args, batching].concat();
        let out = stdout(rperplexity(&args).output().unwrap());
        assert_eq!(out, table, "{batching:?}");
    }
}

/// In numpy, from the logits of the reference: `testdata/tasks/README.md`.
#[test]
fn all_positions_of_windows_may_be_scored() {
    let expected = fs::read_to_string(testdata("tasks/all-positions.out")).unwrap();
    let wiki = wiki();
    let args = ["-f", &wiki, "-c", "256", "--chunks", "5", "--score", "all"];
    assert_eq!(stdout(rperplexity(&args).output().unwrap()), expected);
    let json: Value =
        serde_json::from_str(&stdout(rperplexity(&[&args[..], &["--json"]].concat()).output().unwrap())).unwrap();
    assert_eq!(json["tokens_scored"], 5 * 255);
    assert_eq!((&json["first_scored"], &json["chunk_step"]), (&0.into(), &256.into()));
    for other in [&["--ppl-stride", "32"][..], &["--kl-divergence-base", "x"], &["--hellaswag"]] {
        let args = [&args[..], other].concat();
        assert_eq!(rperplexity(&args).output().unwrap().status.code(), Some(2), "{other:?}");
    }
}

/// Printed by `llama-perplexity -fa off -b C -c C` for this model and the beginning of this text: where `-b` is larger, the
/// reference has no room for a chunk.
#[test]
fn strided_chunks_are_those_of_the_reference() {
    for (args, running) in [
        (["-c", "512", "--ppl-stride", "300", "--chunks", "3"], "[1]55.6150,[2]77.2922,[3]89.1441,"),
        (["-c", "128", "--ppl-stride", "64", "--chunks", "4"], "[1]104.0052,[2]99.3431,[3]116.2656,[4]108.2789,"),
    ] {
        let out = stdout(rperplexity(&[&["-f", &wiki()], &args[..]].concat()).output().unwrap());
        assert_eq!(out.lines().next(), Some(running));
    }
    let e = error(rperplexity(&["-f", &wiki(), "-c", "128", "--ppl-stride", "600"]).args(["--chunks", "1"]));
    assert!(e.contains("a stride of 600 does not fit chunks of 512 tokens"), "{e}");
}

#[test]
fn divergence_from_a_base_file_is_that_of_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("trilm.kld");
    let base_name = base.to_str().unwrap();
    let args = ["-f", &wiki(), "--chunks", "2", "--save-all-logits", base_name];
    let running = stdout(rperplexity(&args).output().unwrap());
    assert!(running.starts_with("[1]81.7028,[2]97.2253,\n"), "{running}");
    let bytes = fs::read(&base).unwrap();
    // The file that llama-perplexity writes; see testdata/golden/README.md.
    assert_eq!(sha256(&bytes), "b5fde9d0f3cc821114a121f9fb3b1bf7e0f7c60a813c1149b1ff4b93678fbf0a");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let model = dir.path().join("trilm-TQ2_0.gguf");
    let mut quantize = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    let source = trilm();
    quantize.arg(source).arg(&model).arg("TQ2_0").assert().success();
    let golden = fs::read_to_string(testdata("golden/kld/trilm-TQ2_0.txt")).unwrap();
    let compare = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rperplexity"));
        command.args(["--kl-divergence", "--kl-divergence-base", base_name, "-m"]).arg(&model).args(args);
        stdout(command.output().unwrap())
    };
    let table = compare(&[]);
    assert!(table.trim_end().ends_with(golden.trim()), "{table}");
    assert!(table.starts_with("chunk             PPL "));
    assert_eq!(compare(&["-f", &wiki(), "-b", "77", "-t", "1"]), table);
    let all: Value = serde_json::from_str(&compare(&["--json", "--chunks", "1"])).unwrap();
    assert_eq!(all["tokens_scored"], 255);
    let ppl = trine::math::exp(all["ln_ppl"]["value"].as_f64().unwrap());
    assert_eq!(format!("{ppl:.4}"), "81.5481");

    // Mistakes with a base file.
    let with = |args: &[&str]| {
        let mut command = rperplexity(&["--kl-divergence", "--kl-divergence-base"]);
        error(command.args(args))
    };
    assert!(with(&[base_name, "-c", "256"]).contains("made with a context of 512, not 256"));
    let other = dir.path().join("other.txt");
    fs::write(&other, "another text ".repeat(2000)).unwrap();
    assert!(with(&[base_name, "-f", other.to_str().unwrap()]).contains("another text or tokenizer"));
    let damaged = dir.path().join("damaged.kld");
    let name = damaged.to_str().unwrap();
    fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
    assert!(with(&[name]).contains("cut off"));
    let mut wrong = bytes.clone();
    wrong[12] ^= 1;
    fs::write(&damaged, wrong).unwrap();
    assert!(with(&[name]).contains("belongs to another model"));
    fs::write(&damaged, "text").unwrap();
    assert!(with(&[name]).contains("_logits_"));
}

#[test]
fn json_holds_the_estimate() {
    let args = ["-f", &wiki(), "-c", "128", "--chunks", "6", "--json"];
    let all: Value = serde_json::from_str(&stdout(rperplexity(&args).output().unwrap())).unwrap();
    assert_eq!(format!("{:.4}", all["ppl"].as_f64().unwrap()), "70.3378");
    assert_eq!(format!("{:.5}", all["ppl_error"].as_f64().unwrap()), "9.23544");
    assert_eq!(all["running"].as_array().unwrap().len(), 6);
    assert_eq!(all["tokens_scored"], 6 * 63);
}

#[test]
fn mistakes_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let folder = dir.path().to_str().unwrap();
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    let nowhere = dir.path().join("no/such/base.kld").to_str().unwrap().to_owned();
    let short = write("short.txt", "word ".repeat(300).as_bytes());
    let empty = write("empty.txt", b"\n");
    let binary = write("binary.txt", b"ab\xff");
    let wiki = wiki();
    for (args, expected) in [
        (&["-f", &short][..], "tokens, but a context of 512 needs at least 1024"),
        (&["-f", &short, "-c", "2"], "no position to score"),
        (&["-f", &missing], "missing"),
        (&["-f", folder], "is a directory"),
        (&["-f", &empty], "is empty"),
        (&["-f", &binary], "not UTF-8 at byte 2"),
        (&["-f", &wiki, "--kl-divergence-base", folder], "it is a directory"),
        (&["-f", &wiki, "--kl-divergence-base", &nowhere], "cannot write"),
        (&["--kl-divergence", "--kl-divergence-base", &missing], "cannot open"),
        (&["--kl-divergence", "--kl-divergence-base", folder], "is a directory"),
        #[cfg(target_os = "linux")]
        (&["-f", &wiki, "--chunks", "1", "-c", "128", "--kl-divergence-base", "/dev/full"], "cannot write '/dev/full'"),
    ] {
        let e = error(&mut rperplexity(args));
        assert!(e.contains(expected), "{args:?}: {e}");
    }
    // A run that fails leaves no part of a file.
    let target = dir.path().join("new.kld");
    error(&mut rperplexity(&["-f", &short, "--kl-divergence-base", target.to_str().unwrap()]));
    let left = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
    assert!(left.into_iter().all(|n| !n.to_string_lossy().contains("new.kld")));
}

#[test]
fn the_base_file_never_replaces_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.txt");
    let link = dir.path().join("link");
    fs::write(&text, "one two three").unwrap();
    std::os::unix::fs::symlink(&text, &link).unwrap();
    let said = error(&mut rperplexity(&["-f", text.to_str().unwrap(), "--kl-divergence-base", link.to_str().unwrap()]));
    assert!(said.contains("it is also an input"), "{said}");
    assert_eq!(fs::read_to_string(&text).unwrap(), "one two three");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for args in [
        &[][..],
        &["--kl-divergence"],
        &["-f", "x", "--chunks", "0"],
        &["-f", "x", "--embedding"],
        &["-f", "x", "--csv"],
        &["-f", "x", "--ppl-output-type", "2"],
    ] {
        assert_eq!(rperplexity(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
    let help = stdout(Command::new(env!("CARGO_BIN_EXE_rperplexity")).arg("--help").output().unwrap());
    assert!(help.contains("Examples:") && help.contains("--kl-divergence-base"));
    let version = stdout(rperplexity(&["--version"]).output().unwrap());
    let commit = version.strip_prefix(concat!("rperplexity ", env!("CARGO_PKG_VERSION"), " (commit "));
    let commit = commit.and_then(|c| c.strip_suffix(")\n"));
    assert!(commit.is_some_and(|c| c.len() >= 7), "{version}");
}
