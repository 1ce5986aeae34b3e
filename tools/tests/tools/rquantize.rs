//! `rquantize` against the SHA-256 of files that llama-quantize wrote, and everything it refuses.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value as Json;
use tempfile::TempDir;
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, Gguf, Limits, Metadata, Value};
use trine_formats::types::TypeId;
use trine_testkit::{bitnet, gguf, testdata, tool};

/// Runs in `dir`; the words are split at spaces.
fn rquantize(dir: &Path, words: &str) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    command.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap()
}

/// The standard output of a run that must succeed.
fn ok(dir: &Path, words: &str) -> String {
    tool::stdout(rquantize(dir, words))
}

/// The last line on standard error of a run that must fail, and all lines before it. No file may be
/// left behind.
fn refused(dir: &Path, words: &str) -> (String, Vec<String>) {
    let before = listing(dir);
    let refusal = tool::refusal("rquantize", rquantize(dir, words));
    assert_eq!(listing(dir), before, "{words}");
    let message = refusal.error;
    // an error that is its own cause would be printed twice
    let half = message.len() / 2;
    assert_ne!(message.get(..half - 1), message.get(half + 1..), "{message}");
    (message, refusal.before)
}

fn listing(dir: &Path) -> Vec<(String, u64)> {
    let entry = |e: std::io::Result<fs::DirEntry>| {
        let e = e.unwrap();
        (e.file_name().to_string_lossy().into_owned(), e.metadata().unwrap().len())
    };
    let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(entry).collect();
    all.sort();
    all
}

fn sha256(path: &Path) -> String {
    trine_testkit::sha256(&fs::read(path).unwrap())
}

/// A directory with the bundled models and the importance matrix.
fn bundle() -> TempDir {
    let dir = TempDir::new().unwrap();
    let copy = |from: &str| {
        let from = testdata(from);
        fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
    };
    copy("models/trilm-wt-5.8m-F16.gguf");
    copy("imatrix/trilm-F16.imatrix.gguf");
    copy("imatrix/trilm-F16.imatrix.dat");
    fs::write(dir.path().join("bitnet-wt-5.8m-F16.gguf"), bitnet()).unwrap();
    dir
}

const TRILM: &str = "trilm-wt-5.8m-F16.gguf";

/// Every line of the reference's list whose model is bundled.
#[test]
fn files_equal_llama_quantize() {
    let dir = bundle();
    let list = fs::read_to_string(testdata("golden/quantize.sha256")).unwrap();
    let mut lines = 0;
    for line in list.lines().filter(|l| !l.starts_with('#')) {
        let mut fields = line.splitn(4, "  ");
        let (want, source, ty) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        let options = fields.next().unwrap_or_default();
        if !dir.path().join(source).exists() {
            continue;
        }
        // the embeddings, which --pure makes ternary too, are not
        let force = if ty == "TQ2_0" && options == "--pure" { "--force" } else { "" };
        ok(dir.path(), &format!("{options} {force} {source} out.gguf {ty} 2"));
        assert_eq!(sha256(&dir.path().join("out.gguf")), want, "{line}");
        lines += 1;
    }
    assert!(lines >= 60, "{lines}");
}

#[test]
fn threads_and_sources_do_not_change_a_bit() {
    let dir = bundle();
    let at = |name: &str| sha256(&dir.path().join(name));
    ok(dir.path(), &format!("{TRILM} a.gguf Q4_K_M 1"));
    ok(dir.path(), &format!("{TRILM} b.gguf q4_k 7"));
    assert_eq!(at("a.gguf"), at("b.gguf"));
    // F32 holds the same values as F16
    ok(dir.path(), &format!("{TRILM} f32.gguf F32"));
    ok(dir.path(), "f32.gguf c.gguf 15");
    assert_eq!(at("a.gguf"), at("c.gguf"));
    // without an output name the file goes beside the input
    ok(dir.path(), "f32.gguf Q4_K_M 2");
    assert_eq!(at("a.gguf"), at("ggml-model-Q4_K_M.gguf"));
}

/// The bytes are those of the definitions, which is what `scalar` stands for; `files_equal_llama_quantize`
/// runs on the best instruction set.
#[test]
fn instruction_sets_do_not_change_a_bit() {
    let dir = bundle();
    let run = |isa: &str, out: &str, words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rquantize"));
        let mut args: Vec<&str> = words.split_ascii_whitespace().collect();
        args.insert(args.len() - 1, out);
        command.current_dir(dir.path()).env("TRINE_ISA", isa);
        command.args(args).output().unwrap()
    };
    let bytes = |name: &str| fs::read(dir.path().join(name)).unwrap();
    for words in ["TQ2_0", "Q2_K", "Q4_K_M", "--imatrix trilm-F16.imatrix.gguf Q3_K_M"] {
        let (ty, options) = match words.rsplit_once(' ') {
            Some((options, ty)) => (ty, options),
            None => (words, ""),
        };
        let words = format!("{options} {TRILM} {ty}");
        assert!(run("scalar", "scalar.gguf", &words).status.success());
        for isa in ["avx2", "avx512"] {
            let output = run(isa, "vectors.gguf", &words);
            let stderr = String::from_utf8(output.stderr).unwrap();
            if stderr.contains("this processor has only") {
                continue;
            }
            assert!(output.status.success(), "{isa} {words}: {stderr}");
            assert!(bytes("vectors.gguf") == bytes("scalar.gguf"), "{isa} {words}");
        }
    }
    let output = run("sse9", "no.gguf", &format!("{TRILM} TQ2_0"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("TRINE_ISA"), "{stderr}");
}

#[test]
fn ternary_is_proved() {
    let dir = bundle();
    let text = ok(dir.path(), &format!("{TRILM} t.gguf TQ2_0"));
    assert!(
        text.contains("42 ternary tensors, 4718592 weights: digits lossless") && text.contains("scales exact"),
        "{text}"
    );
    // back to floats and to the other type: still ternary
    ok(dir.path(), "--allow-requantize t.gguf back.gguf F16");
    let text = ok(dir.path(), "--allow-requantize --tensor-type token_embd=f16 t.gguf t1.gguf TQ1_0");
    assert!(text.contains("42 matrices moved, 4718592 weights: every one is the same"), "{text}");
    let json = ok(dir.path(), "--json back.gguf t2.gguf TQ2_0");
    let json: Json = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ternary"]["lossless_digits"], true);
    assert_eq!(json["ternary"]["tensors"].as_array().unwrap().len(), 42);
}

#[test]
fn ternary_types_for_other_weights_need_force() {
    let dir = bundle();
    let words = format!("--pure {TRILM} out.gguf TQ2_0");
    let (message, details) = refused(dir.path(), &words);
    assert!(message.starts_with("1 of 43 tensors made ternary are not ternary"), "{message}");
    assert!(message.contains("% of weights changed") && message.contains("--force"), "{message}");
    assert_eq!(details.len(), 1);
    assert!(details[0].contains("token_embd.weight: 99.6"), "{details:?}");
    let text = ok(dir.path(), &format!("--force {words}"));
    assert!(text.contains("ternary: 1 of 43 tensors"), "{text}");
}

/// A small llama with a matrix of `columns`, all values `fill`.
fn small_model(path: &Path, columns: u64, fill: f32, extra: &[(&str, Value)]) {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    for (key, value) in
        [("context_length", 64), ("embedding_length", columns as u32), ("block_count", 1), ("attention.head_count", 1)]
    {
        meta.set(&format!("llama.{key}"), Value::U32(value));
    }
    meta.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    meta.set("flags", Value::Array(Array::Bool(vec![true, false])));
    for (key, value) in extra {
        meta.set(key, value.clone());
    }
    let tensors = [
        NewTensor::new("token_embd.weight", [columns, 4], TypeId::F32),
        NewTensor::new("blk.0.attn_norm.weight", [columns], TypeId::F32),
        NewTensor::new("blk.0.attn_q.weight", [columns, 3], TypeId::F32),
        NewTensor::new("blk.0.ffn_down.weight", [256, columns], TypeId::F32),
    ];
    let data = |t: &NewTensor| -> Vec<u8> {
        let n: u64 = t.shape.iter().product();
        let value = |i: u64| {
            if t.name.contains("attn_q") { fill } else { (i % 7) as f32 * 0.25 }
        };
        (0..n).flat_map(|i| value(i).to_le_bytes()).collect()
    };
    let tensors = tensors.map(|t| (t.clone(), data(&t)));
    gguf::write(path, &meta, &tensors);
}

#[test]
fn misfits_are_listed_and_fallback_takes_the_replacement() {
    let dir = TempDir::new().unwrap();
    small_model(&dir.path().join("in.gguf"), 96, 0.5, &[]);
    let (message, details) = refused(dir.path(), "in.gguf out.gguf TQ2_0");
    assert!(
        message.contains("blk.0.attn_q.weight: 96 columns, tq2_0 needs a multiple of 256")
            && message.contains("--fallback"),
        "{message}"
    );
    assert!(details.is_empty());
    let (message, details) = refused(dir.path(), "--pure in.gguf out.gguf TQ1_0");
    assert!(message.starts_with("2 tensors whose rows are not whole blocks"), "{message}");
    assert_eq!(details.len(), 3);
    assert_eq!(details[0], "TQ1_0 does not fit 2 tensors of this model:");
    assert!(details[2].contains("blk.0.attn_q.weight: 96 columns"), "{details:?}");
    // Of K-quants the replacement is as good or better, so it is taken and told.
    let text = ok(dir.path(), "--pure in.gguf out.gguf Q4_K_M");
    assert!(
        text.contains("fallback: 2 tensors with rows of 96: q5_0 instead of q4_K") && text.contains("2 q5_0"),
        "{text}"
    );
    let text = ok(dir.path(), "--pure --fallback --force in.gguf out.gguf TQ2_0");
    assert!(text.contains("96: q4_0 instead of tq2_0"), "{text}");
    // llama.cpp has no replacement for this one
    let (message, _) = refused(dir.path(), "--fallback in.gguf no.gguf Q1_0");
    assert!(message.contains("without a replacement"), "{message}");
}

#[test]
fn values_that_are_not_finite_are_found() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    small_model(&at("nan.gguf"), 256, f32::NAN, &[]);
    let (message, _) = refused(dir.path(), "nan.gguf out.gguf Q4_0");
    assert!(message.contains("blk.0.attn_q.weight: the input holds a NaN in block 0"), "{message}");
    refused(dir.path(), "nan.gguf out.gguf COPY");
    small_model(&at("big.gguf"), 256, 1e9, &[]);
    let (message, _) = refused(dir.path(), "big.gguf out.gguf Q4_0");
    assert!(message.contains("blk.0.attn_q.weight: an infinity in block 0 of the result"), "{message}");
    // 8 bits of exponent hold it
    ok(dir.path(), "big.gguf out.gguf BF16");
}

#[test]
fn an_existing_target_survives_a_failure() {
    let dir = TempDir::new().unwrap();
    small_model(&dir.path().join("in.gguf"), 256, 1e9, &[]);
    fs::write(dir.path().join("out.gguf"), "precious").unwrap();
    refused(dir.path(), "in.gguf out.gguf F16");
    assert_eq!(fs::read(dir.path().join("out.gguf")).unwrap(), b"precious");
    let (message, _) = refused(dir.path(), "in.gguf ./in.gguf BF16");
    assert!(message.contains("it is also the input"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_link_to_the_input_is_the_input() {
    let dir = TempDir::new().unwrap();
    small_model(&dir.path().join("in.gguf"), 256, 0.5, &[]);
    fs::hard_link(dir.path().join("in.gguf"), dir.path().join("hard.gguf")).unwrap();
    std::os::unix::fs::symlink("in.gguf", dir.path().join("soft.gguf")).unwrap();
    for target in ["hard.gguf", "soft.gguf"] {
        let (message, _) = refused(dir.path(), &format!("in.gguf {target} Q8_0"));
        assert!(message.contains("it is also the input"), "{message}");
    }
}

#[test]
fn wrong_requests_are_told_in_one_line() {
    let dir = bundle();
    small_model(&dir.path().join("small.gguf"), 256, 0.5, &[]);
    ok(dir.path(), "small.gguf q8.gguf Q8_0");
    fs::write(dir.path().join("not.imatrix"), "text").unwrap();
    for (words, parts) in [
        ("small.gguf o.gguf Q4KM", &["unknown type 'Q4KM'; did you mean Q4_K_M?", "TQ1_0"][..]),
        ("small.gguf o.gguf Q4_0 x", &["'x' is not a number of threads"]),
        ("small.gguf o.gguf IQ2_XS", &["needs importance weights", "iq2_xs", "--imatrix"]),
        ("q8.gguf o.gguf Q4_0", &["quantized already", "--allow-requantize"]),
        ("small.gguf o.gguf Q2_K_S", &["importance", "--imatrix"]),
        ("--imatrix none small.gguf o.gguf Q4_0", &["--imatrix 'none'"]),
        ("--imatrix not.imatrix small.gguf o.gguf Q4_0", &["--imatrix 'not.imatrix'"]),
        ("--override-kv a small.gguf o.gguf Q4_0", &["--override-kv", "KEY=int:N"]),
        ("--override-kv a=bool:7 small.gguf o.gguf Q4_0", &["'7' is not true or false"]),
        ("--tensor-type q8_0 small.gguf o.gguf Q4_0", &["--tensor-type", "PATTERN=TYPE"]),
        ("--tensor-type a=q9_0 small.gguf o.gguf Q4_0", &["unknown tensor type 'q9_0'"]),
        ("--tensor-type attn=q8_1 small.gguf o.gguf Q4_0", &["does not write", "q8_1"]),
        ("--output-tensor-type x small.gguf o.gguf Q4_0", &["--output-tensor-type"]),
        ("--prune-layers 7 small.gguf o.gguf Q4_0", &["no layer 7"]),
        ("none.gguf o.gguf Q4_0", &["'none.gguf' does not exist"]),
        ("small.gguf nowhere/o.gguf Q4_0", &["does not exist"]),
        ("small.gguf . Q4_0", &["it is a directory"]),
    ] {
        let (message, _) = refused(dir.path(), words);
        for part in parts {
            assert!(message.contains(part), "{words}: {message}");
        }
    }
}

#[test]
fn importance_of_another_model_is_refused() {
    let dir = bundle();
    small_model(&dir.path().join("small.gguf"), 512, 0.5, &[]);
    let words = "--imatrix trilm-F16.imatrix.gguf small.gguf o.gguf Q4_0";
    let (message, _) = refused(dir.path(), words);
    assert!(message.contains("importance weights of another size"), "{message}");
    ok(dir.path(), &format!("--exclude-weights blk.0 {words}"));
}

#[test]
fn the_older_form_of_a_matrix_gives_the_same_weights() {
    let dir = bundle();
    let data = |name: &str| {
        let bytes = fs::read(dir.path().join(name)).unwrap();
        let header = Gguf::parse(&bytes, &Limits::default()).unwrap();
        bytes[header.data_offset as usize..].to_vec()
    };
    for form in ["gguf", "dat"] {
        ok(dir.path(), &format!("--imatrix trilm-F16.imatrix.{form} {TRILM} {form}.gguf Q2_K_S"));
    }
    // means divided by the calls again are not always the same floats
    let same = data("gguf.gguf").iter().zip(&data("dat.gguf")).filter(|(a, b)| a == b).count();
    assert!(same * 1000 > data("gguf.gguf").len() * 999);
}

#[test]
fn metadata_goes_where_llama_quantize_puts_it() {
    let dir = TempDir::new().unwrap();
    let extra = [("general.file_type", Value::U32(0)), ("last", Value::U8(1))];
    small_model(&dir.path().join("in.gguf"), 256, 0.5, &extra);
    ok(dir.path(), "--override-kv flags=str:none --override-kv new=float:0.1 in.gguf out.gguf Q8_0");
    let bytes = fs::read(dir.path().join("out.gguf")).unwrap();
    let header = Gguf::parse(&bytes, &Limits::default()).unwrap();
    let keys: Vec<&str> = header.meta.iter().map(|(k, _)| k).collect();
    let tail = ["last", "general.quantization_version", "general.file_type", "flags", "new"];
    assert_eq!(keys[keys.len() - 5..], tail);
    assert_eq!(header.meta.get("general.file_type"), Some(&Value::U32(7)));
    assert_eq!(header.meta.get("new"), Some(&Value::F32(0.1)));
    let names: Vec<&str> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    let order = ["token_embd.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight"];
    assert_eq!(names, order);
}

#[test]
fn shards_are_kept_or_joined() {
    let dir = TempDir::new().unwrap();
    for no in 1..=3 {
        let name = format!("imatrix-0000{no}-of-00003.gguf");
        fs::copy(testdata("gguf").join(&name), dir.path().join(&name)).unwrap();
    }
    let input = "imatrix-00001-of-00003.gguf";
    ok(dir.path(), &format!("--keep-split {input} kept.gguf COPY"));
    ok(dir.path(), &format!("{input} joined.gguf COPY"));
    let header = |name: &str| Gguf::parse(&fs::read(dir.path().join(name)).unwrap(), &Limits::default()).unwrap();
    let mut tensors = 0;
    for no in 1..=3u16 {
        let shard = header(&format!("kept-0000{no}-of-00003.gguf"));
        assert_eq!(shard.meta.get("split.no"), Some(&Value::U16(no - 1)));
        assert_eq!(shard.meta.get("split.count"), Some(&Value::U16(3)));
        tensors += shard.tensors.len();
    }
    let joined = header("joined.gguf");
    assert_eq!(joined.tensors.len(), tensors);
    assert!(joined.meta.get("split.count").is_none());
    ok(dir.path(), "kept-00002-of-00003.gguf again.gguf COPY");
    assert_eq!(sha256(&dir.path().join("again.gguf")), sha256(&dir.path().join("joined.gguf")));
}

#[test]
fn dry_run_tells_what_the_run_does_and_writes_nothing() {
    let dir = bundle();
    let before = listing(dir.path());
    let json = ok(dir.path(), &format!("--dry-run --json {TRILM} Q3_K_M"));
    let text = ok(dir.path(), &format!("--dry-run {TRILM} Q3_K_M"));
    assert_eq!(listing(dir.path()), before);
    let plan: Json = serde_json::from_str(&json).unwrap();
    // llama-quantize --dry-run: "quant size = 3.00 MiB (4.36 BPW)"
    assert!((plan["bytes"].as_f64().unwrap() / f64::from(1 << 20) - 3.0).abs() < 0.005);
    assert!((plan["bits_per_weight"].as_f64().unwrap() - 4.36).abs() < 0.005);
    let tensors = plan["tensors"].as_array().unwrap();
    assert_eq!(text.lines().count(), 1 + tensors.len() + 3);
    let programs = ["llama.cpp", "ik_llama.cpp", "bitnet.cpp", "trine"];
    assert_eq!(plan["loaded_by"], serde_json::json!(programs));
    let line = format!("loaded by: {}, where they know", programs.join(", "));
    assert!(text.contains(&line), "{text}");
    assert_eq!(plan["schema"], "rquantize.plan/1");
    let provenance = &plan["provenance"];
    assert_eq!(provenance["tool"], "rquantize");
    let hash = sha256(&dir.path().join(TRILM));
    assert_eq!(provenance["models"][0]["sha256"], hash.as_str());
    ok(dir.path(), &format!("{TRILM} out.gguf Q3_K_M"));
    let bytes = fs::read(dir.path().join("out.gguf")).unwrap();
    let header = Gguf::parse(&bytes, &Limits::default()).unwrap();
    for (planned, written) in tensors.iter().zip(&header.tensors) {
        assert_eq!(planned["name"], written.name.as_str());
        assert_eq!(planned["to"], written.ty.to_string());
        assert_eq!(planned["bytes"], written.bytes);
    }
    // what the run would refuse, a dry run refuses too, after the table
    let output = rquantize(dir.path(), &format!("--dry-run {TRILM} Q2_K_S"));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("q2_K"));
}

#[test]
fn alignments_that_llama_quantize_gets_wrong_are_refused() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    small_model(&at("a64.gguf"), 96, 0.5, &[("general.alignment", Value::U32(64))]);
    let (message, _) = refused(dir.path(), "a64.gguf out.gguf Q8_0");
    assert!(message.contains("--override-kv general.alignment=int:32"), "{message}");
    ok(dir.path(), "--override-kv general.alignment=int:32 a64.gguf out.gguf Q8_0");
    let bytes = fs::read(at("out.gguf")).unwrap();
    assert_eq!(Gguf::parse(&bytes, &Limits::default()).unwrap().alignment, 32);
}
