//! Shapes of answers.

use serde_json::{Value, json};
use trine::SessionOptions;
use trine::generate::TokenLogprobs;

use crate::client::{ask, get, post};
use crate::local::{shared, start};

#[test]
fn what_a_server_says_of_itself() {
    let to = shared();
    for path in ["/health", "/v1/health", "/livez", "/readyz"] {
        assert_eq!(get(to, path).json(), json!({"status": "ok"}));
    }
    let models = get(to, "/v1/models").json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "m");
    assert_eq!(models["data"][0]["aliases"], json!(["m", "other"]));
    assert_eq!(models["data"][0]["meta"]["n_ctx_train"], 512);
    assert_eq!(models["data"][0]["meta"]["n_vocab"], 4096);
    assert_eq!(models["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(get(to, "/models").json(), models);
    let props = get(to, "/props").json();
    assert_eq!(props["total_slots"], 16);
    assert_eq!(props["default_generation_settings"]["n_ctx"], 512);
    assert_eq!(props["default_generation_settings"]["params"]["seed"], 7);
    assert_eq!(props["model_path"], "trilm-wt-5.8m-F16.gguf");
    assert_eq!(props["build_info"], fingerprint());
    let slots = get(to, "/slots").json();
    assert_eq!(slots.as_array().map(Vec::len), Some(16));
    assert!(slots[0].get("params").is_none());
}

/// The hash is that of the bundled file, as its README has it.
fn fingerprint() -> String {
    format!("b{}-e759dfdf3c72-exact", env!("CARGO_PKG_VERSION"))
}

#[test]
fn texts_become_tokens_and_back() {
    let to = shared();
    for text in ["The game of chess", "naïve – „café“ 12.5 €", " two  spaces\n\nlines", ""] {
        let tokens = ask(to, "/tokenize", &json!({ "content": text }))["tokens"].clone();
        let back = ask(to, "/detokenize", &json!({ "tokens": tokens }));
        assert_eq!(back["content"].as_str().map(str::trim_start), Some(text.trim_start()));
        let pieces = ask(to, "/tokenize", &json!({"content": text, "with_pieces": true}));
        let ids: Vec<Value> = pieces["tokens"].as_array().expect("a list").iter().map(|t| t["id"].clone()).collect();
        assert_eq!(Value::from(ids), tokens);
    }
    post(to, "/detokenize", &json!({"tokens": [4096]})).error(400);
    post(to, "/tokenize", &json!({"content": 1})).error(400);
}

/// lm-evaluation-harness counts tokens by asking the server, and adds up the probabilities of those behind the context.
#[test]
fn the_harness_gets_the_numbers_of_the_library() {
    let to = shared();
    let info = get(to, "/tokenizer_info").json();
    assert_eq!([&info["bos_token"], &info["eos_token"]], [&json!("<|endoftext|>"), &json!("<|endoftext|>")]);
    assert_eq!(info["model_max_length"], 512);
    let tokens = |text: &str| {
        let told = ask(to, "/tokenize", &json!({"prompt": text, "add_special_tokens": false}));
        assert_eq!(told["count"].as_u64(), told["tokens"].as_array().map(|all| all.len() as u64));
        let ids = told["tokens"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32);
        ids.collect::<Vec<u32>>()
    };
    let model = crate::local::open(trine_testkit::trilm());
    assert_eq!(tokens("The game"), model.tokenizer().encode("The game", false, true).expect("tokens"));
    let (context, whole) = (tokens("The capital of the country is"), tokens("The capital of the country is a river"));
    assert_eq!(
        ask(to, "/detokenize", &json!({ "tokens": context }))["prompt"].as_str().map(str::trim_start),
        Some("The capital of the country is")
    );
    let asked =
        json!({"prompt": [whole], "max_tokens": 1, "logprobs": 1, "echo": true, "temperature": 0, "seed": 1234});
    let told = &ask(to, "/v1/completions", &asked)["choices"][0]["logprobs"];
    let of = |key: &str| told[key].as_array().expect("a list")[context.len()..whole.len()].to_vec();
    let mut session = model.session(SessionOptions { n_ctx: 64, n_ubatch: 64 });
    let mut rows = Vec::new();
    session.eval(&whole, 0, &mut |_, logits: &[f32]| rows.push(logits.to_vec())).expect("logits");
    for (n, (told, likeliest)) in of("token_logprobs").iter().zip(of("top_logprobs")).enumerate() {
        let at = context.len() + n;
        let expected = TokenLogprobs::new(&rows[at - 1], whole[at], 1);
        assert_eq!(told.as_f64().map(|x| x as f32), Some(expected.logprob));
        let all = likeliest.as_object().expect("a map").values().filter_map(Value::as_f64);
        assert_eq!(all.reduce(f64::max).map(|x| x as f32), expected.top.first().map(|top| top.1));
    }
    post(to, "/tokenize", &json!({"content": "Hi", "prompt": "Hi"})).error(400);
    assert_eq!(told["token_logprobs"].as_array().map(Vec::len), Some(whole.len() + 1));
}

#[test]
fn a_chat_is_rendered_by_its_template() {
    let to = shared();
    let messages = json!([{"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]}]);
    let prompt = ask(to, "/apply-template", &json!({ "messages": messages }))["prompt"].clone();
    assert_eq!(prompt, "system: Be brief.\nuser: Hi\n\nthere\nassistant:");
    let tokens = ask(to, "/tokenize", &json!({"content": prompt, "add_special": true}));
    let n = tokens["tokens"].as_array().map(Vec::len);
    let counted = ask(to, "/v1/chat/completions/input_tokens", &json!({ "messages": messages }));
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": n}));
    let chat = ask(to, "/v1/chat/completions", &json!({"messages": messages, "max_tokens": 4, "seed": 1}));
    assert_eq!(chat["usage"]["prompt_tokens"], json!(n));
    // the beginning of an answer is continued
    let begun = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " Well"}]);
    let prompt = ask(to, "/apply-template", &json!({ "messages": begun }))["prompt"].clone();
    assert_eq!(prompt, "user: Hi\nassistant: Well");
}

#[test]
fn native_answers() {
    let to = shared();
    let body = json!({"prompt": "The game", "n_predict": 6, "seed": 3, "n_probs": 2, "return_tokens": true});
    let a = ask(to, "/completion", &body);
    assert_eq!(a["stop"], true);
    assert_eq!(a["stop_type"], "limit");
    assert_eq!(a["truncated"], false);
    assert_eq!(a["model"], "m");
    assert_eq!(a["prompt"], "The game");
    assert_eq!(a["tokens_predicted"], 6);
    assert_eq!(a["tokens"].as_array().map(Vec::len), Some(6));
    assert_eq!(a["generation_settings"]["seed"], 3);
    assert_eq!(a["timings"]["predicted_n"], 6);
    let probs = a["completion_probabilities"].as_array().expect("a list");
    assert_eq!(probs.len(), 6);
    assert_eq!(probs[0]["top_logprobs"].as_array().map(Vec::len), Some(2));
    assert_eq!(probs[0]["id"], a["tokens"][0]);
    let several = ask(to, "/completions", &json!({"prompt": ["The", "A"], "n_predict": 1, "n": 2}));
    let indices: Vec<&Value> = several.as_array().expect("a list").iter().map(|o| &o["index"]).collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    let fields =
        json!({"prompt": "The", "n_predict": 1, "response_fields": ["content", "timings/predicted_n", "none"]});
    let reduced = ask(to, "/completion", &fields);
    assert_eq!(
        reduced.as_object().map(|o| o.keys().map(String::as_str).collect()),
        Some(vec!["content", "timings/predicted_n"])
    );
}

#[test]
fn completions_of_openai() {
    let to = shared();
    let ids = ask(to, "/tokenize", &json!({"content": "The game of chess"}))["tokens"].clone();
    let body = json!({"prompt": [ids], "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": true, "seed": 1234});
    let a = ask(to, "/v1/completions", &body);
    assert_eq!(a["object"], "text_completion");
    assert!(a["id"].as_str().is_some_and(|id| id.len() == 41 && id.starts_with("chatcmpl-")));
    assert_eq!(a["system_fingerprint"], fingerprint());
    assert_eq!(a["trine"], json!({"bits": null, "seed": 1234}));
    let n = ids.as_array().map(Vec::len).expect("a list");
    let lp = &a["choices"][0]["logprobs"];
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(lp[name].as_array().map(Vec::len), Some(n + 1), "{name}");
    }
    assert_eq!(lp["token_logprobs"][0], Value::Null);
    assert!(lp["token_logprobs"][1].as_f64().is_some_and(|p| p < 0.0));
    assert_eq!(
        a["usage"],
        json!({"completion_tokens": 1, "prompt_tokens": n, "total_tokens": n + 1,
        "prompt_tokens_details": {"cached_tokens": a["usage"]["prompt_tokens_details"]["cached_tokens"]}})
    );
    // the tokens put together are the text
    let tokens: String = lp["tokens"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(a["choices"][0]["text"], tokens);
    let plain = ask(to, "/v1/completions", &json!({"prompt": "The", "max_tokens": 1}));
    assert_eq!(plain["choices"][0]["logprobs"], Value::Null);
    assert_eq!(plain["choices"][0]["finish_reason"], "length");
}

#[test]
fn null_is_absent_and_unknown_fields_are_nothing() {
    let to = shared();
    let body = json!({"prompt": "The game", "seed": 5, "max_tokens": 8});
    let expected = ask(to, "/v1/completions", &body)["choices"].clone();
    let mut other = body.clone();
    for name in FIELDS.iter().map(|(name, _)| *name).filter(|n| !["seed", "max_tokens"].contains(n)) {
        other[name] = Value::Null;
    }
    for name in ["no_stop_trim", "skip_special_tokens", "service_tier", "user", "metadata"] {
        other[name] = json!({"x": [1, "y"]});
    }
    assert_eq!(ask(to, "/v1/completions", &other)["choices"], expected);
}

/// Fields with values of a wrong type.
const FIELDS: &[(&str, &str)] = &[
    ("n_predict", "1.5"),
    ("max_tokens", "\"1\""),
    ("max_completion_tokens", "-2"),
    ("stream", "1"),
    ("stream_options", "[]"),
    ("cache_prompt", "\"yes\""),
    ("cache_salt", "1"),
    ("return_tokens", "0"),
    ("timings_per_token", "{}"),
    ("n", "1000000"),
    ("n_keep", "\"0\""),
    ("n_discard", "-1"),
    ("temperature", "\"hot\""),
    ("top_k", "9223372036854775808"),
    ("top_p", "\"1\""),
    ("min_p", "[]"),
    ("typical_p", "true"),
    ("repeat_penalty", "1e308"),
    ("repeat_last_n", "-2147483648"),
    ("presence_penalty", "\"0\""),
    ("frequency_penalty", "{}"),
    ("samplers", "[\"nothing\"]"),
    ("seed", "4294967296"),
    ("n_probs", "-1"),
    ("logprobs", "\"5\""),
    ("min_keep", "0.5"),
    ("logit_bias", "[[1]]"),
    ("ignore_eos", "\"no\""),
    ("stop", "[1]"),
    ("bits", "9"),
    ("model", "1"),
    ("resume_tokens", "[-1]"),
    ("echo", "\"x\""),
    ("response_format", "\"json\""),
    ("grammar", "\"root ::= 'a'\""),
    ("json_schema", "7"),
    ("best_of", "2"),
    ("top_n_sigma", "\"1\""),
    ("dynatemp_range", "[]"),
    ("dynatemp_exponent", "{}"),
    ("xtc_probability", "\"0.5\""),
    ("xtc_threshold", "true"),
    ("dry_multiplier", "[0.5]"),
    ("dry_base", "\"2\""),
    ("dry_allowed_length", "0.5"),
    ("dry_penalty_last_n", "-2"),
    ("dry_sequence_breakers", "[]"),
    ("mirostat", "1.5"),
    ("mirostat_tau", "\"5\""),
    ("mirostat_eta", "[]"),
    ("adaptive_target", "{}"),
    ("adaptive_decay", "1"),
    ("t_max_predict_ms", "5"),
];

#[test]
fn wrong_values_are_refused_by_the_name_of_their_field() {
    let to = shared();
    for (name, value) in FIELDS {
        let mut body = json!({"prompt": "The", "max_tokens": 1});
        body[*name] = serde_json::from_str(value).expect("JSON");
        let error = post(to, "/v1/completions", &body).error(400);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("'{name}'")), "{name}: {message}");
        assert_eq!(error["type"], "invalid_request_error");
    }
}

#[test]
fn names_of_models() {
    let to = shared();
    let model = |model: &str| ask(to, "/v1/completions", &json!({"prompt": "The", "max_tokens": 1, "model": model}));
    assert_eq!(model("other")["model"], "other");
    assert_eq!(model("gpt-4")["model"], "gpt-4");
    let bits = json!({"prompt": "The", "max_tokens": 1, "model": "m:4bit"});
    post(to, "/v1/completions", &bits).error(400);
    let strict = start(&["--alias", "m", "--strict-model"]);
    let other = json!({"prompt": "The", "max_tokens": 1, "model": "gpt-4"});
    assert_eq!(post(strict.to, "/v1/completions", &other).error(404)["type"], "not_found_error");
}

#[test]
fn metrics_count_what_answers_say() {
    let local = start(&["--metrics"]);
    let to = local.to;
    let mut generated = 0;
    let mut prompt = 0;
    for seed in 0..3 {
        let body = json!({"prompt": format!("{seed} The game"), "max_tokens": 4, "seed": seed, "cache_prompt": false});
        let usage = ask(to, "/v1/completions", &body)["usage"].clone();
        generated += usage["completion_tokens"].as_u64().expect("a number");
        prompt += usage["prompt_tokens"].as_u64().expect("a number");
    }
    let mut cached = 0;
    for _ in 0..2 {
        // All but the last token of the second prompt is in the cache then.
        let body = json!({"prompt": "A game of the same kind", "max_tokens": 3, "seed": 1});
        let timings = ask(to, "/v1/completions", &body)["timings"].clone();
        let number = |name: &str| timings[name].as_u64().expect("a number");
        generated += number("predicted_n");
        prompt += number("prompt_n");
        cached += number("cache_n");
    }
    assert!(cached > 0);
    get(to, "/nowhere").error(404);
    let input = json!({"input": ["The game", "A game of the same kind"]});
    let usage = ask(to, "/v1/embeddings", &input)["usage"].clone();
    prompt += usage["prompt_tokens"].as_u64().expect("a number");
    // Whoever has the answer finds all of it counted.
    let text = get(to, "/metrics").text();
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {text}")).parse::<f64>().expect("a number")
    };
    assert_eq!(value("llamacpp:tokens_predicted_total"), generated as f64);
    assert_eq!(value("llamacpp:prompt_tokens_total"), prompt as f64);
    assert_eq!(value("llamacpp:prompt_tokens_cached_total"), cached as f64);
    assert_eq!(value("trine:tokens_total{bits=\"0\",kind=\"generated\"}"), generated as f64);
    assert_eq!(value("trine:requests_total{code=\"404\"}"), 1.0);
    assert_eq!(value("trine:time_to_first_token_seconds_count"), 5.0);
    assert_eq!(value("llamacpp:requests_processing"), 0.0);
    // every sample has its help and its type before it
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s));
        let typed = |n: &str| text.contains(&format!("# TYPE {n} ")) && text.contains(&format!("# HELP {n} "));
        assert!(typed(name) || base.is_some_and(typed), "{line}");
    }
}
