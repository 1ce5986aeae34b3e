//! `rquantize` and `rinspect` on any-precision files.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use trine_testkit::{names_in, sha256, trilm};

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs a tool in `dir`; the words are split at spaces, IN is the ternary model: three values to a
/// row, which any table of 8 holds exactly.
fn run(tool: &str, dir: &Path, words: &str) -> Run {
    let path = match tool {
        "rquantize" => env!("CARGO_BIN_EXE_rquantize"),
        _ => env!("CARGO_BIN_EXE_rinspect"),
    };
    let model = trilm();
    let words = words.split_ascii_whitespace();
    let words = words.map(|w| if w == "IN" { model.to_str().unwrap() } else { w });
    let output = Command::new(path).current_dir(dir).args(words).output();
    let output = output.unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn ok(tool: &str, dir: &Path, words: &str) -> Run {
    let run = run(tool, dir, words);
    assert_eq!(run.code, 0, "{words}: {}", run.stderr);
    run
}

/// The error of a run that must fail and leave nothing behind.
fn refused(tool: &str, dir: &Path, words: &str) -> String {
    let before = names_in(dir);
    let run = run(tool, dir, words);
    assert_eq!((run.code, names_in(dir)), (1, before), "{words}: {}", run.stderr);
    let last = run.stderr.lines().last().unwrap();
    let error = last.strip_prefix(&format!("{tool}: error: "));
    error.unwrap_or_else(|| panic!("{}", run.stderr)).to_owned()
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn a_file_of_several_widths_and_one_of_them() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let made = ok("rquantize", dir, "--json IN ap.gguf AP3-5 2");
    let report = json(&made);
    assert_eq!(made.stderr, "");
    let bytes = fs::read(dir.join("ap.gguf")).unwrap();
    assert_eq!(report["target"], "AP3-5");
    assert_eq!(report["file_bytes"], bytes.len());
    assert_eq!(report["sensitivity"], "uniform");
    for width in report["widths"].as_array().unwrap() {
        // nothing is lost but what half precision rounds, which a model in half precision has not
        assert_eq!(width["relative_error"], 0.0, "{width}");
    }
    let shown = json(&ok("rinspect", dir, "--json ap.gguf"));
    let original = json(&ok("rinspect", dir, "--json IN"));
    assert_eq!(shown["total"]["weights"], original["total"]["weights"]);
    assert!(original["total"]["weights"].as_u64().unwrap() > 0);
    let shown = &shown["any_precision"];
    assert_eq!(shown["complete"], true);
    assert_eq!(shown["matrices"], 42);
    assert_eq!(shown["seed_method"], "dp");
    assert_eq!(shown["source_sha256"][0], sha256(&fs::read(trilm()).unwrap()));
    for (width, planned) in [0, 1, 2].map(|i| (&shown["widths"][i], &report["widths"][i])) {
        for key in ["bits", "prefix_bytes", "run_bytes", "run_bits_per_weight"] {
            assert_eq!(width[key], planned[key], "{key}");
        }
    }
    let text = ok("rinspect", dir, "ap.gguf").stdout;
    assert!(text.contains("42 matrices of 4718592 weights, codes of 5 bits over a seed of 3"), "{text}");
    assert!(text.contains("clusters: the best ones; sensitivities: uniform"), "{text}");

    let taken = ok("rquantize", dir, "--width 4 ap.gguf four.gguf").stdout;
    assert!(taken.starts_with("four.gguf: 4 bits, "), "{taken}");
    let four = json(&ok("rinspect", dir, "--json four.gguf"));
    assert_eq!(four["any_precision"]["parent_bits"], 4);
    assert_eq!(four["any_precision"]["widths"][0]["run_bytes"], report["widths"][1]["run_bytes"]);
    // one byte more than three bits need
    let cut = report["widths"][0]["prefix_bytes"].as_u64().unwrap() as usize;
    fs::write(dir.join("cut.gguf"), &bytes[..cut + 1]).unwrap();
    let text = ok("rinspect", dir, "cut.gguf").stdout;
    assert_eq!(text.matches("not in the file").count(), 2, "{text}");
    assert!(text.contains("the file ends early"), "{text}");
    ok("rquantize", dir, "--width 3 cut.gguf three.gguf");
    assert_eq!(
        refused("rquantize", dir, "--width 4 cut.gguf x.gguf"),
        "4 bits are not in the file: it has 3; the rest of it is not there"
    );
    fs::write(dir.join("short.gguf"), &bytes[..cut - 1]).unwrap();
    let error = refused("rquantize", dir, "--width 3 short.gguf x.gguf");
    assert!(error.contains("which every width needs: download more of it"), "{error}");
    let run = run("rinspect", dir, "short.gguf");
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("download more of it"), "{}", run.stderr);
}

#[test]
fn plans_of_any_precision_targets() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let auto = ok("rquantize", dir, "--dry-run IN AP");
    assert_eq!(auto.stderr, "note: 3 to 5 bits: rows have as few as 256 weights to a table\n");
    assert!(auto.stdout.contains("42 matrices of 4718592 weights"), "{}", auto.stdout);
    let plan = json(&ok("rquantize", dir, "--dry-run --json IN AP3-8 --widths 3,6"));
    assert_eq!(plan["parent_bits"], 6);
    let bits = |i: usize| plan["widths"][i]["stored_bits_per_weight"].as_f64().unwrap();
    // 256 and 768 weights to a row; 3 and 6 planes, tables of 8 and 64 entries of 16 bits
    let rows = 42.0 / 7.0 * (256.0 + 128.0 * 2.0 + 256.0 + 768.0 * 2.0 + 256.0);
    let table = |entries: f64| rows * entries * 16.0 / 4_718_592.0;
    assert!((bits(0) - (3.0 + table(8.0))).abs() < 1e-9);
    assert!((bits(1) - (6.0 + table(8.0) + table(64.0))).abs() < 1e-9);
    assert_eq!(plan["tensors"].as_array().unwrap().len(), 56);
    assert_eq!(plan["warnings"].as_array().unwrap().len(), 1);
    assert!(fs::read_dir(dir).unwrap().next().is_none());
}

#[test]
fn options_of_any_precision_targets() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let made = ok("rquantize", dir, "--json IN sq.gguf SQ3 --outliers --compat=7");
    let report = json(&made);
    assert_eq!(report["seed_method"], "kmeans++:7");
    assert!(report["sparse_weights"].as_u64().unwrap() > 1000);
    let shown = json(&ok("rinspect", dir, "--json sq.gguf"));
    let shown = &shown["any_precision"];
    assert_eq!(shown["sparse"]["sensitivity_pct"], 0.05);
    assert_eq!(shown["sparse_weights"], report["sparse_weights"]);
    let text = ok("rinspect", dir, "sq.gguf").stdout;
    assert!(text.contains("clusters: the reference's, random state 7"), "{text}");
    ok("rquantize", dir, "IN g.gguf AP2-3 --row-groups 4 --override-kv general.name=str:x");
    let shown = json(&ok("rinspect", dir, "--json g.gguf"));
    assert_eq!(shown["any_precision"]["row_groups"], 4);
    assert_eq!(shown["shards"][0]["metadata"]["general.name"]["value"], "x");

    let plan = json(&ok("rquantize", dir, "--dry-run --json IN AP6"));
    ok("rquantize", dir, "IN t.gguf AP6 --tables 4");
    let shown = json(&ok("rinspect", dir, "--json t.gguf"));
    assert_eq!(shown["any_precision"]["shared_tables"], 4);
    // 42 matrices with 4 tables of 64 halves, a half and a byte for each row
    let rows = 42.0 / 7.0 * (256.0 + 128.0 * 2.0 + 256.0 + 768.0 * 2.0 + 256.0);
    let bits = 6.0 + 8.0 * (42.0 * 4.0 * 128.0 + 3.0 * rows) / 4_718_592.0;
    let got = shown["any_precision"]["widths"][0]["run_bits_per_weight"].as_f64().unwrap();
    assert!((got - bits).abs() < 1e-9, "{got} {bits}");
    assert!(plan["widths"][0]["run_bits_per_weight"].as_f64().unwrap() > bits + 1.0);
    assert!(ok("rinspect", dir, "t.gguf").stdout.contains("weights, 4 tables for the rows of each, codes of 6 bits"));
    for (options, text) in [
        ("--tables 0", "0 tables cannot be shared, 1 to 256 can"),
        ("--tables 257", "257 tables cannot be shared"),
        ("--tables 4 --outliers", "shared tables cannot be had with --outliers"),
        ("--tables 4 --row-groups 2", "shared tables cannot be had with --row-groups"),
        ("--tables 4 --compat", "shared tables cannot be had with --best-at and --compat"),
    ] {
        let error = refused("rquantize", dir, &format!("IN no.gguf AP4 {options}"));
        assert!(error.contains(text), "{options}: {error}");
        assert!(!dir.join("no.gguf").exists());
    }

    // an importance matrix of the older form, for one tensor
    let name = "blk.0.attn_q.weight";
    let mut dat = 1i32.to_le_bytes().to_vec();
    dat.extend((name.len() as i32).to_le_bytes());
    dat.extend(name.as_bytes());
    dat.extend(2i32.to_le_bytes());
    dat.extend(256i32.to_le_bytes());
    dat.extend((0..256).flat_map(|i| (1.0 + i as f32).to_le_bytes()));
    dat.extend(2i32.to_le_bytes());
    dat.extend(4i32.to_le_bytes());
    dat.extend(b"text");
    fs::write(dir.join("i.dat"), &dat).unwrap();
    let made = ok("rquantize", dir, "--imatrix i.dat IN i.gguf AP3");
    assert!(made.stderr.contains("no weights for 41 of 42 tensors"), "{}", made.stderr);
    let shown = json(&ok("rinspect", dir, "--json i.gguf"));
    let shown = &shown["any_precision"];
    assert_eq!(shown["sensitivity"], "imatrix");
    assert_eq!(shown["calibration"]["dataset"], "text");
    assert_eq!(shown["calibration"]["samples"], 2);
    assert_eq!(shown["calibration"]["seq_len"], Value::Null);
    assert_eq!(shown["calibration"]["sha256"], sha256(&dat));
}

#[test]
fn requests_that_cannot_be_honoured() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let tool = "rquantize";
    for (words, want) in [
        ("IN o.gguf AP3-9", "unknown type 'AP3-9'; did you mean AP3-8?"),
        ("IN o.gguf SQ3-4", "unknown type 'SQ3-4'"),
        ("IN o.gguf AP3 --pure", "--pure has no meaning for AP3"),
        ("IN o.gguf AP3 --tensor-type x=q8_0", "--tensor-type has no meaning for AP3"),
        ("IN o.gguf AP3 --token-embedding-type q9_0", "--token-embedding-type"),
        ("IN o.gguf AP3 --keep-split", "--keep-split has no meaning"),
        ("IN o.gguf AP3 --verify", "--verify is for weights that do not change"),
        ("IN o.gguf Q4_0 --widths 3,4", "--widths is for any-precision targets"),
        ("IN o.gguf Q4_0 --compat", "--compat is for any-precision targets"),
        ("IN o.gguf AP3-5 --widths 3,7", "[3, 7] are not ascending widths of 3 to 5"),
        ("IN o.gguf AP3-5 --seed-bits 6", "6 to 5 bits"),
        ("IN o.gguf AP3-5 --row-groups 3", "3 groups do not divide the 256 columns"),
        ("IN o.gguf AP3 --outlier-magnitude 51", "--outlier-magnitude: 51 is no share"),
        ("IN o.gguf AP3 --sensitivity no.safetensors", "--sensitivity: cannot read 'no.safetensors'"),
        ("IN o.gguf AP3 --imatrix no.dat", "--imatrix 'no.dat'"),
        ("IN o.gguf AP3 --override-kv x", "--override-kv"),
        ("--width 4 IN o.gguf", "the model is not any-precision"),
        ("--width 4 IN o.gguf Q4_0", "--width takes no type"),
        ("--width 4 --imatrix i.dat IN o.gguf", "--imatrix has no meaning beside --width"),
        ("--width 4 IN o.gguf --pure", "--pure has no meaning beside --width"),
        ("--width 4 --dry-run IN o.gguf", "--width knows neither --dry-run"),
    ] {
        let error = refused(tool, dir, words);
        assert!(error.contains(want), "{words}: {error}");
    }
    ok(tool, dir, "IN ap.gguf AP3");
    for words in ["ap.gguf o.gguf AP3", "ap.gguf o.gguf Q4_0", "ap.gguf o.gguf COPY"] {
        let error = refused(tool, dir, words);
        assert!(error.contains("take one of its widths with --width"), "{words}: {error}");
    }
    let error = refused(tool, dir, "--width 3 ap.gguf ap.gguf");
    assert!(error.contains("it is also the input"), "{error}");
    let both = run(tool, dir, "--imatrix i.dat --sensitivity s IN o.gguf AP3");
    assert_eq!(both.code, 2, "{}", both.stderr);
    let alone = run(tool, dir, "--sens-is-gradient IN o.gguf AP3");
    assert_eq!(alone.code, 2, "{}", alone.stderr);
}
