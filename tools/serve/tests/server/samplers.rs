//! All of llama.cpp's samplers over HTTP: the library's texts, whatever else is asked at the same time.

use serde_json::{Value, json};
use trine::sample::{OPTIONS, Outside};
use trine::{DryOptions, GenerateOptions, Mirostat, MirostatVersion, Model, SamplerKind, SamplerOptions};

use crate::client::{ask, get, post};
use crate::local::{shared, start};

const PROMPT: &str = "The game of chess is a game of";

/// Fields of a request, and the same as options of the library.
fn cases(model: &Model) -> Vec<(Value, SamplerOptions)> {
    let d = || SamplerOptions { seed: 11, temp: 1.2, ..SamplerOptions::default() };
    let dry = |texts: &[&str]| DryOptions {
        multiplier: 1.5,
        base: 2.0,
        allowed_length: 1,
        last_n: 200,
        breakers: model.dry_breakers(texts),
    };
    let mirostat = |version, tau, eta| Mirostat { version, tau, eta };
    vec![
        (json!({}), d()),
        (
            json!({"repeat_penalty": 1.4, "repeat_last_n": 20, "presence_penalty": 0.5, "frequency_penalty": 0.25}),
            SamplerOptions {
                repeat_penalty: 1.4,
                repeat_last_n: 20,
                presence_penalty: 0.5,
                frequency_penalty: 0.25,
                ..d()
            },
        ),
        (
            json!({"dry_multiplier": 1.5, "dry_base": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": 200}),
            SamplerOptions { dry: dry(&DryOptions::BREAKERS), ..d() },
        ),
        (
            json!({"dry_multiplier": 1.5, "dry_base": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": 200, "dry_sequence_breakers": ["the", "of"]}),
            SamplerOptions { dry: dry(&["the", "of"]), ..d() },
        ),
        (
            json!({"xtc_probability": 0.7, "xtc_threshold": 0.05}),
            SamplerOptions { xtc_probability: 0.7, xtc_threshold: 0.05, ..d() },
        ),
        (
            json!({"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2}),
            SamplerOptions { mirostat: mirostat(MirostatVersion::V1, 3.0, 0.2), ..d() },
        ),
        (json!({"mirostat": 2}), SamplerOptions { mirostat: mirostat(MirostatVersion::V2, 5.0, 0.1), ..d() }),
        (json!({"top_n_sigma": 1.0, "top_k": 0}), SamplerOptions { top_n_sigma: 1.0, top_k: 0, ..d() }),
        (
            json!({"dynatemp_range": 0.6, "dynatemp_exponent": 1.5}),
            SamplerOptions { dynatemp_range: 0.6, dynatemp_exponent: 1.5, ..d() },
        ),
        (json!({"typical_p": 0.6, "min_keep": 3}), SamplerOptions { typical_p: 0.6, min_keep: 3, ..d() }),
        (
            json!({"samplers": ["temperature", "top_k", "adaptive_p"], "adaptive_target": 0.4, "adaptive_decay": 0.8}),
            SamplerOptions {
                samplers: vec![SamplerKind::Temperature, SamplerKind::TopK, SamplerKind::AdaptiveP],
                adaptive_target: 0.4,
                adaptive_decay: 0.8,
                ..d()
            },
        ),
        (
            json!({"samplers": "tmk"}),
            SamplerOptions { samplers: vec![SamplerKind::Temperature, SamplerKind::MinP, SamplerKind::TopK], ..d() },
        ),
    ]
}

fn body(fields: &Value) -> Value {
    let mut body = json!({"prompt": PROMPT, "n_predict": 48, "seed": 11, "temperature": 1.2, "return_tokens": true});
    for (name, value) in fields.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

#[test]
fn texts_are_those_of_the_library_under_load_as_well() {
    let model = crate::local::open(trine_testkit::trilm());
    let cases = cases(&model);
    let mut texts: Vec<String> = Vec::new();
    for (fields, sampler) in &cases {
        let options = GenerateOptions { sampler: sampler.clone(), ..GenerateOptions::greedy(48) };
        let text = model.generate(PROMPT, &options).expect("options");
        let text = text.complete().expect("a text").text;
        assert!(texts.first() != Some(&text), "{fields} changes nothing");
        texts.push(text);
    }
    let server = start(&[]);
    for round in 0..2 {
        std::thread::scope(|s| {
            for (i, (fields, _)) in cases.iter().enumerate() {
                let (to, expected) = (server.to, &texts[i]);
                s.spawn(move || {
                    let answer = ask(to, "/completion", &body(fields));
                    assert_eq!(answer["content"], **expected, "round {round}, {fields}");
                });
            }
        });
    }
}

#[test]
fn what_is_in_force_is_told() {
    let fields = json!({
        "dynatemp_range": 0.5, "dynatemp_exponent": 2.0, "top_n_sigma": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.25,
        "dry_multiplier": 0.5, "dry_base": 2.0, "dry_allowed_length": 3, "dry_penalty_last_n": 5, "mirostat": 2,
        "mirostat_tau": 3.0, "mirostat_eta": 0.5, "adaptive_target": 0.5, "adaptive_decay": 0.25, "min_keep": 2,
        "samplers": ["top_k", "temperature"],
    });
    let told = ask(shared(), "/completion", &body(&fields))["generation_settings"].clone();
    for (name, value) in fields.as_object().expect("fields") {
        assert_eq!(&told[name], value, "{name}");
    }
}

#[test]
fn a_text_that_cannot_be_taken_up_in_the_middle_is_refused_by_name() {
    for (fields, name) in [
        (json!({"mirostat": 2}), "mirostat"),
        (json!({"xtc_probability": 0.5}), "xtc_probability"),
        (json!({"samplers": ["adaptive_p"]}), "adaptive_p"),
    ] {
        let mut body = body(&fields);
        body["resume_tokens"] = json!([5]);
        let error = post(shared(), "/completion", &body).error(400);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("resume_tokens") && message.contains(name), "{message}");
    }
}

#[test]
fn what_tokens_are_drawn_with_is_told() {
    let fields = json!({"n_probs": 4, "top_k": 6, "n_predict": 12, "post_sampling_probs": true});
    let asked = body(&fields);
    let a = ask(shared(), "/completion", &asked);
    let mut without = asked.clone();
    without["post_sampling_probs"] = false.into();
    let b = ask(shared(), "/completion", &without);
    assert_eq!(a["content"], b["content"]);
    assert_eq!(a["generation_settings"]["post_sampling_probs"], true);
    let number = |v: &Value| v.as_f64().expect("a number");
    let list = a["completion_probabilities"].as_array().expect("a list");
    assert_eq!(list.len(), 12);
    for (i, one) in list.iter().enumerate() {
        let top = one["top_probs"].as_array().expect("a list");
        let odds: Vec<f64> = top.iter().map(|t| number(&t["prob"])).collect();
        assert!((1..=4).contains(&top.len()) && odds.is_sorted_by(|a, b| a >= b));
        assert!(odds.iter().all(|p| *p > 0.0) && odds.iter().sum::<f64>() < 1.000_001);
        let own = number(&one["prob"]);
        let same = top.iter().find(|t| t["id"] == one["id"]);
        assert!(same.map_or(own > 0.0 && own <= odds[odds.len() - 1], |t| t["prob"] == one["prob"]));
        assert_eq!(one["id"], b["completion_probabilities"][i]["id"]);
        assert!(one.get("logprob").is_none());
    }
    // All that a greedy choice leaves is the choice.
    let mut greedy = asked.clone();
    greedy["temperature"] = 0.into();
    let greedy = ask(shared(), "/completion", &greedy)["completion_probabilities"][0].clone();
    assert_eq!(number(&greedy["prob"]), 1.0);
    assert_eq!(greedy["top_probs"].as_array().map(Vec::len), Some(1));
    let chat = json!({
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "logprobs": true, "top_logprobs": 2,
        "post_sampling_probs": true,
    });
    let chat = ask(shared(), "/v1/chat/completions", &chat);
    assert!(chat["choices"][0]["logprobs"]["content"][0]["top_probs"].is_array());
    let mut text = asked;
    text["logprobs"] = 2.into();
    post(shared(), "/v1/completions", &text).error(400);
}

/// The table of docs/server.md.
fn table() -> String {
    let known: Vec<String> =
        SamplerKind::names().zip(SamplerKind::letters()).map(|(n, l)| format!("{n} {l}")).collect();
    let usual: Vec<&str> = SamplerKind::DEFAULT_CHAIN.iter().map(|kind| kind.name()).collect();
    let mut table = format!(
        "Steps and their letters: {}. Without `samplers`: {}.\n\n| field | option | default | values | |\n|---|---|---|---|---|\n",
        known.join(", "),
        usual.join(", ")
    );
    for option in OPTIONS {
        let (range, flags) = (option.range, option.flags.iter().map(|flag| format!("`{flag}`")));
        let bound = |bound: f64| (bound.abs() < f64::from(i32::MAX)).then(|| range.show(bound));
        let mut values = if range.whole { "whole numbers".to_owned() } else { "numbers".to_owned() };
        values += &bound(range.low).map_or_else(String::new, |low| format!(" from {low}"));
        values += &bound(range.high).map_or_else(String::new, |high| format!(" to {high}"));
        if range.outside != Outside::Refused {
            values += ", beyond them the nearer end";
        }
        table += &format!(
            "| `{}` | {} | {} | {values} | {} |\n",
            option.field,
            flags.collect::<Vec<_>>().join(", "),
            range.show(option.get(&SamplerOptions::default())),
            option.help
        );
    }
    table
}

#[test]
fn the_page_lists_every_option() {
    const PAGE: &str = "docs/server.md";
    let page = std::fs::read_to_string(trine_testkit::root().join(PAGE)).expect("the page");
    let begin = page.find("<!-- begin: sampler").and_then(|at| Some(at + page[at..].find('\n')? + 1));
    let (begin, end) = (begin.expect("a beginning"), page.find("<!-- end: sampler").expect("an end"));
    trine_testkit::is_written(PAGE, &[&page[..begin], &table(), &page[end..]].concat());
}

/// An option of the program's says what counts where a request does not.
#[test]
fn the_programs_sampler_is_the_one_of_requests_that_say_none() {
    let local = start(&["--top-k", "7", "--repeat-last-n", "-1", "--samplers", "top_k;temperature", "-c", "512"]);
    let told = ask(local.to, "/completion", &json!({"prompt": "The", "n_predict": 1, "top_p": 0.5}));
    let told = &told["generation_settings"];
    assert_eq!(told["top_k"], 7);
    assert_eq!((&told["repeat_last_n"], &told["top_p"]), (&json!(512), &json!(0.5)));
    assert_eq!(told["samplers"], json!(["top_k", "temperature"]));
    let props = get(local.to, "/props").json();
    assert_eq!(props["default_generation_settings"]["params"]["top_k"], 7);
}

#[test]
fn options_of_the_command_line_are_the_usual_values_of_requests() {
    let given = [
        ("--dynatemp-range", "dynatemp_range", 0.25),
        ("--dynatemp-exp", "dynatemp_exponent", 2.0),
        ("--top-p", "top_p", 0.75),
        ("--min-p", "min_p", 0.25),
        ("--typical", "typical_p", 0.5),
        ("--top-n-sigma", "top_n_sigma", 1.5),
        ("--eta-cutoff", "eta_cutoff", 0.125),
        ("--xtc-probability", "xtc_probability", 0.5),
        ("--xtc-threshold", "xtc_threshold", 0.25),
        ("--repeat-penalty", "repeat_penalty", 1.25),
        ("--presence-penalty", "presence_penalty", 0.5),
        ("--frequency-penalty", "frequency_penalty", 0.75),
        ("--dry-multiplier", "dry_multiplier", 0.5),
        ("--dry-base", "dry_base", 2.0),
        ("--dry-allowed-length", "dry_allowed_length", 3.0),
        ("--dry-penalty-last-n", "dry_penalty_last_n", 5.0),
        ("--adaptive-target", "adaptive_target", 0.5),
        ("--adaptive-decay", "adaptive_decay", 0.25),
        ("--mirostat", "mirostat", 2.0),
        ("--mirostat-lr", "mirostat_eta", 0.5),
        ("--mirostat-ent", "mirostat_tau", 3.0),
    ];
    let mut args: Vec<String> = vec!["--sampler-seq".to_owned(), "kt".to_owned()];
    args.extend(given.iter().flat_map(|(option, _, value)| [(*option).to_owned(), value.to_string()]));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let props = get(start(&args).to, "/props").json();
    let params = &props["default_generation_settings"]["params"];
    for (option, field, value) in given {
        assert_eq!(params[field].as_f64(), Some(value), "{option}");
    }
    assert_eq!(params["samplers"], json!(["top_k", "temperature"]));
}
