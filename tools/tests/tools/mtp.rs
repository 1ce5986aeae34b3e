//! Drafts by a model's own heads for multi-token prediction change no text, and what a file has of heads is told.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use trine_testkit::archs::{Listing, agreeing, drafter, listing, with_heads};
use trine_testkit::tool::{self, only_error, stdout};
use trine_testkit::{testdata, trilm};

/// A run of `rgen` with a model and 40 tokens before the text.
fn rgen(folder: &Path, model: &Path, args: &[&str]) -> std::process::Output {
    let prompt = folder.join("prompt");
    let ids: Vec<String> = (0..40).map(|i| (i * i * 7 % 160).to_string()).collect();
    fs::write(&prompt, ids.join(" ")).unwrap();
    let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    command.arg("-m").arg(model).arg("--tokens").arg(&prompt).args(["-n", "60", "-c", "128", "--ignore-eos"]);
    command.args(args).output().unwrap()
}

#[test]
fn drafts_by_heads_change_neither_text_nor_logits() {
    let folder = trine_testkit::folder();
    for name in ["glm4moe", "qwen35"] {
        let model = folder.path().join(name);
        fs::write(&model, agreeing(&listing(&with_heads(name)))).unwrap();
        let run = |args: &[&str]| stdout(rgen(folder.path(), &model, args));
        let drafts = ["--spec-type", "draft-mtp", "--draft-max", "5", "--draft-always"];
        for sampling in [&["--temp", "0"][..], &["--temp", "0.8", "--seed", "5"]] {
            let plain = run(&[sampling, &["--logits-sha256"]].concat());
            assert!(plain.lines().count() > 60);
            assert_eq!(run(&[sampling, &drafts, &["--logits-sha256"]].concat()), plain, "{name}, {sampling:?}");
        }
        let json: Value = serde_json::from_str(&run(&[&["--temp", "0", "--json"], &drafts[..]].concat())).unwrap();
        let draft = &json["draft"];
        let count = |name: &str| draft[name].as_u64().unwrap();
        assert_eq!((&draft["source"], &draft["tokens"]), (&"mtp".into(), &5.into()));
        assert!(count("accepted") > 10 && count("drafted") > count("accepted"), "{draft}");
    }
}

#[test]
fn drafts_by_drafters_of_other_files_change_neither_text_nor_logits() {
    let folder = trine_testkit::folder();
    let written = |name: &str, listed: &Path| {
        let path = folder.path().join(name);
        fs::write(&path, listing(listed).file()).unwrap();
        path
    };
    for (kind, spec, model, source) in [
        ("dflash", "draft-dflash", "llama-long", "dflash"),
        ("assistant", "draft-mtp", "gemma4-long", "mtp"),
        ("eagle3", "draft-eagle3", "llama-long", "eagle3"),
    ] {
        let drafting = written(kind, &drafter(kind, kind));
        let model = written(model, &testdata(&format!("archs/{model}.txt")));
        let run = |args: &[&str]| stdout(rgen(folder.path(), &model, args));
        let drafts = ["--spec-type", spec, "-md", drafting.to_str().unwrap(), "--draft-max", "5", "--draft-always"];
        for sampling in [&["--temp", "0"][..], &["--temp", "0.8", "--seed", "5"]] {
            let plain = run(&[sampling, &["--logits-sha256"]].concat());
            assert!(plain.lines().count() > 60);
            assert_eq!(run(&[sampling, &drafts, &["--logits-sha256"]].concat()), plain, "{kind}, {sampling:?}");
        }
        let json: Value = serde_json::from_str(&run(&[&["--temp", "0", "--json"], &drafts[..]].concat())).unwrap();
        assert_eq!(json["draft"]["source"], source);
        assert!(json["draft"]["drafted"].as_u64().unwrap() > 50, "{}", json["draft"]);
        let alone = only_error("rgen", rgen(folder.path(), &drafting, &[]));
        assert!(alone.contains("--spec-type") && alone.contains("-md FILE"), "{alone}");
    }
    let model = folder.path().join("llama-long");
    let other = folder.path().join("dflash");
    let args = ["--spec-type", "draft-eagle3", "-md", other.to_str().unwrap()];
    let refused = only_error("rgen", rgen(folder.path(), &model, &args));
    assert!(refused.contains("draft-eagle3, draft-dflash and draft-mtp need their own"), "{refused}");
}

#[test]
fn heads_that_are_not_there_are_refused_in_one_line() {
    let folder = trine_testkit::folder();
    let refused = |model: &Path| only_error("rgen", rgen(folder.path(), model, &["--spec-type", "draft-mtp"]));
    let none = refused(&trilm());
    assert!(none.contains("the model has no heads for multi-token prediction"), "{none}");
    let text = fs::read_to_string(with_heads("qwen35")).unwrap();
    let damaged = folder.path().join("damaged");
    let file = Listing::parse(&text.replace("nextn.eh_proj.weight 512 256", "nextn.eh_proj.weight 256 512")).file();
    fs::write(&damaged, file).unwrap();
    let shape = refused(&damaged);
    assert!(shape.contains("blk.4.nextn.eh_proj.weight"), "{shape}");
    // which a text without drafts does not need
    stdout(rgen(folder.path(), &damaged, &[]));
}

#[test]
fn what_a_file_has_of_heads_is_told() {
    let folder = trine_testkit::folder();
    let told = |listing: Listing| {
        let path = folder.path().join("model.gguf");
        fs::write(&path, listing.file()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_rinspect")).arg(&path).output().unwrap();
        let text = stdout(output);
        text.lines().find(|line| line.contains("multi-token")).map(str::to_owned)
    };
    let one = told(listing(&with_heads("qwen35")));
    let says = "a head for multi-token prediction: 15 tensors of 2.8 MB, loaded for --spec-type draft-mtp alone";
    assert_eq!(one.as_deref(), Some(says));
    let text = fs::read_to_string(with_heads("qwen35")).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.contains(" blk.4.")).collect();
    let says = "a head for multi-token prediction: whose tensors are not in the file";
    assert_eq!(told(Listing::parse(&without.join("\n"))).as_deref(), Some(says));
    assert_eq!(told(listing(&testdata("archs/qwen35-long.txt"))), None);
}
