//! Files of ik_llama.cpp's types: who reads them, what they lose, and when types are chosen for a size.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use trine_formats::gguf::Dialect;
use trine_testkit::tool::{self, stdout};
use trine_testkit::{gguf, trilm};

use super::rquantize_size::{folder, loss, rquantize};

/// The text and the hashes of the logits of a greedy run of the file with a set of kernels, the best one without a name.
fn text(dir: &Path, isa: Option<&str>) -> String {
    let mut command = tool::command(env!("CARGO_BIN_EXE_rgen"));
    command.current_dir(dir).args("-m out.gguf -p The -n 8 --temp 0 --logits-sha256".split(' '));
    stdout(command.envs(isa.map(|isa| ("TRINE_ISA", isa))).output().unwrap())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn files_say_who_reads_them_and_run() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    fs::copy(trilm(), dir.join("ternary.gguf")).unwrap();
    stdout(rquantize(dir, "--rotate 256:signs ternary.gguf in.gguf"));
    // The first is of the size of the other, the second is smaller by a quarter of a bit.
    for (ty, number, usual, most) in [("IQ4_K", 140, "Q4_K_S", 0.85), ("IQ3_KS", 154, "Q3_K_S", 1.3)] {
        let words = format!("--pure --token-embedding-type q8_0 in.gguf out.gguf {ty}");
        let output = rquantize(dir, &format!("{words} 1"));
        let warning = format!("cannot read this file: it has types of ik_llama.cpp ({})", ty.to_lowercase());
        assert_eq!(stderr(&output).matches(&warning).count(), 1, "{}", stderr(&output));
        assert!(stdout(output).contains("loaded by: trine alone"), "{ty}");
        let bytes = fs::read(dir.join("out.gguf")).unwrap();
        assert_eq!(gguf::header(&bytes).meta.get_u32("general.file_type").unwrap(), Some(number));
        assert_eq!(text(dir, Some("scalar")), text(dir, None), "{ty}");
        let ours = loss(dir, "out.gguf");
        stdout(rquantize(dir, &format!("{words} 3")));
        assert!(fs::read(dir.join("out.gguf")).unwrap() == bytes, "{ty}: threads");
        stdout(rquantize(dir, &format!("--pure --token-embedding-type q8_0 in.gguf usual.gguf {usual}")));
        let theirs = loss(dir, "usual.gguf");
        assert!(ours < most * theirs, "{ty}: {ours} {theirs}");
    }
    let said = stdout(rquantize(dir, "ternary.gguf out.gguf IQ2_KL"));
    assert!(said.contains("loaded by: ik_llama.cpp, trine"), "{said}");
    assert_eq!(text(dir, Some("scalar")), text(dir, None));
}

/// The number of tensors of a file that only ik_llama.cpp has types for.
fn of_ik(dir: &Path) -> usize {
    let model = gguf::open(&dir.join("out.gguf"));
    model.tensors().filter(|info| Dialect::of(info.ty) == Dialect::IkLlama).count()
}

#[test]
fn they_are_chosen_for_programs_that_read_them() {
    let dir = folder();
    let dir = dir.path();
    let mut losses = Vec::new();
    for program in ["", "--for llama.cpp", "--for ik", "--for trine"] {
        let output = rquantize(dir, &format!("{program} --target-bpw 4.6 in.gguf out.gguf"));
        let is_read = !stderr(&output).contains("llama.cpp cannot read");
        stdout(output);
        assert_eq!((of_ik(dir) == 0, is_read), (losses.len() < 2, losses.len() < 2), "{program}");
        losses.push(loss(dir, "out.gguf"));
    }
    assert_eq!(losses[0], losses[1]);
    assert!(losses[2] < 0.93 * losses[0] && losses[3] < 0.93 * losses[0], "{losses:?}");
    for (words, why) in [
        ("--for ollama --target-bpw 4 in.gguf o.gguf", "write llama.cpp, ik or trine"),
        ("--for ik in.gguf o.gguf Q4_0", "--target-bpw"),
    ] {
        let output = rquantize(dir, words);
        assert!(!output.status.success() && stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
    assert!(!dir.join("o.gguf").exists());
}
