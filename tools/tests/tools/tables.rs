//! Tables have lines of at most 80 columns where nobody says how wide a line may be.

use std::path::Path;

use trine_testkit::{folder, testdata, tool, trilm};

/// A name as people give them.
const FILE: &str = "a-model-with-a-long-name-instruct-v2.gguf";

/// Words of the lines that are no rows.
const SENTENCES: [&str; 5] =
    ["loaded by: ", "  made from sha256 ", "architecture llama: ", " weights: ", ": GGUF version "];

/// The output of a tool in `dir`, none of whose lines is wider than 80 columns.
#[track_caller]
fn table(dir: &Path, program: &str, words: &str) -> String {
    let mut command = tool::command(program);
    let text = tool::stdout(command.current_dir(dir).args(words.split(' ')).output().unwrap());
    // Sentences beside a table are whole where they go to no terminal.
    let is_row = |line: &&str| !SENTENCES.iter().any(|words| line.contains(words));
    for line in text.lines().filter(is_row) {
        assert!(line.chars().count() <= 80, "{words}: {} columns\n{line}\n\n{text}", line.chars().count());
    }
    text
}

/// Every one of these words is in the text.
#[track_caller]
fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word}:\n{text}");
    }
}

#[test]
fn tables_of_rbench() {
    let dir = folder();
    let rbench = |words: &str| {
        let usual = "--synthetic llama:tiny:Q8_0 -r 1";
        table(dir.path(), env!("CARGO_BIN_EXE_rbench"), &format!("{usual} {words}"))
    };
    let text = rbench("-p 4 -n 2 -t 1,2 -d 0,8 -b 2,4 -ub 2,4 -ctk f16,q8_0");
    has(
        &text,
        &["model llama 1M Q8_0, size ", ", threads 1\n", ", threads 2\n", "tg2 @ d8", "n_ubatch", "type_k", "t/s"],
    );
    let text = rbench("-p 4 -n 2 -t 1 --roofline");
    has(&text, &["model llama", "MB/token", "GB/s", "GMAC/s", "bound t/s", "share"]);
    let text = rbench("-p 4 -n 2 -t 1 --profile");
    has(&text, &["test pp4\n", "test tg2\n", "operation", "GMAC/s", "of limit", "…"]);
    let text = rbench("--batched -npp 3,8 -ntg 2 -npl 1,3 -t 1,2 -ctk f16,q8_0");
    has(&text, &["N_KV", "S_PP t/s", "S_TG t/s", "S t/s"]);
}

#[test]
fn tables_of_models_and_plans() {
    let dir = folder();
    std::fs::copy(trilm(), dir.path().join(FILE)).unwrap();
    let rquantize = |words: &str| table(dir.path(), env!("CARGO_BIN_EXE_rquantize"), words);
    let text = rquantize(&format!("--dry-run {FILE} Q3_K_M"));
    has(&text, &["tensor", "blk.5.attn_output.weight", "256 x 4096", "f16 -> q6_K", "860.2 kB", "fewer t"]);
    let text = rquantize(&format!("--dry-run --tensor-type attn_output=tq2_0 {FILE} none.gguf Q4_K_M"));
    has(&text, &["  --tensor-…n_output"]);
    has(&rquantize(&format!("--dry-run {FILE} none.gguf AP1-3")), &["to 3 bits", "file so far", "with stored"]);
    has(&rquantize(&format!("{FILE} widths.gguf AP1-3")), &["file so far", "with stored", "error"]);
    let rinspect = |words: &str| table(dir.path(), env!("CARGO_BIN_EXE_rinspect"), words);
    let text = rinspect(&format!("{FILE} --hash"));
    // The names of tensors that differ in their blocks stay apart.
    has(
        &text,
        &["blk.0.attn_output.weight", "      sha256 ", "bits", "ternary by", "llama.attention.layer_norm_rms_epsilon"],
    );
    has(&rinspect("widths.gguf --tensors"), &["run reads", "bits/weight"]);
}

#[test]
fn tables_of_perplexities() {
    let dir = folder();
    std::fs::copy(trilm(), dir.path().join(FILE)).unwrap();
    let quantized =
        tool::command(env!("CARGO_BIN_EXE_rquantize")).current_dir(dir.path()).args([FILE, "w.gguf", "AP1-2"]).output();
    tool::stdout(quantized.unwrap());
    let wiki = testdata("wikitext-2/wiki.test.raw");
    let short = format!("-f {} -c 128 --chunks 1 -t 1", wiki.display());
    let rperplexity = |words: &str| table(dir.path(), env!("CARGO_BIN_EXE_rperplexity"), &format!("{words} {short}"));
    let text = rperplexity(&format!("--compare -m {FILE} w.gguf"));
    let heads = ["in blocks", "PPL", "ln ratio", "KLD", "99.9 %", "top %", "prompt t/s", "decode t/s"];
    has(&text, &heads);
    // The reference and two widths, in each of three tables.
    assert_eq!(text.matches("a-model-").count(), 3, "{text}");
    has(&rperplexity("-m w.gguf --bits 1,2"), &["bits/weight", "tokens/s"]);
}
