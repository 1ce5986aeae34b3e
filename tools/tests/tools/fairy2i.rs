//! Widely linear models from end to end: rquantize there and back, rgen, rperplexity, rinspect, rbench, and what is
//! refused.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use trine_testkit::{names_in, read, tool, trilm, wikitext};

fn run(tool: &str, args: &[&str]) -> Output {
    let exe = match tool {
        "rquantize" => env!("CARGO_BIN_EXE_rquantize"),
        "rgen" => env!("CARGO_BIN_EXE_rgen"),
        "rperplexity" => env!("CARGO_BIN_EXE_rperplexity"),
        "rinspect" => env!("CARGO_BIN_EXE_rinspect"),
        "rimatrix" => env!("CARGO_BIN_EXE_rimatrix"),
        _ => env!("CARGO_BIN_EXE_rbench"),
    };
    Command::from(tool::command(exe)).args(args).output().expect("it starts")
}

fn ok(tool: &str, args: &[&str]) -> String {
    tool::stdout(run(tool, args))
}

fn refused(tool: &str, args: &[&str]) -> String {
    tool::refusal(tool, run(tool, args)).error
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// A folder with the bundled model in widely linear form, and that form as a dense model.
fn models() -> (PathBuf, PathBuf) {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let made = DIR.get_or_init(|| {
        let dir = trine_testkit::folder();
        let (fairy, dense) = (dir.path().join("fairy.gguf"), dir.path().join("dense.gguf"));
        ok("rquantize", &[text(&trilm()), text(&fairy), "FAIRY2I"]);
        ok("rquantize", &[text(&fairy), text(&dense), "F32"]);
        dir
    });
    (made.path().join("fairy.gguf"), made.path().join("dense.gguf"))
}

#[test]
fn the_text_is_that_of_the_dense_model_and_the_bits_are_everywhere_the_same() {
    let (fairy, dense) = models();
    let greedy = |model: &Path| ok("rgen", &["-m", text(model), "-p", "The game", "-n", "64", "--temp", "0"]);
    assert_eq!(greedy(&fairy), greedy(&dense));
    for path in ["f32", "i8"] {
        let hashes = |more: &[&str]| {
            let args = ["-m", text(&fairy), "-p", "The game of the", "-n", "0", "--logits-sha256"];
            ok("rgen", &[&args[..], &["--number-path", path], more].concat())
        };
        let want = hashes(&["-t", "1"]);
        for more in [&["-t", "2", "-ub", "1"][..], &["--no-repack"], &["-t", "3", "-b", "2"]] {
            assert_eq!(hashes(more), want, "{path} {more:?}");
        }
    }
}

#[test]
fn perplexities_are_those_of_the_dense_model() {
    let (fairy, dense) = models();
    let wiki = wikitext();
    let ppl = |model: &Path, more: &[&str]| -> f64 {
        let args = ["-m", text(model), "-f", text(&wiki), "-c", "128", "--chunks", "3", "--json"];
        let report = ok("rperplexity", &[&args[..], more].concat());
        let report: Value = serde_json::from_str(&report).expect("JSON");
        report["ppl"].as_f64().expect("a perplexity")
    };
    let (exact, want) = (ppl(&fairy, &[]), ppl(&dense, &[]));
    assert!((exact / want - 1.0).abs() < 1e-3, "{exact} for {want}");
    let fast = ppl(&fairy, &["--number-path", "i8"]);
    assert!((fast / want - 1.0).abs() < 5e-3, "{fast} for {want}");
}

#[test]
fn files_are_made_again_byte_for_byte_and_an_end_leaves_nothing() {
    let (fairy, _) = models();
    let dir = trine_testkit::folder();
    let again = dir.path().join("again.gguf");
    ok("rquantize", &[text(&trilm()), text(&again), "fairy2i", "1"]);
    assert!(read(&fairy) == read(&again));
    let out = dir.path().join("other.gguf");
    let error = refused("rquantize", &[text(&fairy), text(&out), "FAIRY2I"]);
    assert!(error.contains("widely linear matrices already"), "{error}");
    let error = refused("rquantize", &[text(&fairy), text(&out), "Q8_0"]);
    assert!(error.contains("F32, F16 and BF16"), "{error}");
    let error = refused("rquantize", &[text(&trilm()), text(&out), "Q8_0", "--wl-stages", "2"]);
    assert!(error.contains("--wl-stages is for widely linear matrices"), "{error}");
    let error = refused("rquantize", &[text(&trilm()), text(&out), "FAIRY2I", "--pure"]);
    assert!(error.contains("--pure has no meaning"), "{error}");
    assert_eq!(names_in(dir.path()), ["again.gguf"]);
}

#[test]
fn rinspect_explains_codes_scales_levels_and_true_sizes() {
    let dir = trine_testkit::folder();
    let file = dir.path().join("three.gguf");
    let options = ["--wl-stages", "3", "--wl-scope", "row", "--wl-tie", "tile64", "--wl-lm-head", "dense"];
    ok("rquantize", &[&[text(&trilm()), text(&file), "FAIRY2I"], &options[..]].concat());
    let report: Value = serde_json::from_str(&ok("rinspect", &["--json", text(&file)])).expect("JSON");
    let widely = &report["widely_linear"];
    assert_eq!(widely["base_architecture"], "llama");
    assert_eq!((&widely["stages"], &widely["levels"]), (&3.into(), &27.into()));
    assert_eq!((&widely["scale_scope"], &widely["tie_rule"]), (&"row".into(), &"tile64".into()));
    assert_eq!((&widely["lm_head"], &widely["numeric_profile"]), (&"dense".into(), &"f32".into()));
    let bits = widely["bits_per_weight"].as_f64().expect("bits");
    assert!(bits > 3.0 && bits < 5.0, "{bits}");
    let streams = widely["streams"].as_array().expect("a list");
    assert_eq!(streams.len(), 6);
    for stream in streams {
        let codes = stream["codes"].as_object().expect("codes").values();
        let total: u64 = codes.map(|n| n.as_u64().expect("a count")).sum();
        assert_eq!(4 * total, widely["weights"].as_u64().expect("a count"));
        assert!(stream["least_scale"].as_f64() > Some(0.0));
    }
    let shown = ok("rinspect", &[text(&file)]);
    assert!(shown.contains("widely linear: ") && shown.contains("27 levels"), "{shown}");
}

#[test]
fn the_output_matrix_takes_the_form_with_the_lower_perplexity() {
    let dir = trine_testkit::folder();
    let [file, short] = ["auto.gguf", "text"].map(|name| dir.path().join(name));
    let all = std::fs::read_to_string(wikitext()).expect("a text");
    std::fs::write(&short, &all[..5_000]).expect("room");
    let source = trilm();
    let args = [text(&source), text(&file), "FAIRY2I", "--wl-lm-head", "auto"];
    let error = refused("rquantize", &args);
    assert!(error.contains("--wl-text"), "{error}");
    ok("rquantize", &[&args[..], &["--wl-text", text(&short)]].concat());
    let report: Value = serde_json::from_str(&ok("rinspect", &["--json", text(&file)])).expect("JSON");
    let keys = &report["shards"][0]["metadata"];
    let ppl = ["wl", "dense"].map(|form| {
        let value = &keys[format!("fairy2i.wl.lm_head_ppl.{form}")]["value"];
        value.as_f64().expect("a perplexity")
    });
    // What is the same in the digits of a file differs in those that decided.
    if ppl[0] != ppl[1] {
        let chosen = if ppl[0] < ppl[1] { "wl" } else { "dense" };
        assert_eq!(report["widely_linear"]["lm_head"], chosen, "{ppl:?}");
    }
    assert_eq!(names_in(dir.path()), ["auto.gguf", "text"]);
}

#[test]
fn matrices_that_are_codes_need_no_importance_and_other_models_no_8_bit_path() {
    let (fairy, _) = models();
    let (wiki, out) = (wikitext(), trine_testkit::folder());
    let out = out.path().join("imatrix.gguf");
    let error = refused("rimatrix", &["-m", text(&fairy), "-f", text(&wiki), "-o", text(&out)]);
    assert!(error.contains("architecture fairy2i") && error.contains("no use"), "{error}");
    let error = refused("rgen", &["-m", text(&trilm()), "-p", "x", "--number-path", "i8"]);
    assert!(error.contains("number path i8 is for models with widely linear matrices"), "{error}");
}

#[test]
fn made_up_models_are_measured() {
    let args = ["-p", "3", "-n", "2", "-r", "1", "-o", "json", "--number-path", "i8"];
    let report = ok("rbench", &[&["--synthetic", "fairy2i:tiny:W2"], &args[..]].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let name = report[0]["model_type"].as_str().unwrap_or_default().to_owned();
    assert!(name.starts_with("fairy2i") && name.ends_with("W2"), "{report}");
}
