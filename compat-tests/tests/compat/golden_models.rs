//! Whole models: logits, greedy text and perplexity are those of the reference programs.
//!
//! The quantized files are made by rquantize and have the reference's hashes before they are used.

use std::io::Sink;
use std::path::{Path, PathBuf};

use trine::eval::Chunks;
use trine::eval::base_file::{BaseReader, BaseWriter};
use trine::eval::kld::divergence;
use trine::eval::perplexity::{Estimate, perplexity};
use trine::tokenizer::Tokenizer;
use trine_compat_tests::models::{self, BITNET, TRILM};
use trine_compat_tests::{fetch, files, golden, is_long, or_skip, programs, testdata};
use trine_formats::gguf::ModelFile;

fn f16(name: &str) -> ModelFile {
    let path = models::bundled(name).expect("a bundled model");
    open(&path)
}

fn open(path: &Path) -> ModelFile {
    files::model(files::read(path))
}

fn ternary(name: &str, ty: &str) -> ModelFile {
    models::quantized(name, ty).unwrap_or_else(|e| panic!("{e:#}"))
}

#[track_caller]
fn check_logits(file: &ModelFile, name: &str) {
    let golden = golden::logits(name);
    let model = models::load(file).expect("a model");
    let got = models::logits_sha256(&model, &golden.tokens).expect("logits");
    for (i, (got, want)) in got.iter().zip(&golden.sha256).enumerate() {
        assert_eq!(got, want, "{name}: logits at position {i}");
    }
    assert_eq!(got.len(), golden.sha256.len());
}

#[track_caller]
fn check_greedy(file: &ModelFile, name: &str) {
    let prompts = std::fs::read_to_string(testdata("golden/greedy/prompts.txt")).expect("prompts");
    let model = models::load(file).expect("a model");
    let tokenizer = Tokenizer::from_metadata(file.meta()).expect("a tokenizer");
    for (i, prompt) in prompts.lines().enumerate() {
        let path = testdata(&format!("golden/greedy/{name}.{}.txt", i + 1));
        let want = std::fs::read_to_string(path).expect("a golden text");
        let got = models::greedy(&model, &tokenizer, prompt, 40).expect("a continuation");
        // Both belong to the program, not to the model.
        let want = want.trim_end_matches('\n').trim_end_matches(" [end of text]");
        assert_eq!(got.trim_end_matches('\n'), want.trim_end_matches('\n'), "{name}: {prompt}");
    }
}

/// The first `short` chunks, in the long form all that were recorded.
#[track_caller]
fn check_perplexity(file: &ModelFile, name: &str, short: usize) {
    let golden = golden::perplexity(name).expect("a golden perplexity");
    let count = if is_long() { golden.running.len() } else { short };
    let text = std::fs::read_to_string(testdata("wikitext-2/wiki.test.raw")).expect("the text");
    let model = models::load(file).expect("a model");
    let tokenizer = Tokenizer::from_metadata(file.meta()).expect("a tokenizer");
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let tokens = tokenizer.encode(&text, true, false).expect("tokens");
    let n_ctx = golden.n_ctx as usize;
    let chunks = Chunks::new(tokens, n_ctx, bos, Some(count)).expect("chunks");
    let mut running = Vec::new();
    let estimate =
        perplexity::<Sink>(&mut models::side_by_side(&model, n_ctx), &chunks, None, &mut |_, estimate: &Estimate| {
            running.push(format!("{:.4}", estimate.ppl()));
            Ok(())
        })
        .expect("an estimate");
    let want = golden.running[..count].iter().map(|v| format!("{v:.4}"));
    assert_eq!(running, want.collect::<Vec<_>>(), "{name}");
    if count == golden.running.len() {
        let printed = (format!("{:.4}", estimate.ppl()), format!("{:.5}", estimate.ppl_error()));
        assert_eq!(printed, golden.estimate, "{name}");
    }
}

mod trilm {
    use super::*;

    #[test]
    fn f16() {
        let file = super::f16(TRILM);
        check_logits(&file, "trilm-F16");
        check_greedy(&file, "trilm-F16");
        check_perplexity(&file, TRILM, 4);
    }

    #[test]
    fn tq2_0() {
        let file = ternary(TRILM, "TQ2_0");
        check_logits(&file, "trilm-TQ2_0");
        check_greedy(&file, "trilm-TQ2_0");
    }

    #[test]
    fn codebooks() {
        for ty in ["IQ3_S", "IQ4_XS"] {
            let file = models::quantized(TRILM, ty).unwrap_or_else(|e| panic!("{e:#}"));
            check_logits(&file, &format!("trilm-{ty}"));
        }
    }

    #[test]
    fn codebooks_with_importance() {
        for ty in ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_M", "IQ3_XXS"] {
            let file = models::quantized_with_importance(ty).unwrap_or_else(|e| panic!("{e:#}"));
            check_logits(&file, &format!("trilm-{ty}"));
        }
    }

    #[test]
    fn tq1_0() {
        let file = ternary(TRILM, "TQ1_0");
        check_logits(&file, "trilm-TQ1_0");
        check_perplexity(&file, &format!("{TRILM} -> TQ1_0"), 4);
    }
}

mod bitnet {
    use super::*;

    #[test]
    fn f16() {
        let file = super::f16(BITNET);
        check_logits(&file, "bitnet-F16");
        check_greedy(&file, "bitnet-F16");
        check_perplexity(&file, BITNET, 2);
    }

    #[test]
    fn tq2_0() {
        let file = ternary(BITNET, "TQ2_0");
        check_logits(&file, "bitnet-TQ2_0");
        check_greedy(&file, "bitnet-TQ2_0");
        check_perplexity(&file, &format!("{BITNET} -> TQ2_0"), 4);
    }

    #[test]
    fn tq1_0() {
        let file = ternary(BITNET, "TQ1_0");
        check_logits(&file, "bitnet-TQ1_0");
        check_perplexity(&file, &format!("{BITNET} -> TQ1_0"), 4);
    }
}

/// The path of trilm as TQ2_0, made in `dir`.
fn trilm_tq2_0(dir: &Path) -> PathBuf {
    let lines = golden::quantized().expect("golden hashes");
    let is_wanted = |l: &&golden::Quantized| l.source == TRILM && l.ty == "TQ2_0" && l.options.is_empty();
    let line = lines.iter().find(is_wanted).expect("a hash");
    let source = models::bundled(TRILM).expect("a model");
    models::quantize(&source, line, dir).expect("a file")
}

/// `rperplexity`, the program, prints what llama-perplexity prints.
#[test]
fn rperplexity() {
    let dir = tempfile::tempdir().expect("a directory");
    let golden = golden::perplexity(&format!("{TRILM} -> TQ2_0")).expect("a golden perplexity");
    let mut command = programs::program("rperplexity").expect("rperplexity");
    command.arg("-m").arg(trilm_tq2_0(dir.path())).arg("-f").arg(testdata("wikitext-2/wiki.test.raw"));
    command.args(["-c", "512", "--chunks", "20"]);
    let output = programs::succeed(&mut command).expect("a run");
    let got = String::from_utf8(output.stdout).expect("text");
    let running = golden.running.iter().enumerate();
    let running: String = running.map(|(i, v)| format!("[{}]{v:.4},", i + 1)).collect();
    let (ppl, error) = &golden.estimate;
    let want = format!("{running}\nFinal estimate: PPL = {ppl} +/- {error}");
    assert_eq!(got.trim(), want);
}

/// `rgen`, the program: the texts of the reference program, and a proof of the logits.
#[test]
fn rgen() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = trilm_tq2_0(dir.path());
    let run = |args: &[&str]| {
        let mut command = programs::program("rgen").expect("rgen");
        command.arg("-m").arg(&model).args(args);
        let output = programs::succeed(&mut command).expect("a run");
        String::from_utf8(output.stdout).expect("text")
    };
    let prompts = std::fs::read_to_string(testdata("golden/greedy/prompts.txt")).expect("prompts");
    for (i, prompt) in prompts.lines().enumerate() {
        let got = run(&["-p", prompt, "-n", "40", "--temp", "0", "-c", "512"]);
        let path = testdata(&format!("golden/greedy/trilm-TQ2_0.{}.txt", i + 1));
        let want = std::fs::read_to_string(path).expect("a golden text");
        let want = want.trim_end_matches('\n').trim_end_matches(" [end of text]");
        assert_eq!(got.trim_end_matches('\n'), want.trim_end_matches('\n'), "{prompt}");
    }
    let golden = golden::logits("trilm-TQ2_0");
    let ids: Vec<String> = golden.tokens.iter().map(u32::to_string).collect();
    let tokens = dir.path().join("tokens.txt");
    std::fs::write(&tokens, ids.join(" ")).expect("a file");
    let tokens = tokens.to_str().expect("a path");
    let got = run(&["--tokens", tokens, "-n", "0", "--logits-sha256"]);
    let want = ids.iter().zip(&golden.sha256).enumerate();
    let want: String = want.map(|(i, (id, hash))| format!("{i} {id} {hash}\n")).collect();
    assert_eq!(got, want);
}

/// The KL divergence protocol: the base file's bytes, and the statistics against it as printed.
#[test]
fn kl_divergence() {
    let file = f16(TRILM);
    let text = std::fs::read_to_string(testdata("wikitext-2/wiki.test.raw")).expect("the text");
    let model = models::load(&file).expect("a model");
    let tokenizer = Tokenizer::from_metadata(file.meta()).expect("a tokenizer");
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let tokens = tokenizer.encode(&text, true, false).expect("tokens");
    let chunks = Chunks::new(tokens, 512, bos, Some(2)).expect("chunks");
    let mut writer = BaseWriter::new(Vec::new(), &chunks, model.n_vocab()).expect("a header");
    perplexity(&mut models::side_by_side(&model, 512), &chunks, Some(&mut writer), &mut |_, _| Ok(()))
        .expect("an estimate");
    let base = writer.finish().expect("a base file");
    // testdata/golden/README.md
    let golden = "b5fde9d0f3cc821114a121f9fb3b1bf7e0f7c60a813c1149b1ff4b93678fbf0a";
    assert_eq!(fetch::sha256(&base), golden);
    for (ty, name) in [("TQ2_0", "trilm-TQ2_0"), ("Q2_K", "q2k")] {
        let model = models::load(&ternary(TRILM, ty)).expect("a model");
        let n_vocab = model.n_vocab();
        let mut base = BaseReader::new(&base[..], base.len() as u64, n_vocab, bos, None).expect("a base");
        let mut texts = models::side_by_side(&model, 512);
        let statistics = divergence(&mut texts, &mut base, &mut |_, _| Ok(())).expect("statistics");
        let report = statistics.report().expect("enough positions");
        let want = std::fs::read_to_string(testdata(&format!("golden/kld/{name}.txt"))).expect("golden");
        assert_eq!(report.trim_end(), want.trim_end(), "{name}");
    }
}

/// The file that llama-imatrix wrote for this model.
#[track_caller]
fn check_imatrix(model: &Path, name: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("im")).expect("a directory");
    let text = dir.path().join("im/calib.txt");
    std::fs::copy(testdata("imatrix/calib.txt"), text).expect("a text");
    let model = std::fs::canonicalize(model).expect("a model");
    let mut command = programs::program("rimatrix").expect("rimatrix");
    command.current_dir(dir.path()).args(["-f", "im/calib.txt", "--chunks", "2", "--no-ppl", "-m"]).arg(model);
    programs::succeed(&mut command).expect("a matrix");
    let ours = std::fs::read(dir.path().join("imatrix.gguf")).expect("a matrix");
    let golden = std::fs::read(testdata(&format!("imatrix/{name}.imatrix.gguf")));
    assert!(ours == golden.expect("golden"), "{name}");
}

#[test]
fn smollm2() {
    if let Some(path) = or_skip(models::smollm2()) {
        let file = open(path);
        check_logits(&file, "smollm2");
        check_greedy(&file, "smollm2");
        check_imatrix(path, "smollm2");
        if is_long() {
            check_perplexity(&file, models::SMOLLM2, 1);
        }
    }
}

#[test]
fn gemma3() {
    if let Some(path) = or_skip(models::gemma3()) {
        let file = open(path);
        check_logits(&file, "gemma3");
        check_greedy(&file, "gemma3");
        if is_long() {
            check_perplexity(&file, models::GEMMA3, 1);
        }
    }
}
