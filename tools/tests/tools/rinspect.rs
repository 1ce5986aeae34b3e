//! `rinspect` on files of other programs and on everything that is not a model.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, GgufStr, Metadata, Value as Meta};
use trine_formats::types::TypeId;
use trine_testkit::{gguf, testdata, tool};

fn rinspect() -> Command {
    Command::new(env!("CARGO_BIN_EXE_rinspect"))
}

fn stdout(args: &[&str], path: &Path) -> String {
    let output = rinspect().args(args).arg(path).output().unwrap();
    let (stdout, stderr) = tool::texts(output);
    assert_eq!(stderr, "");
    stdout
}

/// The one line of an error, without the tool's name.
fn error(args: &[&str], path: &Path) -> String {
    let output = rinspect().args(args).arg(path).output().unwrap();
    tool::only_error("rinspect", output)
}

#[test]
fn json_agrees_with_gguf_py_on_every_tensor_of_a_split_set() {
    let expected = fs::read_to_string(testdata("gguf/imatrix-tensors.txt")).unwrap();
    for shard in 1..=3 {
        for mode in [&["--json", "--hash"][..], &["--json", "--hash", "--no-mmap"]] {
            let json: Value =
                serde_json::from_str(&stdout(mode, &testdata(&format!("gguf/imatrix-0000{shard}-of-00003.gguf"))))
                    .unwrap();
            let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            let line = |t: &Value| {
                let shape: Vec<String> = t["shape"].as_array().unwrap().iter().map(text).collect();
                let fields = ["type", "bytes", "offset", "sha256"].map(|k| text(&t[k]));
                format!("{} {} {}\n", text(&t["name"]), shape.join("x"), fields.join(" "))
            };
            let listed: String = json["tensors"].as_array().unwrap().iter().map(line).collect();
            assert_eq!(listed, expected);
            assert_eq!(json["shards"].as_array().unwrap().len(), 3);
            assert_eq!(json["shards"][0]["metadata"]["imatrix.chunk_count"]["value"], 8);
        }
    }
}

/// A file with one ternary, one other and one unknown tensor and with metadata that is hard to show.
fn odd_model(path: &Path) {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Meta::str("llama\n\u{1b}[31m"));
    meta.set("odd.bytes", Meta::Str(GgufStr(vec![0xff, 0xfe])));
    meta.set("odd.nan", Meta::F32(f32::NAN));
    meta.set("odd.small", Meta::F32(1e-5));
    meta.set("odd.long", Meta::Array(Array::U32((0..1000).collect())));
    let mut unknown = NewTensor::new("unknown", [64, 2], TypeId(36));
    unknown.bytes = Some(96);
    let f32 = |name: &str| NewTensor::new(name, [4, 2], TypeId::F32);
    let bytes = |v: [f32; 8]| v.map(f32::to_le_bytes).concat();
    let ternary = bytes([0.5, -0.5, 0.0, 0.0, 0.5, 0.5, 0.5, -0.5]);
    let other = bytes([0.5, -0.25, 0.0, 0.0, 0.5, 0.5, 0.5, -0.5]);
    let tensors = [(f32("ternary"), ternary), (f32("other"), other), (unknown, vec![7; 96])];
    gguf::write(path, &meta, &tensors);
}

#[test]
fn json_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.gguf");
    odd_model(&path);
    let json: Value = serde_json::from_str(&stdout(&["--json"], &path)).unwrap();
    let meta = &json["shards"][0]["metadata"];
    assert_eq!(meta["odd.bytes"], serde_json::json!({ "type": "str", "value": { "hex": "fffe" } }));
    assert_eq!(meta["odd.nan"]["value"], "NaN");
    assert_eq!(meta["odd.small"]["value"].to_string(), "0.00001");
    assert_eq!(meta["odd.long"]["value"].as_array().unwrap().len(), 1000);
    let keys: Vec<&str> = meta.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["general.architecture", "odd.bytes", "odd.nan", "odd.small", "odd.long"]);
    let tensors = &json["tensors"];
    assert_eq!(tensors[0]["ternary"], serde_json::json!({ "scale_per": "tensor", "scale": 0.5, "zeros": 0.25 }));
    assert_eq!(tensors[1]["ternary"], false);
    assert_eq!(tensors[2]["ternary"], Value::Null);
    assert_eq!((&tensors[2]["type_id"], &tensors[2]["bytes"]), (&36.into(), &96.into()));
    assert!(tensors[2]["note"].as_str().unwrap().contains("i2_s"));
    assert_eq!(json["total"]["weights"], 8 + 8 + 128);
    assert!(json["tensors"][0].get("sha256").is_none());
}

#[test]
fn text_shows_metadata_tensors_and_totals() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.gguf");
    odd_model(&path);
    let text = stdout(&["--hash"], &path);
    for part in [
        "\"llama\\n\\u{1b}[31m\"",
        "u32[1000]  0, 1, 2, 3, 4, 5, …",
        "ternary  4 x 2   f32         32",
        "32.0000  tensor",
        // sha256sum of 96 bytes of 7
        "d37df6f5b7150e69fc713077a1c0e220862c5271667d6661e2b5c0f5b0752ffc",
        "total: 3 tensors, 144 weights",
        "architecture: trine does not know it\n",
        "note: type 36 is iq4_nl_4_4, removed from ggml; too large or small for i2_s of bitnet.cpp",
        "ternary: 1 of 2 matrices: 1 with a scale per tensor",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
    assert!(!stdout(&[], &path).contains("4 x 2"));
}

#[test]
fn whether_trine_runs_a_model_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for (name, line, runs) in [
        (
            "llama",
            "architecture llama: trine runs it (LLaMA 1 to 3, Mistral, Mixtral, SmolLM, TriLM, Falcon3, Falcon-E), rconvert reads its checkpoints\n",
            true,
        ),
        ("gpt2", "architecture gpt2: trine runs it (GPT-2, Cerebras-GPT), rconvert reads its checkpoints\n", true),
        ("dots3note", "architecture dots3note: trine runs it (dots.note 288B-A19B)\n", true),
        (
            "wavtokenizer-dec",
            "architecture wavtokenizer-dec: trine does not run it yet, it needs operations that no other model has\n",
            false,
        ),
    ] {
        let mut meta = Metadata::default();
        meta.set("general.architecture", Meta::str(name));
        let tensor = NewTensor::new("tensor", [32], TypeId::F32);
        gguf::write(&path, &meta, &[(tensor, vec![0; 128])]);
        let text = stdout(&[], &path);
        assert!(text.contains(line), "{text}");
        let json: Value = serde_json::from_str(&stdout(&["--json"], &path)).unwrap();
        assert_eq!(json["runs"], runs);
    }
}

#[test]
fn what_is_not_a_model_is_named_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let cases: [(PathBuf, &str); 14] = [
        (dir.path().join("nowhere.gguf"), "nowhere.gguf' does not exist"),
        (dir.path().to_owned(), "is a directory; give a .gguf file"),
        (file("empty.gguf", b""), "empty.gguf' is empty"),
        (file("a.txt", b"Dear reader,\nthis"), "it looks like text, it starts with \"Dear reader,\""),
        (file("a.html", b"\n<!DOCTYPE html><html>"), "it looks like a web page"),
        (file("a.lfs", b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
        (file("a.json", b"{\"a\": 1}"), "it looks like JSON"),
        (file("a.pt", b"PK\x03\x04abcdefgh"), "PyTorch"),
        (file("a.safetensors", b"\x40\0\0\0\0\0\0\0{\"a\":"), "it looks like a safetensors file"),
        (file("a.gz", b"\x1f\x8b\x08\0"), "gzip"),
        (file("zeros.gguf", &[0; 4096]), "nothing but zero bytes"),
        (file("a.bin", &[0x7f, b'E', b'L', b'F', 1]), "binary data, it starts with \"\\x7fELF\\x01\""),
        (file("old.gguf", b"GGUF\x01\0\0\0"), "GGUF version 1 is not supported"),
        (file("be.gguf", b"GGUF\0\0\0\x03\0\0\0\0"), "big-endian"),
    ];
    for (path, message) in cases {
        for mode in [&[][..], &["--no-mmap"]] {
            let error = error(mode, &path);
            assert!(error.contains(message), "{error}");
        }
    }
    #[cfg(unix)]
    {
        let link = dir.path().join("dangling.gguf");
        std::os::unix::fs::symlink(dir.path().join("gone.gguf"), &link).unwrap();
        assert!(error(&[], &link).contains("is a link to a file that does not exist"));
        assert!(error(&[], Path::new("/dev/null")).contains("is not a regular file"));
    }
}

#[test]
fn a_download_that_was_cut_off_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(testdata("imatrix/trilm-F16.imatrix.gguf")).unwrap();
    let path = dir.path().join("cut.gguf");
    fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    let message = error(&[], &path);
    assert!(message.contains("the file is truncated: the tensor needs bytes"), "{message}");
    assert!(message.contains("the file has 61756"), "{message}");
    fs::write(&path, &whole[..1000]).unwrap();
    assert!(error(&[], &path).contains("the file is cut off or damaged"));
}

#[test]
fn split_sets_that_are_not_whole_say_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let put = |from: u32, name: &str| {
        let to = dir.path().join(name);
        fs::copy(testdata(&format!("gguf/imatrix-0000{from}-of-00003.gguf")), &to).unwrap();
        to
    };
    let first = put(1, "m-00001-of-00003.gguf");
    put(3, "m-00003-of-00003.gguf");
    let message = error(&[], &first);
    assert!(message.starts_with("shard 2 of 3 of "), "{message}");
    assert!(message.contains("m-00002-of-00003.gguf' does not exist"), "{message}");
    put(3, "m-00002-of-00003.gguf");
    assert!(error(&[], &first).contains("split.no is 2 in the place of shard 1"));
    put(2, "m-00002-of-00003.gguf");
    stdout(&[], &first);
    assert!(error(&[], &put(1, "renamed.gguf")).contains("its name does not end in -00001-of-00003.gguf"));
    let message = error(&[], &put(1, "m-00001-of-00002.gguf"));
    assert!(message.contains("it is one of 3 shards, its name says 2"), "{message}");
    #[cfg(unix)]
    {
        let link = dir.path().join("link.gguf");
        std::os::unix::fs::symlink(&first, &link).unwrap();
        stdout(&[], &link);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let output = rinspect().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = rinspect().args(["--colour", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn a_reader_that_stops_early_ends_the_program() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_rinspect"))
        .args(["--json", "--hash"])
        .arg(testdata("imatrix/trilm-F16.imatrix.gguf"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    // By SIGPIPE, as the system ends those who write to nobody.
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(13));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// Two files that hold the same weights in different types, and one that does not.
#[test]
fn two_files_are_compared_weight_by_weight() {
    let dir = tempfile::TempDir::new().unwrap();
    let write = |name: &str, note: &str, ty: TypeId, values: &[f32]| {
        let path = dir.path().join(name);
        let mut meta = Metadata::default();
        meta.set("general.architecture", Meta::str("llama"));
        meta.set("note", Meta::str(note));
        let data = match ty {
            TypeId::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            _ => values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect(),
        };
        let tensor = NewTensor::new("w", vec![4, 2], ty);
        gguf::write(&path, &meta, &[(tensor, data)]);
        path
    };
    let values = [0.5, -1.0, 0.25, 3.0, 0.0, 1.0, 2.0, -4.0];
    let wide = write("a.gguf", "x", TypeId::F32, &values);
    let half = write("b.gguf", "y", TypeId::BF16, &values);
    let compare = |a: &Path, b: &Path| stdout(&["--diff", a.to_str().unwrap()], b);
    let text = compare(&wide, &half);
    for part in [
        "1 keys the same, 1 not",
        "note: str \"x\" -> str \"y\"",
        "1 with the same values in other bytes",
        "all weights are the same; the metadata is not",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(compare(&wide, &wide).contains("the files say the same"));
    let mut changed = values;
    changed[3] = 5.0;
    let other = write("c.gguf", "x", TypeId::F32, &changed);
    let text = compare(&wide, &other);
    assert!(text.contains("w: f32 -> f32, 1 of 8 weights differ, by at most 2.000e0"), "{text}");
    let json: Value = serde_json::from_str(&stdout(&["--json", "--diff", wide.to_str().unwrap()], &other)).unwrap();
    assert_eq!((&json["lossless"], &json["tensors"][0]["changed"]), (&false.into(), &1.into()));
}

#[test]
fn the_forward_pass_is_shown_operation_by_operation() {
    let model = testdata("models/trilm-wt-5.8m-F16.gguf");
    let text = stdout(&["--program"], &model);
    for line in [
        "58 operations in 6 blocks; at most 4.1 kB of activations for each token of a pass",
        "  attn_q[256], attn_k[128], attn_v[128] = products(attn_norm)",
        "  attn_residual[256], ffn_norm[256] = add norm(x, attn_output)",
        "      ffn_gate.weight 768 x 256 f16; ffn_up.weight 768 x 256 f16; ffn_down.weight 256 x 768 f16; Silu",
        "blocks 1 to 5: like block 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let json: Value = serde_json::from_str(&stdout(&["--program", "--json"], &model)).unwrap();
    let operations = json["operations"].as_array().unwrap();
    assert_eq!((operations.len(), json["blocks"].as_u64()), (58, Some(6)));
    assert_eq!(operations[2]["matrices"][1]["tensor"], "blk.0.attn_k.weight");
    // every value is made before it is read
    let mut made: Vec<&Value> = Vec::new();
    for operation in operations {
        let inputs = operation["inputs"].as_array().unwrap();
        assert!(inputs.iter().all(|input| made.contains(&input)), "{operation}");
        made.extend(operation["outputs"].as_array().unwrap().iter().map(|output| &output["name"]));
    }
    let graph = stdout(&["--dot", "5"], &model);
    assert!(graph.starts_with("digraph \"block 5\" {\n") && graph.ends_with("}\n"), "{graph}");
    let refused = error(&["--dot", "6"], &model);
    assert_eq!(refused, "the model has blocks 0 to 5: --dot 6 names none");
}

#[test]
fn what_has_no_forward_pass_says_why() {
    let refused = error(&["--program"], &testdata("gguf/imatrix-00001-of-00003.gguf"));
    assert!(refused.starts_with("the model has no forward pass: "), "{refused}");
}
