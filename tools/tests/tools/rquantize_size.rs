//! `rquantize --target-bpw`, `--target-size` and `--target-kld`: sizes and divergences that are kept, types that lose less than those of a file type.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use tempfile::TempDir;
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, TensorInfo, Value};
use trine_formats::types::TypeId;
use trine_testkit::tool::{only_error, stdout};
use trine_testkit::{gguf, names_in};

/// Runs in `dir`; the words are split at spaces.
pub(super) fn rquantize(dir: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    command.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap()
}

/// A folder with `in.gguf`: four blocks of a LLaMA with weights near a bell curve, some tensors with outliers.
pub(super) fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    meta.set("llama.block_count", Value::U32(4));
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut tensors = Vec::new();
    let mut add = |name: String, columns: u64, rows: u64, outliers: bool| {
        let weight = |i| {
            let bell = next() + next() + next() + next();
            if outliers && i % 97 == 0 { bell * 12.0 } else { bell }
        };
        let data: Vec<u8> = (0..columns * rows).map(weight).flat_map(|x: f32| x.to_le_bytes()).collect();
        let shape = if rows == 1 { vec![columns] } else { vec![columns, rows] };
        tensors.push((NewTensor::new(name, shape, TypeId::F32), data));
    };
    add("token_embd.weight".to_owned(), 256, 400, false);
    add("output_norm.weight".to_owned(), 256, 1, false);
    add("output.weight".to_owned(), 256, 400, false);
    for block in 0..4 {
        for (name, columns, rows) in [
            ("attn_norm", 256, 1),
            ("attn_q", 256, 256),
            ("attn_k", 256, 64),
            ("attn_v", 256, 64),
            ("attn_output", 256, 256),
            ("ffn_norm", 256, 1),
            ("ffn_gate", 256, 512),
            ("ffn_up", 256, 512),
            ("ffn_down", 512, 256),
        ] {
            add(format!("blk.{block}.{name}.weight"), columns, rows, name == "ffn_down" || block == 1);
        }
    }
    gguf::write(&dir.path().join("in.gguf"), &meta, &tensors);
    dir
}

fn bytes_of(dir: &Path, name: &str) -> u64 {
    fs::metadata(dir.join(name)).unwrap().len()
}

/// How much errors of a matrix count, and its weights.
type Counted = (f64, Vec<f32>);

/// The weights of a file's matrices but those of the output, as 32-bit floats, with how much errors of their role count
/// (docs/which-file.md).
fn floats(dir: &Path, name: &str) -> Vec<Counted> {
    stdout(rquantize(dir, &format!("--allow-requantize {name} floats.gguf F32")));
    let model = gguf::open(&dir.join("floats.gguf"));
    let matrices = model.tensors().filter(|info| info.shape.len() == 2 && info.name != "output.weight");
    let roles = [
        ("attn_q", 0.3),
        ("attn_k", 0.3),
        ("attn_v", 0.9),
        ("attn_output", 0.55),
        ("ffn_gate", 1.35),
        ("ffn_up", 1.4),
        ("ffn_down", 2.0),
        ("token_embd", 1.0),
    ];
    let of = |info: &TensorInfo| {
        let data = model.tensor_data(info).unwrap();
        let role = roles.iter().find(|(role, _)| info.name.contains(&format!("{role}.weight"))).unwrap();
        (role.1, data.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect())
    };
    matrices.map(of).collect()
}

/// The sum over tensors of the error relative to the tensor, each as its role counts.
pub(super) fn loss(dir: &Path, name: &str) -> f64 {
    let sum = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>();
    let tensor = |((counts, a), (_, b)): (&Counted, &Counted)| {
        let error = sum(&mut a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b)));
        counts * error / sum(&mut a.iter().map(|&a| f64::from(a)))
    };
    floats(dir, "in.gguf").iter().zip(&floats(dir, name)).map(tensor).sum()
}

#[test]
fn sizes_are_kept() {
    let dir = folder();
    let dir = dir.path();
    for bits in [2.9, 4.5, 5.21, 8.0] {
        let said = stdout(rquantize(dir, &format!("--json --target-bpw {bits} in.gguf out.gguf")));
        let plan: serde_json::Value = serde_json::from_str(&said).unwrap();
        let found = plan["bits_per_weight"].as_f64().unwrap();
        assert!(found <= bits && found >= bits * 0.995, "{found} for {bits}");
    }
    for (size, bytes) in [("1200000", 1_200_000), ("1M", 1_000_000), ("1500KiB", 1500 << 10)] {
        stdout(rquantize(dir, &format!("--target-size {size} in.gguf out.gguf")));
        let found = bytes_of(dir, "out.gguf");
        assert!(found <= bytes && found as f64 >= bytes as f64 * 0.995, "{found} for {bytes}");
    }
}

#[test]
fn less_is_lost_than_by_a_file_type_of_that_size() {
    let dir = folder();
    let dir = dir.path();
    for ty in ["Q3_K_M", "Q4_0", "Q4_K_M", "Q5_K_S"] {
        stdout(rquantize(dir, &format!("--output-tensor-type q6_K in.gguf usual.gguf {ty}")));
        let size = bytes_of(dir, "usual.gguf");
        stdout(rquantize(dir, &format!("--output-tensor-type q6_K --fit {size} in.gguf chosen.gguf")));
        let (usual, chosen) = (loss(dir, "usual.gguf"), loss(dir, "chosen.gguf"));
        assert!(chosen < 0.95 * usual, "{ty}: {chosen} of {usual}");
    }
}

/// A recipe says everything: with it and the same method the usual options make the same file, on one thread as on several;
/// without the method one with other scales, llama-quantize's.
#[test]
fn a_recipe_makes_the_file_again() {
    let dir = folder();
    let dir = dir.path();
    let said = rquantize(dir, "--target-bpw 4.4 --tensor-type attn_v=q8_0 --recipe types.txt in.gguf out.gguf 1");
    assert!(String::from_utf8_lossy(&said.stderr).contains("types for 26 tensors, mostly "));
    let ty = stdout(said).lines().next().unwrap().split([' ', ',']).nth(1).unwrap().to_owned();
    let recipe = fs::read_to_string(dir.join("types.txt")).unwrap();
    assert_eq!(recipe.lines().count(), 26);
    assert!(recipe.contains("^blk\\.2\\.ffn_down\\.weight$="), "{recipe}");
    let out = fs::read(dir.join("out.gguf")).unwrap();
    for (method, is_same) in [("--method unbiased", true), ("", false)] {
        let words = format!("{method} --tensor-type attn_v=q8_0 --tensor-type-file types.txt in.gguf again.gguf {ty}");
        stdout(rquantize(dir, &words));
        assert_eq!(fs::read(dir.join("again.gguf")).unwrap() == out, is_same);
    }
    stdout(rquantize(dir, "--target-bpw 4.4 --method nearest --tensor-type attn_v=q8_0 in.gguf nearest.gguf"));
    assert!(bytes_of(dir, "nearest.gguf").abs_diff(out.len() as u64) as f64 <= 0.005 * out.len() as f64);
    stdout(rquantize(dir, "--target-bpw 4.4 --tensor-type attn_v=q8_0 in.gguf again.gguf 3"));
    assert!(fs::read(dir.join("again.gguf")).unwrap() == out);
    let model = gguf::open(&dir.join("out.gguf"));
    let of = |name: &str| model.tensor_info(name).unwrap().ty;
    assert_eq!((of("blk.3.attn_v.weight"), of("blk.0.attn_norm.weight")), (TypeId::Q8_0, TypeId::F32));
    // Everything a header can say is known before a file is written.
    let plan = stdout(rquantize(dir, "--dry-run --target-bpw 4.4 in.gguf none.gguf"));
    assert!(plan.contains("chosen for the size") && !dir.join("none.gguf").exists(), "{plan}");
}

/// A chunk of a text. The embeddings are fixed: of so small a model their type alone is a step of the divergence.
const ON_TEXT: &str = "--token-embedding-type q6_K --kld-text text.txt --kld-chunks 1";

/// A folder with the bundled model, whose weights are made dense by a rotation, and a text.
fn with_dense() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::copy(trine_testkit::trilm(), dir.path().join("ternary.gguf")).unwrap();
    fs::copy(trine_testkit::testdata("imatrix/calib.txt"), dir.path().join("text.txt")).unwrap();
    stdout(rquantize(dir.path(), "--rotate 256:signs ternary.gguf dense.gguf"));
    dir
}

/// The divergence of a file from `dense.gguf` over the first `chunks` chunks of a text, as the program says that measures it.
pub(super) fn diverges(dir: &Path, file: &str, text: &str, chunks: usize) -> f64 {
    let measure = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rperplexity"));
        let words = format!("-f {text} -c 512 --chunks {chunks} --kl-divergence-base base.kld --json {words}");
        stdout(command.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap())
    };
    if !dir.join("base.kld").exists() {
        measure("-m dense.gguf");
    }
    let measured: serde_json::Value = serde_json::from_str(&measure(&format!("-m {file} --kl-divergence"))).unwrap();
    measured["kld"]["value"].as_f64().unwrap()
}

/// Runs the tool on that model.
fn divergence(dir: &Path, words: &str) -> Output {
    rquantize(dir, &format!("--json {ON_TEXT} {words} dense.gguf out.gguf 2"))
}

#[test]
fn files_keep_to_a_divergence_and_are_no_larger_than_it_needs() {
    let dir = with_dense();
    let dir = dir.path();
    let mut sizes = Vec::new();
    for wanted in [0.02, 0.002] {
        let output = divergence(dir, &format!("--target-kld {wanted}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let plan: serde_json::Value = serde_json::from_str(&stdout(output)).unwrap();
        let found = plan["divergence"]["measured"].as_f64().unwrap();
        assert_eq!(plan["divergence"]["wanted"], wanted);
        assert!(found <= wanted && found >= 0.75 * wanted, "{said}");
        sizes.push(bytes_of(dir, "out.gguf"));
        // The program that measures says the same.
        assert_eq!(diverges(dir, "out.gguf", "text.txt", 1), found);
    }
    assert!(sizes[0] < sizes[1], "{sizes:?}");
    // The same on another number of threads, and nothing else is left.
    let before = fs::read(dir.join("out.gguf")).unwrap();
    stdout(rquantize(dir, &format!("--target-kld 0.002 {ON_TEXT} dense.gguf again.gguf 1")));
    assert!(fs::read(dir.join("again.gguf")).unwrap() == before);
    assert_eq!(names_in(dir).len(), 6);
    fs::write(dir.join("short.txt"), "Too few words.").unwrap();
    for (words, why) in [
        ("--target-kld 0.1 --kld-text absent.txt dense.gguf o.gguf", "--kld-text 'absent.txt'"),
        ("--target-kld 0.1 --kld-text dense.gguf dense.gguf o.gguf", "--kld-text 'dense.gguf'"),
        ("--target-kld 0.1 --kld-text short.txt dense.gguf o.gguf", "--kld-text 'short.txt'"),
        (
            "--target-kld 0.1 --kld-text text.txt dense.gguf o.gguf Q4_0",
            "--target-kld chooses the types: leave Q4_0 out",
        ),
    ] {
        let error = only_error("rquantize", rquantize(dir, words));
        assert!(error.contains(why), "{words}: {error}");
        assert_eq!(names_in(dir).len(), 7, "{words}");
    }
    for words in [
        "--target-kld 0.1 dense.gguf o.gguf",
        "--kld-text text.txt dense.gguf o.gguf Q4_0",
        "--target-kld 0 --kld-text text.txt dense.gguf o.gguf",
        "--target-kld 0.1 --kld-text text.txt --dry-run dense.gguf o.gguf",
        "--target-kld 0.1 --kld-text text.txt --target-bpw 4 dense.gguf o.gguf",
    ] {
        assert_eq!(rquantize(dir, words).status.code(), Some(2), "{words}");
    }
}

/// Where a text is given, each role counts as it does in this model: the file has the size, and diverges less. Scales are
/// llama-quantize's: without bias roles count in this model about as they are assumed to.
#[test]
fn roles_are_measured_on_a_text() {
    let dir = with_dense();
    let dir = dir.path();
    stdout(rquantize(dir, "--method nearest --target-bpw 3.3 dense.gguf assumed.gguf"));
    let words = "--method nearest --target-bpw 3.3 --kld-text text.txt --kld-chunks 1 dense.gguf";
    let output = rquantize(dir, &format!("{words} measured.gguf 2"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for role in ["token_embd", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
        assert_eq!(said.matches(&format!("{role} alone, mostly ")).count(), 1, "{role}: {said}");
    }
    let [assumed, measured] = ["assumed.gguf", "measured.gguf"].map(|file| diverges(dir, file, "text.txt", 1));
    assert!(measured < 0.97 * assumed, "{measured} of {assumed}: {said}");
    let (assumed, measured) = (bytes_of(dir, "assumed.gguf"), bytes_of(dir, "measured.gguf"));
    assert!(measured.abs_diff(assumed) as f64 <= 0.005 * assumed as f64, "{measured} and {assumed}");
    stdout(rquantize(dir, &format!("{words} again.gguf 1")));
    assert!(fs::read(dir.join("again.gguf")).unwrap() == fs::read(dir.join("measured.gguf")).unwrap());
    // Nothing is left of the files that were measured.
    assert_eq!(names_in(dir).len(), 7);
}

/// With Hessians types are chosen by what error feedback leaves of their errors, and rounded with it: the file has the size
/// and diverges less than one of types that were chosen without.
#[test]
fn types_are_chosen_for_error_feedback() {
    let dir = with_dense();
    let dir = dir.path();
    let mut rimatrix = Command::new(env!("CARGO_BIN_EXE_rimatrix"));
    let words = "-m dense.gguf -f text.txt -c 128 --chunks 8 --hessian h.gguf";
    stdout(rimatrix.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap());
    // The types of the first block alone are free, so that this does not take minutes.
    let free = r"--tensor-type blk\.[1-9]=q8_0 --tensor-type token_embd=q8_0 --target-bpw 7.8";
    let fed = "--gptq h.gguf dense.gguf";
    let said = stdout(rquantize(dir, &format!("{free} --recipe fed.txt {fed} fed.gguf 2")));
    assert!(said.contains("gptq: 42 tensors rounded with error feedback"), "{said}");
    let fed_bytes = fs::read(dir.join("fed.gguf")).unwrap();
    stdout(rquantize(dir, &format!("{free} {fed} again.gguf 1")));
    assert!(fs::read(dir.join("again.gguf")).unwrap() == fed_bytes);
    // Types that need importance can be had, and other ones are chosen than without feedback.
    let recipe = fs::read_to_string(dir.join("fed.txt")).unwrap();
    assert!(recipe.contains("=iq2_s\n") || recipe.contains("=iq3_xxs\n"), "{recipe}");
    stdout(rquantize(dir, &format!("{free} --recipe plain.txt dense.gguf plain.gguf")));
    assert_ne!(fs::read_to_string(dir.join("plain.txt")).unwrap(), recipe);
    // All that the rules leave has the file's type.
    stdout(rquantize(dir, &format!("--tensor-type-file plain.txt {fed} rounded.gguf Q8_0")));
    let [chosen, rounded] = ["fed.gguf", "rounded.gguf"].map(|file| diverges(dir, file, "text.txt", 2));
    assert!(chosen < 0.95 * rounded, "{chosen} of {rounded}");
    let sizes = [bytes_of(dir, "fed.gguf"), bytes_of(dir, "plain.gguf")];
    assert!(sizes[0].abs_diff(sizes[1]) as f64 <= 0.005 * sizes[0] as f64, "{sizes:?}");
    for words in ["--kld-text text.txt --gptq h.gguf", "--sequential text.txt"] {
        assert_eq!(rquantize(dir, &format!("--target-bpw 4 {words} dense.gguf o.gguf")).status.code(), Some(2));
    }
}

#[test]
fn sizes_that_cannot_be() {
    let dir = folder();
    let dir = dir.path();
    for (words, why) in [
        ("--target-size 100K in.gguf out.gguf", "more than the 100000 bytes that are asked for"),
        ("--target-size 1 in.gguf out.gguf", "more than the 1 bytes that are asked for"),
        ("--target-bpw 1.5 --recipe r.txt in.gguf out.gguf", "with --imatrix smaller types can be had"),
        ("--target-bpw 4 in.gguf out.gguf Q4_0", "--target-bpw chooses the types: leave Q4_0 out"),
        ("--target-bpw 4 in.gguf out.gguf 1 2", "--target-bpw takes IN.gguf OUT.gguf [THREADS]"),
        ("--target-bpw 4 --tensor-type weight=q8_0 in.gguf out.gguf", "nothing is to be chosen"),
        ("--target-bpw 4 in.gguf absent/out.gguf", "absent"),
    ] {
        let before = names_in(dir);
        let error = only_error("rquantize", rquantize(dir, words));
        assert!(error.contains(why), "{words}: {error}");
        assert_eq!(names_in(dir), before, "{words}");
    }
    for words in
        ["--target-bpw 0 in.gguf o.gguf", "--target-bpw x in.gguf o.gguf", "--target-size 4 --pure in.gguf o.gguf"]
    {
        assert_eq!(rquantize(dir, words).status.code(), Some(2), "{words}");
    }
}
