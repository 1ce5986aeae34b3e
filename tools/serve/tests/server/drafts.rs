//! Drafts at fewer bits, by a second model and from the texts change no text, and are counted.

use std::path::Path;

use serde_json::{Value, json};
use trine::formats::gguf;
use trine::{Recipe, Target};
use trine_testkit::archs::{agreeing, drafter, listing, with_heads};

use crate::client::{ask, get, post};
use crate::determinism::{alone, requests, together};
use crate::local::{any_precision, shared, start_with};
use crate::program::program;

/// Drafts whatever they cost. The model is a ternary one, so two bits draft what three choose, and one bit mostly does
/// not.
fn always(bits: &'static str) -> Vec<&'static str> {
    vec!["--draft-bits", bits, "--draft-always", "--metrics"]
}

/// Texts of all kinds at 3 bits: long and short ones, with stop strings, biases and forms.
fn bodies() -> Vec<Value> {
    let kinds = requests(16).into_iter().enumerate();
    let bodies = kinds.map(|(i, mut body)| {
        body["max_tokens"] = (1 + i * 11 % 60).into();
        body["temperature"] = [0.0, 1.0][i % 2].into();
        match i % 5 {
            1 => body["stop"] = json!(["the", " a"]),
            2 => body["logit_bias"] = json!([[5, 2.5], [7, false]]),
            3 => body["grammar"] = "root ::= [a-z ]+".into(),
            4 => body["dry_multiplier"] = 0.8.into(),
            _ => body["ignore_eos"] = true.into(),
        }
        body
    });
    bodies.collect()
}

fn metric(text: &str, name: &str) -> f64 {
    let mut lines = text.lines().filter_map(|l| l.strip_prefix(name));
    let value = lines.find_map(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name} in {text}"))
}

#[test]
fn drafts_change_no_text() {
    let folder = trine_testkit::folder();
    let model = any_precision(folder.path());
    let bodies = bodies();
    let expected = alone(&start_with(&model, &[]), &bodies);
    for (bits, more) in [("1", &[][..]), ("2", &["--draft", "3"]), ("2", &["--kv-memory", "2M"])] {
        let options = [&always(bits), more, &["--max-queue", "64"]].concat();
        let local = start_with(&model, &options);
        assert_eq!(alone(&local, &bodies), expected, "{options:?}");
        assert_eq!(together(local.to, &bodies), expected, "{options:?}");
        let metrics = get(local.to, "/metrics").text();
        let drafted = metric(&metrics, "llamacpp:spec_decode_num_draft_tokens_total ");
        let accepted = metric(&metrics, "llamacpp:spec_decode_num_accepted_tokens_total ");
        let right = match bits {
            "1" => accepted < 0.9 * drafted,
            _ => accepted > 0.9 * drafted,
        };
        assert!(right && accepted > 0.0, "{bits}: {accepted} of {drafted}");
    }
}

#[test]
fn widths_draft_side_by_side() {
    let folder = trine_testkit::folder();
    let model = any_precision(folder.path());
    let mut bodies = bodies();
    for (i, body) in bodies.iter_mut().enumerate() {
        body["bits"] = (1 + i % 3).into();
    }
    let expected = alone(&start_with(&model, &[]), &bodies);
    for (i, body) in bodies.iter_mut().enumerate() {
        // Not at all, and at one or two bits.
        body["draft_bits"] = [json!(0), json!(1), json!(1 + i % 2)][i % 3].clone();
    }
    let local = start_with(&model, &["--draft-always", "--max-queue", "64"]);
    assert_eq!(together(local.to, &bodies), expected);
}

/// Writes a model that drafts for the bundled one: the same in another type, with a vocabulary of its own where `other`
/// says so, whose first tokens are in another order.
fn second(folder: &Path, ty: &str, other: bool) -> String {
    let path = folder.join(format!("{ty}-{other}.gguf"));
    let mut file = trine::open_file(trine_testkit::trilm(), true).expect("a file");
    if other {
        let key = "tokenizer.ggml.tokens";
        let tokens = file.meta().get_strs(key).expect("texts").expect("tokens");
        let mut texts: Vec<Vec<u8>> = tokens.iter().map(<[u8]>::to_vec).collect();
        texts.swap(300, 301);
        file.set_meta(key, gguf::Value::Array(gguf::Array::Str(texts.iter().collect())));
    }
    let recipe = Recipe { allow_requantize: true, ..Recipe::new(Target::parse(ty).expect("a target")) };
    trine::quantize(&file, &recipe, &path).expect("a file");
    path.to_str().expect("a path").to_owned()
}

#[test]
fn second_models_and_the_texts_themselves_draft() {
    let folder = trine_testkit::folder();
    let model = trine_testkit::trilm();
    let model = model.to_str().expect("a path");
    let bodies = bodies();
    let expected = alone(&start_with(model, &[]), &bodies);
    let same = second(folder.path(), "Q8_0", false);
    let other = second(folder.path(), "Q4_0", true);
    for (options, least) in [
        (&["--model-draft", &same, "--spec-type", "draft-simple"][..], 0.6),
        (&["--model-draft", &other, "--draft-max", "3"], 0.1),
        (&["--model-draft", &same, "--kv-memory", "2M"], 0.6),
        (&["--spec-type", "ngram-simple"], 0.02),
    ] {
        let options = [options, &["--draft-always", "--metrics", "--max-queue", "64"]].concat();
        let local = start_with(model, &options);
        assert_eq!(alone(&local, &bodies), expected, "{options:?}");
        assert_eq!(together(local.to, &bodies), expected, "{options:?}");
        let metrics = get(local.to, "/metrics").text();
        let drafted = metric(&metrics, "llamacpp:spec_decode_num_draft_tokens_total ");
        let accepted = metric(&metrics, "llamacpp:spec_decode_num_accepted_tokens_total ");
        assert!(drafted > 100.0 && accepted > least * drafted, "{options:?}: {accepted} of {drafted}");
    }
}

/// Texts of the tokens of small random models, which repeat themselves.
fn of_tokens() -> Vec<Value> {
    let one = |i: usize| {
        let prompt: Vec<usize> = [5, 9, 70, 3 + i, 3, 21].repeat(1 + i % 3);
        json!({
            "prompt": prompt, "max_tokens": 1 + (3 + i * 17) % 50, "seed": i, "temperature": 0.8 * (i % 2) as f64,
            "ignore_eos": !i.is_multiple_of(3), "logprobs": i % 3, "return_tokens": true,
        })
    };
    (0..12).map(one).collect()
}

#[test]
fn recurrent_models_draft_too() {
    let folder = trine_testkit::folder();
    let bodies = of_tokens();
    let models = ["falcon-h1-dense", "mamba2-long", "qwen3next-long", "rwkv7-long"].map(|name| {
        let path = folder.path().join(name);
        let model = listing(&trine_testkit::testdata(&format!("archs/{name}.txt")));
        std::fs::write(&path, model.file()).expect("room for the model");
        path.to_str().expect("a path").to_owned()
    });
    for (i, model) in models.iter().enumerate() {
        let other = &models[(i + 1) % models.len()];
        let expected = alone(&start_with(model, &["-c", "128"]), &bodies);
        let (mut drafted, mut accepted) = (0.0, 0.0);
        for options in [
            &["--model-draft", model][..],
            &["--model-draft", other, "--parallel", "3"],
            &["--spec-type", "ngram-simple", "--draft-max", "3"],
        ] {
            let options = [options, &["-c", "128", "--draft-always", "--metrics"]].concat();
            let local = start_with(model, &options);
            assert_eq!(alone(&local, &bodies), expected, "{model}, {options:?}");
            assert_eq!(together(local.to, &bodies), expected, "{model}, {options:?}");
            let metrics = get(local.to, "/metrics").text();
            drafted += metric(&metrics, "llamacpp:spec_decode_num_draft_tokens_total ");
            accepted += metric(&metrics, "llamacpp:spec_decode_num_accepted_tokens_total ");
        }
        // Some are right, and some are taken back.
        assert!(accepted > 20.0 && accepted + 100.0 < drafted, "{model}: {accepted} of {drafted}");
    }
}

#[test]
fn heads_of_models_draft() {
    let folder = trine_testkit::folder();
    let bodies = of_tokens();
    for name in ["glm4moe", "qwen35", "qwen3next"] {
        let path = folder.path().join(name);
        std::fs::write(&path, agreeing(&listing(&with_heads(name)))).expect("room for the model");
        let model = path.to_str().expect("a path");
        let expected = alone(&start_with(model, &["-c", "128"]), &bodies);
        for more in [&["--ubatch-size", "4"][..], &["--parallel", "3", "--draft-max", "3"]] {
            let options = [&["--spec-type", "draft-mtp", "-c", "128", "--draft-always", "--metrics"], more].concat();
            let local = start_with(model, &options);
            assert_eq!(alone(&local, &bodies), expected, "{name}, {options:?}");
            assert_eq!(together(local.to, &bodies), expected, "{name}, {options:?}");
            let metrics = get(local.to, "/metrics").text();
            let drafted = metric(&metrics, "llamacpp:spec_decode_num_draft_tokens_total ");
            let accepted = metric(&metrics, "llamacpp:spec_decode_num_accepted_tokens_total ");
            assert!(accepted > 0.3 * drafted && accepted < drafted, "{name}, {options:?}: {accepted} of {drafted}");
        }
    }
}

#[test]
fn drafters_of_other_files_draft() {
    let folder = trine_testkit::folder();
    let bodies = of_tokens();
    let written = |name: &str, listed: &Path| {
        let path = folder.path().join(name);
        std::fs::write(&path, listing(listed).file()).expect("room for the model");
        path.to_str().expect("a path").to_owned()
    };
    for (kind, spec, model) in [
        ("eagle3", "draft-eagle3", "llama-long"),
        ("dflash", "draft-dflash", "llama-long"),
        ("assistant", "draft-mtp", "gemma4-long"),
    ] {
        let drafting = written(kind, &drafter(kind, kind));
        let model = written(model, &trine_testkit::testdata(&format!("archs/{model}.txt")));
        let expected = alone(&start_with(&model, &["-c", "128"]), &bodies);
        for more in [&["--ubatch-size", "4"][..], &["--parallel", "3", "--draft-max", "3"]] {
            let source = ["--spec-type", spec, "--model-draft", &drafting, "-c", "128", "--draft-always", "--metrics"];
            let options = [&source, more].concat();
            let local = start_with(&model, &options);
            assert_eq!(alone(&local, &bodies), expected, "{options:?}");
            assert_eq!(together(local.to, &bodies), expected, "{options:?}");
            let metrics = get(local.to, "/metrics").text();
            let drafted = metric(&metrics, "llamacpp:spec_decode_num_draft_tokens_total ");
            assert!(drafted > 50.0, "{options:?}: {drafted}");
        }
    }
}

#[test]
fn what_was_drafted_is_told() {
    let folder = trine_testkit::folder();
    let model = any_precision(folder.path());
    let local = start_with(&model, &always("1"));
    let mut sums = [0, 0];
    for seed in 0..4 {
        let body = json!({
            "prompt": "The game of the", "n_predict": 48, "seed": seed, "temperature": 0.3, "ignore_eos": true,
        });
        let a = ask(local.to, "/completion", &body);
        let timings = &a["timings"];
        let [drafted, accepted] = ["draft_n", "draft_n_accepted"].map(|name| {
            let number = timings[name].as_u64();
            number.unwrap_or_else(|| panic!("{name} in {timings}"))
        });
        // A token that was drafted wrongly takes a step of its own.
        assert!(accepted <= drafted && accepted < 48, "{timings}");
        sums = [sums[0] + drafted, sums[1] + accepted];
    }
    assert!(sums[1] > 0);
    let told = ["llamacpp:spec_decode_num_draft_tokens_total ", "llamacpp:spec_decode_num_accepted_tokens_total "];
    let metrics = get(local.to, "/metrics").text();
    assert_eq!(told.map(|name| metric(&metrics, name) as u64), sums);
    let first = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} ";
    assert!(metric(&metrics, first) > 0.0);
    let none = json!({"prompt": "The game", "n_predict": 30, "draft_bits": 0});
    let timings = ask(local.to, "/completion", &none)["timings"].clone();
    assert!(timings.get("draft_n").is_none(), "{timings}");
}

#[test]
fn drafts_that_cannot_be_are_refused() {
    let folder = trine_testkit::folder();
    let local = start_with(&any_precision(folder.path()), &[]);
    for (to, bits, draft) in [(local.to, 3, 3), (local.to, 1, 2), (local.to, 3, 8)] {
        let body = json!({"prompt": "The", "max_tokens": 2, "bits": bits, "draft_bits": draft});
        let error = post(to, "/v1/completions", &body).error(400);
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("draft_bits"), "{message}");
    }
    let body = json!({"prompt": "The", "max_tokens": 2, "draft_bits": 3});
    post(shared(), "/v1/completions", &body).error(400);
}

#[test]
fn sources_that_cannot_be_end_the_start_in_one_line() {
    let model = trine_testkit::trilm();
    let model = model.to_str().expect("a path");
    for (words, says) in [
        (&["-md", "/nowhere.gguf"][..], "/nowhere.gguf"),
        (&["--spec-type", "draft-simple"], "give the draft model with -md FILE"),
        (&["-md", model, "--spec-type", "ngram-simple"], "drafts come from one source"),
        (&["--draft-bits", "2"], "--draft-bits: "),
        (&["--spec-type", "draft-mtp"], "the model has no heads for multi-token prediction"),
        (&["-md", model, "--spec-type", "draft-mtp"], "drafters are of 'eagle3', 'dflash' or 'gemma4-assistant'"),
    ] {
        let output = program().args(["-m", model, "--port", "0"]).args(words).output().expect("an end");
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or_default();
        assert!(!output.status.success() && last.starts_with("rserve: error: ") && last.contains(says), "{text}");
    }
}
