//! Texts measured in parts by `rperplexity --partial`, and put together by `--join`.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use sha2::Digest;
use trine_testkit::tool::{refusal, stdout};
use trine_testkit::{testdata, trilm};

struct Dir(tempfile::TempDir);

impl Dir {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `rperplexity` with the words of a line; `@x` is a file of this folder.
    fn run(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rperplexity"));
        for word in line.split_whitespace() {
            match word.strip_prefix('@') {
                Some("trilm") => command.arg(trilm()),
                Some("wiki") => command.arg(testdata("wikitext-2/wiki.test.raw")),
                Some(name) => command.arg(self.path(name)),
                None => command.arg(word),
            };
        }
        command
    }

    fn out(&self, line: &str) -> String {
        stdout(self.run(line).output().unwrap())
    }

    fn error(&self, line: &str) -> String {
        refusal("rperplexity", self.run(line).output().unwrap()).error
    }
}

fn dir() -> Dir {
    Dir(tempfile::tempdir().unwrap())
}

/// As a run that was killed in the middle of a line leaves the file.
fn cut(path: &Path, bytes: usize) {
    let whole = fs::read(path).unwrap();
    fs::write(path, &whole[..whole.len() - bytes]).unwrap();
}

#[test]
fn parts_on_several_machines_give_the_digits_of_one() {
    let dir = dir();
    let text = "-m @trilm -f @wiki -c 64";
    let whole = dir.out(&format!("{text} --chunks 7"));
    let table = dir.out(&format!("{text} --chunks 7 --ppl-output-type 1"));
    for (part, isa, threads) in
        [("--chunks 3 --partial @a", "scalar", "1"), ("--from-chunk 3 --chunks 4 --partial @b", "avx2", "3")]
    {
        let mut command = dir.run(&format!("{text} {part}"));
        let out = stdout(command.env("TRINE_ISA", isa).args(["-t", threads]).output().unwrap());
        assert!(out.starts_with("chunks "), "{out}");
    }
    // In any order of files, twice the same, and of a file that has lost the end of its last line.
    for files in ["@a @b", "@b @a", "@b @a @b"] {
        assert_eq!(dir.out(&format!("--join {files}")), whole, "{files}");
    }
    assert_eq!(dir.out("--join @a @b --ppl-output-type 1"), table);
    cut(&dir.path("b"), 5);
    let six = dir.out(&format!("{text} --chunks 6"));
    assert_eq!(dir.out("--join @a @b"), six);
    // Only the lost chunk is measured again.
    let resumed = dir.run(&format!("{text} --from-chunk 3 --chunks 4 --partial @b")).output().unwrap();
    let said = String::from_utf8(resumed.stderr.clone()).unwrap();
    assert!(said.contains("3 of 4 chunks are in '"), "{said}");
    assert_eq!(dir.out("--join @a @b"), whole);
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(&dir.out(line)).unwrap();
    let (one, joined) = (json(&format!("{text} --chunks 7 --json")), json("--join @a @b --json"));
    for name in ["n_ctx", "chunks", "chunk_step", "first_scored", "tokens_scored", "ppl", "ppl_error", "running"] {
        assert_eq!(one[name], joined[name], "{name}");
    }
}

#[test]
fn parts_of_a_comparison_give_its_digits() {
    let dir = dir();
    dir.out("-m @trilm -f @wiki -c 64 --chunks 5 --kl-divergence-base @base");
    let compare = "-m @trilm -ctk q8_0 --kl-divergence-base @base --kl-divergence";
    let whole = dir.out(compare);
    dir.out(&format!("{compare} --from-chunk 3 --partial @b"));
    dir.out(&format!("{compare} --chunks 3 -b 64 --partial @a"));
    assert_eq!(dir.out("--join @a @b"), whole);
    // A part alone is measured too, and says so by the numbers of its chunks.
    let part = dir.out(&format!("{compare} --from-chunk 3 --chunks 1"));
    assert!(part.lines().nth(1).unwrap().starts_with("   4    "), "{part}");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let dir = dir();
    let text = "-m @trilm -f @wiki -c 64";
    dir.out(&format!("{text} --chunks 1 --partial @a"));
    dir.out(&format!("{text} --from-chunk 3 --chunks 1 --partial @d"));
    dir.out(&format!("{text} --chunks 1 --score all --partial @all"));
    dir.out(&format!("{text} --chunks 1 -ctv q8_0 --partial @q8"));
    let e = dir.error("--join @a @d");
    assert!(e.contains("chunks 2 to 3 are in none") && e.contains("--from-chunk 1 --chunks 2 --partial FILE"), "{e}");
    for (other, name) in [("@all", "first_scored"), ("@q8", "cache_types")] {
        let e = dir.error(&format!("--join @a {other}"));
        assert!(e.contains("of different work") && e.contains(name), "{e}");
    }
    let e = dir.error(&format!("{text} --chunks 2 --partial @q8"));
    assert!(e.contains("is of other work") && e.contains("cache_types"), "{e}");
    let other = fs::read_to_string(dir.path("a")).unwrap();
    let (head, line) = other.split_once('\n').unwrap();
    for (text, why) in [
        ("{}\n".to_owned(), "its first line does not say rperplexity.partial/1"),
        (String::new(), "its first line"),
        (format!("{head}\n"), "no chunk is in these files"),
        (format!("{other}{line}"), "line 3 is another result of chunk 1"),
        (format!("{head}\n{{\"chunk\":0,\"sums\":\"00\"}}\n"), "line 2 is no result"),
        (format!("{head}\n{{\"chunk\":0,\"sums\":\"+000000000000000\"}}\n"), "line 2 is no result"),
        (format!("{head}\n{{\"chunk\":0,\"sums\":\"0000000000000000\"}}\n"), "line 2 is no result"),
        // A digit of the sums, of the number of the chunk, and of what was measured.
        (format!("{head}\n{}", line.replacen("40", "41", 1)), "line 2 is no result"),
        (format!("{head}\n{}", line.replacen("\"chunk\":0", "\"chunk\":1", 1)), "line 2 is no result"),
        (format!("{}\n{line}", head.replacen("\"n_ctx\":64", "\"n_ctx\":32", 1)), "line 2 is no result"),
        (format!("{head}\n{{\"chunk\":99999999,\"sums\":\"\"}}\n"), "line 2 is no result"),
    ] {
        fs::write(dir.path("x"), &text).unwrap();
        let e = dir.error("--join @x");
        assert!(e.contains(why), "{text:?}: {e}");
    }
    // Another machine's, whose result is another one.
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let sums = line["sums"].as_str().unwrap().replacen("40", "41", 1);
    let check = trine_tools::text::hex(&sha2::Sha256::digest(format!("{head}\n0\n{sums}"))[..4]);
    let line = serde_json::json!({"chunk": 0, "sums": sums, "check": check});
    fs::write(dir.path("x"), format!("{head}\n{line}\n")).unwrap();
    let e = dir.error("--join @a @x");
    assert!(e.contains("different results of chunk 1"), "{e}");
    for (line, why) in [
        ("--from-chunk 100000", "leaves none"),
        ("--from-chunk 1 --kl-divergence-base @new", "not for writing a base file"),
        ("--partial @trilm", "is also"),
        ("--partial /dev/null", "/dev/null"),
    ] {
        let e = dir.error(&format!("{text} {line}"));
        assert!(e.contains(why), "{line}: {e}");
    }
    assert!(!dir.path("new").exists());
}
