//! `rquantize --gptq`: files of rounding with error feedback, and what it refuses.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::OnceLock;

use assert_cmd::Command;
use tempfile::TempDir;
use trine_formats::gguf::{Gguf, Value};
use trine_formats::types::TypeId;
use trine_testkit::{gguf, is_long, names_in, testdata, tool};

const MODEL: &str = "trilm-wt-5.8m-F16.gguf";

fn rimatrix(dir: &Path, words: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rimatrix"));
    let words = words.split_ascii_whitespace();
    tool::stdout(command.current_dir(dir).args(words).output().unwrap());
}

/// A folder with the model and its Hessians.
fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    for from in [&format!("models/{MODEL}"), "imatrix/calib.txt"] {
        let from = testdata(from);
        fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
    }
    static HESSIANS: OnceLock<Vec<u8>> = OnceLock::new();
    let hessians = HESSIANS.get_or_init(|| {
        let words = "-f calib.txt -c 128 --chunks 4 --hessian h.gguf -m";
        rimatrix(dir.path(), &format!("{words} {MODEL}"));
        file(dir.path(), "h.gguf")
    });
    fs::write(dir.path().join("h.gguf"), hessians).unwrap();
    dir
}

pub(super) fn command(dir: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    command.current_dir(dir).args(words.split_ascii_whitespace());
    command
}

pub(super) fn run(dir: &Path, words: &str) -> Output {
    command(dir, words).output().unwrap()
}

pub(super) fn file(dir: &Path, name: &str) -> Vec<u8> {
    fs::read(dir.join(name)).unwrap()
}

/// The data of a tensor.
fn data<'a>(file: &'a [u8], gguf: &Gguf, name: &str) -> (TypeId, &'a [u8]) {
    let tensor = gguf.tensors.iter().find(|t| t.name == name).unwrap();
    let start = (gguf.data_offset + tensor.offset) as usize;
    (tensor.ty, &file[start..start + tensor.bytes as usize])
}

#[test]
fn files_are_ordinary_ones_with_other_codes() {
    let dir = folder();
    let dir = dir.path();
    tool::stdout(run(dir, &format!("{MODEL} plain.gguf Q4_0")));
    let out = tool::stdout(run(dir, &format!("--gptq h.gguf {MODEL} fed.gguf Q4_0")));
    let line = "gptq: 42 tensors rounded with error feedback; without, because it has no Hessian: token_embd.weight\n";
    assert!(out.contains(line), "{out}");
    let (plain, fed) = (file(dir, "plain.gguf"), file(dir, "fed.gguf"));
    let (before, after) = (gguf::header(&plain), gguf::header(&fed));
    assert_eq!(after.meta.get_u32("general.file_type").unwrap(), Some(2));
    for (key, want) in [
        ("gptq.version", Value::U32(1)),
        ("gptq.group_size", Value::U32(32)),
        ("gptq.damp", Value::F32(0.01)),
        ("gptq.clip_grid", Value::U32(152)),
        ("gptq.act_order", Value::Bool(true)),
        ("gptq.compat", Value::Bool(false)),
        ("gptq.calibration.tokens", Value::U64(512)),
        ("gptq.calibration.sequences", Value::U32(4)),
    ] {
        assert_eq!(after.meta.get(key), Some(&want), "{key}");
    }
    let text = |key| after.meta.get_str(key).unwrap().unwrap().to_owned();
    let hash = |name: &str| trine_testkit::sha256(&file(dir, name));
    assert_eq!(text("gptq.calibration.sha256"), hash("calib.txt"));
    assert_eq!(text("gptq.source_sha256"), hash(MODEL));
    assert_eq!(before.meta.get("gptq.version"), None);
    let mut changed = 0;
    for tensor in &before.tensors {
        let (old, new) = (data(&plain, &before, &tensor.name), data(&fed, &after, &tensor.name));
        assert_eq!(old.0, new.0, "{}", tensor.name);
        changed += usize::from(old.1 != new.1);
        let is_fed = tensor.name.starts_with("blk.") && tensor.shape.len() == 2;
        assert_eq!(old.1 != new.1, is_fed, "{}", tensor.name);
    }
    assert_eq!(changed, 42);
}

#[test]
fn threads_and_instruction_sets_change_no_byte() {
    let dir = folder();
    let dir = dir.path();
    let ways = [
        ("--group 128", "Q4_0"),
        ("", "Q4_K_M"),
        ("--sparse 2:4", "Q4_0"),
        ("", "AP3-6"),
        (
            "--pure --token-embedding-type q8_0 --tensor-type blk.0.ffn_down=iq2_xxs --tensor-type blk.0.attn_v=iq1_m --tensor-type blk.1.attn_q=iq3_s --tensor-type ffn_up=iq4_ks --tensor-type ffn_gate=iq2_kl",
            "Q4_0",
        ),
        ("--gptq-compat", "Q4_0"),
        ("", "Q8_0"),
        ("--pure --token-embedding-type q8_0", "IQ4_NL"),
        ("--tensor-type ffn_down=q5_1 --output-tensor-type q6_K", "Q5_0"),
    ];
    for (words, ty) in &ways[..if is_long() { ways.len() } else { 5 }] {
        let words = format!("--gptq h.gguf {words} {MODEL}");
        tool::stdout(run(dir, &format!("{words} one.gguf {ty} 1")));
        tool::stdout(run(dir, &format!("{words} many.gguf {ty} 5")));
        let mut scalar = command(dir, &format!("{words} scalar.gguf {ty} 2"));
        tool::stdout(scalar.env("TRINE_ISA", "scalar").output().unwrap());
        let one = file(dir, "one.gguf");
        assert!(one == file(dir, "many.gguf"), "{words}");
        assert!(one == file(dir, "scalar.gguf"), "{words}");
        if words.contains("128") {
            let gguf = gguf::header(&one);
            let (_, blocks) = data(&one, &gguf, "blk.2.ffn_up.weight");
            for group in blocks.chunks(4 * 18) {
                assert!(group.chunks(18).all(|b| b[..2] == group[..2]));
            }
        }
    }
}

/// Codes of a block of Q4_0, in the order of the columns.
fn codes(block: &[u8]) -> Vec<u8> {
    let halves = [0, 4].map(|shift| block[2..].iter().map(move |b| b >> shift & 15));
    halves.into_iter().flatten().collect()
}

#[test]
fn two_of_four_weights_are_zero_and_the_file_says_so() {
    let dir = folder();
    let dir = dir.path();
    let words = format!("--gptq h.gguf --sparse 2:4 {MODEL} sparse.gguf Q4_0");
    tool::stdout(run(dir, &words));
    let bytes = file(dir, "sparse.gguf");
    let gguf = gguf::header(&bytes);
    let names = trine_formats::pruned::read(&gguf.meta).unwrap();
    assert_eq!(names.len(), 42);
    for name in &names {
        let (ty, blocks) = data(&bytes, &gguf, name);
        assert_eq!(ty, TypeId::Q4_0);
        for block in blocks.chunks(18) {
            for four in codes(block).chunks(4) {
                let kept = four.iter().filter(|&&code| code != 8).count();
                assert!(kept <= 2, "{name}");
            }
        }
    }
    // Copies are what they were, and what is rounded anew is not.
    tool::stdout(run(dir, "sparse.gguf copy.gguf COPY"));
    tool::stdout(run(dir, "--allow-requantize --tensor-type attn_q=q4_0 sparse.gguf other.gguf Q8_0"));
    let read = |name: &str| {
        let bytes = file(dir, name);
        trine_formats::pruned::read(&gguf::header(&bytes).meta).unwrap()
    };
    assert_eq!(read("copy.gguf"), names);
    let left = read("other.gguf");
    assert_eq!(left.len(), 6);
    assert!(left.iter().all(|name| name.ends_with("attn_q.weight")), "{left:?}");
}

#[test]
fn any_precision_files_are_made_with_feedback_too() {
    let dir = folder();
    let dir = dir.path();
    let words = format!("--json --gptq h.gguf {MODEL} fed.gguf AP2-4");
    let out = tool::stdout(run(dir, &words));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["sensitivity"], "hessian");
    let bytes = file(dir, "fed.gguf");
    let meta = gguf::header(&bytes).meta;
    let text = |key| meta.get_str(key).unwrap().unwrap().to_owned();
    assert_eq!(text("anyprec.sensitivity"), "hessian");
    assert_eq!(text("anyprec.calibration.dataset"), "calib.txt");
    assert_eq!(meta.get_u32("anyprec.calibration.samples").unwrap(), Some(4));
    // Three values to a row are what four centroids can be: nothing is left to feed back.
    let worst = json["widths"].as_array().unwrap().iter().map(|w| w["relative_error"].as_f64().unwrap());
    assert!(worst.fold(0.0, f64::max) < 1e-6, "{json}");
    let plan = tool::stdout(run(dir, &format!("--dry-run --gptq h.gguf {MODEL} AP2-4")));
    assert!(plan.contains("sensitivities: hessian"), "{plan}");
}

/// A folder with a small mixture of experts and the Hessians of some of the text.
fn with_mixture(chunks: u32) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("moe.gguf"), super::rimatrix::mixture()).unwrap();
    fs::copy(testdata("imatrix/calib.txt"), dir.path().join("calib.txt")).unwrap();
    rimatrix(dir.path(), &format!("-f calib.txt -c 64 --chunks {chunks} --hessian h.gguf -m moe.gguf"));
    dir
}

/// The blocks of one of the 24 experts.
fn expert<'a>(bytes: &'a [u8], gguf: &Gguf, name: &str, expert: usize) -> &'a [u8] {
    let (_, data) = data(bytes, gguf, name);
    let each = data.len() / 24;
    &data[expert * each..][..each]
}

#[test]
fn experts_are_rounded_by_their_own_tokens() {
    let dir = with_mixture(8);
    let dir = dir.path();
    let words = "--pure --gptq h.gguf moe.gguf";
    let out = tool::stdout(run(dir, &format!("{words} one.gguf Q4_0 1")));
    assert!(out.contains("gptq: 14 tensors rounded with error feedback"), "{out}");
    let one = file(dir, "one.gguf");
    tool::stdout(run(dir, &format!("{words} many.gguf Q4_0 3")));
    assert!(one == file(dir, "many.gguf"));
    let mut scalar = command(dir, &format!("{words} scalar.gguf Q4_0 2"));
    tool::stdout(scalar.env("TRINE_ISA", "scalar").output().unwrap());
    assert!(one == file(dir, "scalar.gguf"));
    // The Hessian of one expert decides its blocks and no others, unless it lends its tokens to those that are short.
    let mut hessians = file(dir, "h.gguf");
    let gguf = gguf::header(&hessians);
    let header = trine_formats::hessian::Hessians::parse(&gguf.meta, &gguf.tensors).unwrap();
    let name = "blk.1.ffn_down_exps.weight";
    let reads = header.weights[name];
    let input = reads.first + 7;
    let start = (gguf.data_offset + gguf.tensors[input].offset) as usize;
    // As if its first column had met values four times as large.
    let scaled = |row: usize, column: usize| [row, column].iter().filter(|i| **i == 0).count();
    let mut at = start;
    for row in 0..header.inputs[input].columns as usize {
        for column in 0..=row {
            let value = f64::from_le_bytes(hessians[at..at + 8].try_into().unwrap());
            let value = value * [1.0, 4.0, 16.0][scaled(row, column)];
            hessians[at..at + 8].copy_from_slice(&value.to_le_bytes());
            at += 8;
        }
    }
    fs::write(dir.join("changed.gguf"), &hessians).unwrap();
    tool::stdout(run(dir, "--pure --gptq changed.gguf moe.gguf other.gguf Q4_0"));
    let other = file(dir, "other.gguf");
    let (before, after) = (gguf::header(&one), gguf::header(&other));
    let short: Vec<usize> = (0..24).filter(|e| header.tokens_of(reads.first + e) < 64).collect();
    for number in 0..24 {
        let same = expert(&one, &before, name, number) == expert(&other, &after, name, number);
        assert_eq!(same, number != 7 && !short.contains(&number), "expert {number}, short ones {short:?}");
    }
}

#[test]
fn experts_with_few_tokens_have_the_mean_of_the_others() {
    let dir = with_mixture(1);
    let dir = dir.path();
    let out = tool::stdout(run(dir, "--pure --gptq h.gguf moe.gguf o.gguf Q4_0"));
    let told = "inputs of experts saw fewer tokens than they have columns";
    assert!(out.contains(told), "{out}");
    let json = tool::stdout(run(dir, "--json --pure --gptq h.gguf moe.gguf o.gguf Q4_0"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // The gates and the second projections of two layers.
    assert_eq!(json["gptq"]["experts"], 2 * 2 * 24);
    let filled = json["gptq"]["experts_filled"].as_u64().unwrap();
    assert!(filled > 48, "{json}");
    // None of a layer's experts saw a token: there is no mean.
    let bytes = file(dir, "h.gguf");
    let gguf = gguf::header(&bytes);
    let mut header = trine_formats::hessian::Hessians::parse(&gguf.meta, &gguf.tensors).unwrap();
    header.inputs.iter_mut().filter_map(|input| input.expert.as_mut()).for_each(|expert| expert.tokens = 0);
    let sums: Vec<Vec<f64>> = header.inputs.iter().map(|i| vec![0.0; i.elements().unwrap() as usize]).collect();
    let mut empty = Vec::new();
    header.write(&header.layout().unwrap(), &sums, &mut empty).unwrap();
    fs::write(dir.join("empty.gguf"), empty).unwrap();
    // Another model has as many columns and fewer experts.
    let mut fewer = header.clone();
    for reads in fewer.weights.values_mut().filter(|reads| reads.experts > 0) {
        reads.experts = 23;
    }
    let mut other = Vec::new();
    fewer.write(&fewer.layout().unwrap(), &sums, &mut other).unwrap();
    fs::write(dir.join("fewer.gguf"), other).unwrap();
    let mut nan = bytes.clone();
    let input = header.weights["blk.1.ffn_up_exps.weight"].first + 3;
    let at = (gguf.data_offset + gguf.tensors[input].offset) as usize;
    nan[at..at + 8].copy_from_slice(&f64::NAN.to_le_bytes());
    fs::write(dir.join("nan.gguf"), nan).unwrap();
    fs::remove_file(dir.join("o.gguf")).unwrap();
    let before = names_in(dir);
    for (name, expected) in [
        ("empty", "no token of the text went to any of its experts"),
        ("fewer", "6 tensors whose Hessian is of another size"),
        ("nan", "its Hessian holds NaN for columns 0 and 0"),
    ] {
        let error =
            tool::refusal("rquantize", run(dir, &format!("--pure --gptq {name}.gguf moe.gguf o.gguf Q4_0"))).error;
        assert!(error.contains(expected), "{name}: {error}");
        assert_eq!(names_in(dir), before, "{name}");
    }
}

#[test]
fn weights_that_are_not_ternary_become_so_with_force_alone() {
    let dir = folder();
    let dir = dir.path();
    // Its embeddings are no ternary weights, and have no Hessian; its matrices are and stay what they are.
    let ternary = "--pure --token-embedding-type q8_0 --gptq h.gguf";
    let out = tool::stdout(run(dir, &format!("{ternary} {MODEL} t.gguf TQ2_0")));
    assert!(out.contains("ternary: 42 ternary tensors"), "{out}");
    assert!(out.contains("digits lossless"), "{out}");
    // Rounded to four bits with feedback they are no longer three values to a block.
    tool::stdout(run(
        dir,
        &format!("--pure --token-embedding-type q8_0 --sparse 2:4 --gptq h.gguf {MODEL} d.gguf Q4_0"),
    ));
    let before = names_in(dir);
    let words = format!("--allow-requantize {ternary} d.gguf o.gguf TQ2_0");
    let error = tool::refusal("rquantize", run(dir, &words)).error;
    let (found, end) = ("1 of 1 tensors made ternary are not ternary", "or accept the loss with --force");
    assert!(error.contains(found) && error.ends_with(end), "{error}");
    assert_eq!(names_in(dir), before);
    let out = tool::stdout(run(dir, &format!("--force {words}")));
    assert!(out.contains("ternary: 42 of 42 tensors made ternary are not ternary"), "{out}");
}

#[test]
fn plans_say_what_is_fed_back() {
    let dir = folder();
    let words = format!("--dry-run --json --gptq h.gguf {MODEL} Q4_K_M");
    let out = tool::stdout(run(dir.path(), &words));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["gptq"]["tensors"], 42);
    assert_eq!(json["gptq"]["without"][0], "token_embd.weight");
}

#[test]
fn what_cannot_be_honoured_is_one_line_and_leaves_nothing() {
    let dir = folder();
    let dir = dir.path();
    let good = file(dir, "h.gguf");
    let gguf = gguf::header(&good);
    // The first number of the first input.
    let start = (gguf.data_offset + gguf.tensors[0].offset) as usize;
    let write = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        fs::write(dir.join(name), bytes).unwrap();
    };
    let put = |value: f64| move |bytes: &mut Vec<u8>| bytes[start..start + 8].copy_from_slice(&value.to_le_bytes());
    write("nan.gguf", &put(f64::NAN));
    write("negative.gguf", &put(-1.0));
    write("singular.gguf", &|bytes| {
        // The second number is the product of the first two columns: far more than both squares allow.
        let at = start + 8;
        bytes[at..at + 8].copy_from_slice(&1e9f64.to_le_bytes());
    });
    write("cut.gguf", &|bytes| bytes.truncate(bytes.len() / 2));
    fs::copy(testdata("imatrix/trilm-F16.imatrix.gguf"), dir.join("im.gguf")).unwrap();
    write("other.gguf", &|bytes| {
        let names = bytes.windows(4).enumerate();
        let names = names.filter(|(_, w)| w == b"blk.").map(|(i, _)| i);
        names.collect::<Vec<_>>().into_iter().for_each(|i| bytes[i] = b'x');
    });
    let before = names_in(dir);
    for (words, expected) in [
        ("--gptq nan.gguf M o.gguf Q4_0", "tensor blk.0.attn_k.weight: its Hessian holds NaN for columns 0 and 0"),
        ("--gptq negative.gguf M o.gguf Q4_0", "its Hessian holds -1 for columns 0 and 0"),
        ("--gptq singular.gguf M o.gguf Q4_0", "not positive definite at column 1"),
        ("--gptq cut.gguf M o.gguf Q4_0", "cut.gguf"),
        ("--gptq im.gguf M o.gguf Q4_0", "the file holds no Hessians"),
        ("--gptq M M o.gguf Q4_0", "the file holds no Hessians"),
        ("--gptq other.gguf M o.gguf Q4_0", "none of the tensors that are quantized has a Hessian"),
        ("--gptq h.gguf M o.gguf F16", "--gptq is for quantized types"),
        ("--gptq h.gguf M o.gguf COPY", "--gptq is for quantized types"),
        ("--gptq h.gguf M o.gguf I2_S", "--gptq is for quantized types"),
        ("--gptq h.gguf --tensor-type attn_q=stq1_0 M o.gguf Q4_0", "that --gptq does not round to"),
        ("--gptq h.gguf --group 128 M o.gguf AP4", "--group has no meaning for AP4"),
        ("--gptq h.gguf --sparse 2:4 M o.gguf AP4", "--sparse has no meaning for AP4"),
        ("--gptq h.gguf --outliers M o.gguf AP4", "--outliers cannot be had together with error feedback"),
        ("--gptq h.gguf --row-groups 2 M o.gguf AP4", "--row-groups cannot be had together with error feedback"),
        (
            "--gptq h.gguf --best-at 4 M o.gguf AP3-4",
            "--best-at and --compat cannot be had together with error feedback",
        ),
        ("--gptq nan.gguf M o.gguf AP4", "tensor blk.0.attn_k.weight: its Hessian holds NaN for columns 0 and 0"),
        ("--gptq other.gguf M o.gguf AP4", "none of the model's matrices has a Hessian in the file"),
        ("--gptq h.gguf --sparse 2:4 M o.gguf Q8_0", "that --sparse does not prune to"),
        ("--gptq h.gguf M o.gguf FAIRY2I", "--gptq"),
    ] {
        let words = words.replace("M ", &format!("{MODEL} "));
        let error = tool::refusal("rquantize", run(dir, &words)).error;
        assert!(error.contains(expected), "{words}: {error}");
        assert_eq!(names_in(dir), before, "{words}");
    }
    for words in [
        "--group 128 M o.gguf Q4_0",
        "--gptq h.gguf --group 64 M o.gguf Q4_0",
        "--gptq h.gguf --imatrix im.gguf M o.gguf Q4_0",
        "--sparse 2:4 M o.gguf Q4_0",
        "--gptq h.gguf --sparse 1:4 M o.gguf Q4_0",
        "--gptq h.gguf --sparse 2:4 --gptq-compat M o.gguf Q4_0",
    ] {
        let output = run(dir, &words.replace("M ", &format!("{MODEL} ")));
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_nothing() {
    use std::io::{BufRead, BufReader};
    let dir = folder();
    let before = names_in(dir.path());
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rquantize"))
        .current_dir(dir.path())
        .args(["-v", "--gptq", "h.gguf", "--group", "128"])
        .args([MODEL, "o.gguf", "Q4_0", "1"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().contains("blk.0.")));
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill").args([tool::end_signal(), &pid]).status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names_in(dir.path()), before);
}
