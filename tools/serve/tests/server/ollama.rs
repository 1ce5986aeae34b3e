//! Ollama's API: the shapes of its answers, and texts that are those of the other routes.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{Response, ask, get, post, raw, request};
use crate::local::{shared, start};

/// The objects of a stream.
#[track_caller]
fn lines(response: &Response) -> Vec<Value> {
    assert_eq!(response.header("content-type"), Some("application/x-ndjson"), "{}", response.text());
    let text = response.text();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The names of an object's members, in order of the alphabet.
fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn chat(options: Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "The game"}], "options": options})
}

/// The text of the same chat on OpenAI's route.
fn of_openai(to: SocketAddr, mut body: Value) -> Value {
    body["messages"] = json!([{"role": "user", "content": "The game"}]);
    ask(to, "/v1/chat/completions", &body)["choices"][0]["message"]["content"].clone()
}

const LAST: [&str; 11] = [
    "created_at",
    "done",
    "done_reason",
    "eval_count",
    "eval_duration",
    "load_duration",
    "message",
    "model",
    "prompt_eval_count",
    "prompt_eval_duration",
    "total_duration",
];

#[test]
fn a_chat_has_the_shape_and_the_text() {
    let to = shared();
    let options = json!({"num_predict": 12, "seed": 5, "temperature": 0.9, "top_k": 50, "top_p": 0.9, "min_p": 0.01,
        "repeat_penalty": 1.1, "num_ctx": 300, "num_keep": 4, "num_gpu": 99, "stop": ["\n\n"]});
    let expected = of_openai(
        to,
        json!({"max_tokens": 12, "seed": 5, "temperature": 0.9, "top_k": 50, "top_p": 0.9, "min_p": 0.01,
            "repeat_penalty": 1.1, "stop": ["\n\n"]}),
    );
    assert_ne!(expected, "");
    let mut body = chat(options);
    body["stream"] = false.into();
    let mut whole = ask(to, "/api/chat", &body);
    assert_eq!(whole["trine"]["seed"], 5);
    whole.as_object_mut().expect("an object").remove("trine");
    assert_eq!(names(&whole), LAST);
    assert_eq!(whole["model"], "m");
    assert_eq!(whole["message"], json!({"role": "assistant", "content": expected}));
    assert_eq!(
        (&whole["done"], &whole["done_reason"], &whole["eval_count"]),
        (&true.into(), &"length".into(), &12.into())
    );
    let counted = ask(to, "/v1/chat/completions/input_tokens", &json!({"messages": body["messages"]}));
    assert_eq!(whole["prompt_eval_count"], counted["input_tokens"]);
    assert_eq!(
        whole["total_duration"].as_u64(),
        Some(
            whole["prompt_eval_duration"].as_u64().expect("a time") + whole["eval_duration"].as_u64().expect("a time")
        )
    );
    // A stream is what is meant where nothing is said.
    body.as_object_mut().expect("an object").remove("stream");
    let parts = lines(&post(to, "/api/chat", &body));
    let (last, before) = parts.split_last().expect("a part");
    for part in before {
        assert_eq!(names(part), ["created_at", "done", "message", "model"]);
        assert_eq!((&part["done"], &part["message"]["role"]), (&false.into(), &"assistant".into()));
    }
    let text: String = before.iter().filter_map(|p| p["message"]["content"].as_str()).collect();
    assert_eq!(text, expected);
    assert_eq!(last["message"], json!({"role": "assistant", "content": ""}));
    for name in ["done", "done_reason", "eval_count", "prompt_eval_count"] {
        assert_eq!(last[name], whole[name]);
    }
    // 2026-11-24T06:30:00.123456Z
    let time = last["created_at"].as_str().expect("a time");
    assert!(time.len() == 27 && time.ends_with('Z') && time[10..].starts_with('T'), "{time}");
}

#[test]
fn a_prompt_is_a_chat_unless_it_is_raw() {
    let to = shared();
    let options = json!({"num_predict": 8, "seed": 3});
    let generate = |more: Value| {
        let mut body = json!({"model": "m", "prompt": "The game", "options": options, "stream": false});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        ask(to, "/api/generate", &body)["response"].clone()
    };
    let expected = of_openai(to, json!({"max_tokens": 8, "seed": 3}));
    assert_eq!(generate(json!({})), expected);
    let raw = ask(to, "/v1/completions", &json!({"prompt": "The game", "max_tokens": 8, "seed": 3}));
    assert_eq!(generate(json!({"raw": true})), raw["choices"][0]["text"]);
    assert_ne!(raw["choices"][0]["text"], expected);
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The game"}]);
    let system = ask(to, "/v1/chat/completions", &json!({"messages": messages, "max_tokens": 8, "seed": 3}));
    assert_eq!(generate(json!({"system": "Be brief."})), system["choices"][0]["message"]["content"]);
    let streamed = post(to, "/api/generate", &json!({"prompt": "The game", "options": options}));
    let text: String = lines(&streamed).iter().filter_map(|p| p["response"].as_str()).collect();
    assert_eq!(text, expected);
    let both = json!({"prompt": "x", "raw": true, "system": "y"});
    assert_eq!(post(to, "/api/generate", &both).status, 400);
}

#[test]
fn forms_of_answers() {
    let to = shared();
    let schema = json!({"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false});
    let mut body = chat(json!({"seed": 1, "num_predict": 60}));
    (body["format"], body["stream"]) = (schema, false.into());
    let answer = ask(to, "/api/chat", &body);
    let content: Value = serde_json::from_str(answer["message"]["content"].as_str().expect("a text")).expect("JSON");
    assert!(["{\"n\":1}", "{\"n\":2}"].contains(&content.to_string().as_str()), "{content}");
    assert_eq!(answer["done_reason"], "stop");
    body["format"] = "json".into();
    let text = ask(to, "/api/chat", &body)["message"]["content"].clone();
    assert!(text.as_str().is_some_and(|text| text.starts_with('{')), "{text}");
    body["format"] = "".into();
    let text = ask(to, "/api/chat", &body)["message"]["content"].clone();
    assert_eq!(text, of_openai(to, json!({"seed": 1, "max_tokens": 60})));
}

#[test]
fn probabilities_of_tokens() {
    let to = shared();
    let mut body = chat(json!({"seed": 1, "num_predict": 3}));
    (body["logprobs"], body["top_logprobs"], body["stream"]) = (true.into(), 2.into(), false.into());
    let whole = ask(to, "/api/chat", &body)["logprobs"].clone();
    assert_eq!(whole.as_array().map(Vec::len), Some(3));
    for told in whole.as_array().expect("a list") {
        assert!(told["token"].is_string() && told["logprob"].is_number(), "{told}");
        assert_eq!(told["top_logprobs"].as_array().map(Vec::len), Some(2));
    }
    body["stream"] = true.into();
    let parts = lines(&post(to, "/api/chat", &body));
    let told: Vec<Value> = parts.iter().filter_map(|p| p["logprobs"].as_array()).flatten().cloned().collect();
    assert_eq!(Value::from(told), whole);
}

/// A template that knows functions, in the manner of Hermes, and thoughts.
const TEMPLATE: &str = "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}\
    {% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{{ m.content }}\
    {% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}\
    {% if add_generation_prompt %}assistant:{% if enable_thinking is defined and enable_thinking %}<think>{% endif %}\
    {{ reasoning_effort }}{% if 0 %}</think>{% endif %}{% endif %}";

#[test]
fn thoughts_and_functions() {
    let local = start(&["--chat-template", TEMPLATE]);
    let to = local.to;
    let mut body = chat(json!({"seed": 3, "num_predict": 9}));
    (body["stream"], body["think"]) = (false.into(), false.into());
    let plain = ask(to, "/api/chat", &body)["message"].clone();
    assert_eq!(names(&plain), ["content", "role"]);
    body["think"] = true.into();
    let thought = ask(to, "/api/chat", &body)["message"].clone();
    let of_openai = ask(
        to,
        "/v1/chat/completions",
        &json!({"messages": body["messages"], "seed": 3, "max_tokens": 9, "chat_template_kwargs": {"enable_thinking": true}}),
    );
    assert_eq!(thought["thinking"], of_openai["choices"][0]["message"]["reasoning_content"]);
    assert!(thought["thinking"].as_str().is_some_and(|text| !text.is_empty()) && thought["content"] == "", "{thought}");
    body["stream"] = true.into();
    let parts = lines(&post(to, "/api/chat", &body));
    let parts: String = parts.iter().filter_map(|p| p["message"]["thinking"].as_str()).collect();
    assert_eq!(thought["thinking"], parts.as_str());
    // Without thoughts, and with a word for how much of them.
    let prompt = |think: Value| {
        let body =
            json!({"messages": body["messages"], "options": {"num_predict": 0}, "think": think, "stream": false});
        ask(to, "/api/chat", &body)["prompt_eval_count"].as_u64().expect("a number")
    };
    assert!(prompt(false.into()) < prompt(true.into()) && prompt(true.into()) < prompt("low".into()));
    let of_generate =
        json!({"prompt": "The game", "think": true, "options": {"seed": 3, "num_predict": 9}, "stream": false});
    assert_eq!(ask(to, "/api/generate", &of_generate)["thinking"], thought["thinking"]);
    // A call that must come; what Ollama cannot ask for, the fields of the others can.
    let parameters =
        json!({"type": "object", "properties": {"n": {"enum": [1]}}, "required": ["n"], "additionalProperties": false});
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let call = json!({"messages": body["messages"], "tools": tools, "tool_choice": "required", "parallel_tool_calls": false,
        "options": {"seed": 2, "num_predict": 60}});
    let parts = lines(&post(to, "/api/chat", &call));
    let calls: Vec<&Value> = parts.iter().filter_map(|p| p["message"]["tool_calls"].as_array()).flatten().collect();
    let [one] = calls[..] else { panic!("{parts:?}") };
    assert_eq!(one["function"], json!({"index": 0, "name": "f", "arguments": {"n": 1}}));
    assert_eq!(parts.last().expect("a part")["done_reason"], "stop");
    // Results of calls come back as Ollama's clients send them: without ids.
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "thinking": "why", "tool_calls": [{"function": {"name": "f", "arguments": {"n": 1}}}]},
        {"role": "tool", "tool_name": "f", "content": "b"},
    ]);
    let with_ids = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "reasoning_content": "why",
            "tool_calls": [{"id": "", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 1}"}}]},
        {"role": "tool", "content": "b"},
    ]);
    let counted =
        ask(to, "/v1/chat/completions/input_tokens", &json!({ "messages": with_ids }))["input_tokens"].clone();
    let body = json!({"messages": messages, "options": {"num_predict": 1}, "stream": false});
    assert_eq!(ask(to, "/api/chat", &body)["prompt_eval_count"], counted);
}

#[test]
fn vectors() {
    let to = shared();
    let input = json!(["The game", "A game of the same kind"]);
    let expected = ask(to, "/v1/embeddings", &json!({ "input": input }));
    let answer = ask(to, "/api/embed", &json!({"model": "m", "input": input, "options": {}}));
    assert_eq!(names(&answer), ["embeddings", "load_duration", "model", "prompt_eval_count", "total_duration"]);
    for i in 0..2 {
        assert_eq!(answer["embeddings"][i], expected["data"][i]["embedding"]);
    }
    assert_eq!(answer["prompt_eval_count"], expected["usage"]["prompt_tokens"]);
    let one = ask(to, "/api/embed", &json!({"model": "m", "input": "The game", "dimensions": 8}));
    assert_eq!(one["embeddings"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["embeddings"][0].as_array().map(Vec::len), Some(8));
    let as_it_is = ask(to, "/v1/embeddings", &json!({"input": "The game", "embd_normalize": -1}));
    let old = ask(to, "/api/embeddings", &json!({"model": "m", "prompt": "The game"}));
    assert_eq!(old, json!({"embedding": as_it_is["data"][0]["embedding"]}));
    // Without a text such a request loads the model.
    for nothing in [json!({}), json!({"input": ""}), json!({"input": []})] {
        assert_eq!(ask(to, "/api/embed", &nothing)["embeddings"], json!([]));
    }
    assert_eq!(ask(to, "/api/embeddings", &json!({"prompt": ""})), json!({"embedding": []}));
    // What is too long is cut, unless that is not wanted.
    let n_ctx = get(to, "/props").json()["default_generation_settings"]["n_ctx"].as_u64().expect("a number");
    for text in ["the game ".repeat(4 * n_ctx as usize), "é".repeat(100_000)] {
        let long = |truncate: bool| post(to, "/api/embed", &json!({"input": text, "truncate": truncate}));
        assert_eq!(long(true).json()["prompt_eval_count"].as_u64(), Some(n_ctx));
        assert!(long(false).error_of(400).as_str().is_some_and(|e| e.contains("context")));
    }
}

#[test]
fn models_are_described() {
    let to = shared();
    let tags = get(to, "/api/tags").json()["models"].clone();
    assert_eq!(tags.as_array().map(Vec::len), Some(1));
    let details = ["families", "family", "format", "parameter_size", "parent_model", "quantization_level"];
    assert_eq!(names(&tags[0]), ["details", "digest", "model", "modified_at", "name", "size"]);
    assert_eq!(names(&tags[0]["details"]), details);
    assert_eq!((&tags[0]["name"], &tags[0]["model"]), (&"m".into(), &"m".into()));
    assert_eq!(tags[0]["details"]["quantization_level"], "F16");
    assert_eq!(tags[0]["details"]["parameter_size"], "6M");
    assert_eq!(tags[0]["details"]["families"], json!(["llama"]));
    assert_eq!(tags[0]["digest"].as_str().map(str::len), Some(64));
    let running = get(to, "/api/ps").json()["models"][0].clone();
    assert_eq!(running["expires_at"], "9999-12-31T23:59:59Z");
    for name in ["name", "model", "size", "digest", "details"] {
        assert_eq!(running[name], tags[0][name]);
    }
    for body in [json!({"model": "m"}), json!({"name": "m", "verbose": true})] {
        let shown = ask(to, "/api/show", &body);
        assert_eq!(shown["details"], tags[0]["details"]);
        assert_eq!(shown["model_info"]["general.architecture"], "llama");
        assert!(shown["model_info"]["llama.context_length"].is_u64());
        assert!(shown["model_info"]["general.parameter_count"].is_u64());
        assert_eq!(shown["model_info"]["tokenizer.ggml.tokens"], Value::Null);
        assert_eq!(shown["capabilities"], json!(["completion", "embedding"]));
        assert!(shown["parameters"].as_str().is_some_and(|p| p.starts_with("num_ctx ")));
        assert!(shown["template"].as_str().is_some_and(|t| t.contains("messages")));
    }
    let warm = start(&["--temp", "0.5", "--chat-template", TEMPLATE]);
    let shown = ask(warm.to, "/api/show", &json!({"model": "m"}));
    assert!(shown["parameters"].as_str().is_some_and(|p| p.ends_with("\ntemperature 0.5")), "{shown}");
    assert!(shown["modelfile"].as_str().is_some_and(|p| p.contains("\nPARAMETER temperature 0.5\n")), "{shown}");
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking", "embedding"]));
    let version = get(to, "/api/version").json()["version"].clone();
    let numbers: Vec<u32> = version.as_str().expect("a text").split('.').filter_map(|n| n.parse().ok()).collect();
    assert_eq!(numbers.len(), 3);
    // A request without a text loads the model, which is there already.
    let loaded = ask(to, "/api/chat", &json!({"model": "m"}));
    assert_eq!((&loaded["done_reason"], &loaded["message"]["content"]), (&"load".into(), &"".into()));
    let loaded = ask(to, "/api/generate", &json!({"model": "m", "keep_alive": 0}));
    assert_eq!((&loaded["done_reason"], &loaded["response"]), (&"load".into(), &"".into()));
}

/// The message of a refusal.
#[track_caller]
fn refused(to: SocketAddr, path: &str, body: &Value, status: u16) -> String {
    let response = post(to, path, body);
    let error = response.error_of(status);
    assert_eq!(names(&response.json()), ["error"]);
    error.as_str().unwrap_or_else(|| panic!("{}", response.text())).to_owned()
}

#[test]
fn refusals_have_the_form_of_ollama() {
    let to = shared();
    let image = json!([{"role": "user", "content": "What is that?", "images": ["aGVsbG8="]}]);
    for (path, body, name) in [
        ("/api/chat", json!({ "messages": image }), "images"),
        ("/api/generate", json!({"prompt": "x", "images": ["aGVsbG8="]}), "images"),
        ("/api/generate", json!({"prompt": "x", "template": "{{ .Prompt }}"}), "template"),
        ("/api/generate", json!({"prompt": "x", "context": [1, 2]}), "context"),
        ("/api/generate", json!({"prompt": ["x"]}), "prompt"),
        ("/api/chat", json!({"messages": [{"role": "bird", "content": "x"}]}), "role"),
        ("/api/chat", json!({"messages": [7]}), "messages"),
        ("/api/chat", json!({"messages": {}}), "messages"),
        ("/api/chat", json!({"messages": vec![json!({"role": "user", "content": ""}); 5000]}), "messages"),
        ("/api/chat", json!({"messages": [{"role": "user", "content": "x"}], "think": true}), "think"),
        ("/api/chat", json!({"messages": [{"role": "user", "content": "x"}], "think": 1}), "think"),
        (
            "/api/chat",
            json!({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}),
            "tools",
        ),
        ("/api/chat", json!({"messages": [{"role": "user", "content": "x"}], "n": 2}), "n"),
        ("/api/embed", json!({"input": 1}), "input"),
        ("/api/embed", json!({"input": vec!["x"; 2049]}), "input"),
        ("/api/embed", json!({"input": "x", "keep_alive": []}), "keep_alive"),
        ("/api/show", json!({"model": "m".repeat(300)}), "model"),
    ] {
        let message = refused(to, path, &body, 400);
        assert!(message.contains(&format!("'{name}'")), "{path} {name}: {message}");
    }
    for (name, value) in [
        ("format", json!("xml")),
        ("format", json!(1)),
        ("options", json!([])),
        ("stream", json!("no")),
        ("keep_alive", json!("soon")),
        ("model", json!("m".repeat(300))),
        ("bits", json!(9)),
    ] {
        let mut body = chat(json!({}));
        body[name] = value;
        assert!(refused(to, "/api/chat", &body, 400).contains(name), "{name}");
    }
    for (name, value) in [
        ("temperature", json!("hot")),
        ("num_predict", json!(-3)),
        ("num_predict", json!(1.5)),
        ("num_ctx", json!(0)),
        ("num_ctx", json!(2)),
        ("seed", json!(4_294_967_296_u64)),
        ("stop", json!(vec!["x"; 17])),
        ("tfs_z", json!(0.5)),
        ("penalize_newline", json!(true)),
        ("repeat_last_n", json!(-2)),
    ] {
        let message = refused(to, "/api/chat", &chat(json!({ name: value })), 400);
        assert!(message.contains(name) || message.contains("context"), "{name}: {message}");
    }
    for path in ["/api/pull", "/api/push", "/api/create", "/api/copy"] {
        assert!(refused(to, path, &json!({"model": "x"}), 501).starts_with("rserve "), "{path}");
    }
    let delete = raw(to, &request("DELETE", "/api/delete", &[], b"{}"));
    assert!(delete.error_of(501).is_string());
    assert_eq!(raw(to, &request("HEAD", "/api/blobs/sha256:0", &[], b"")).status, 501);
    assert!(get(to, "/api/nowhere").error_of(404).is_string());
    assert!(get(to, "/api/chat").error_of(405).is_string());
    let broken = raw(to, &request("POST", "/api/chat", &[], b"{"));
    assert!(broken.error_of(400).is_string());
    let strict = start(&["--alias", "m", "--strict-model", "--api-key", "k"]);
    assert_eq!(get(strict.to, "/api/tags").error_of(401), "Invalid API Key");
    let key = [("authorization", "Bearer k")];
    for (path, body) in [
        ("/api/chat", json!({"model": "x", "messages": [{"role": "user", "content": "x"}]})),
        ("/api/chat", json!({"model": "x"})),
        ("/api/show", json!({"model": "x"})),
        ("/api/embed", json!({"model": "x", "input": "x"})),
    ] {
        let unknown = raw(strict.to, &request("POST", path, &key, body.to_string().as_bytes()));
        assert!(unknown.error_of(404).as_str().is_some_and(|e| e.contains("'x'")), "{path}: {}", unknown.text());
    }
}

/// Text that a client sends in options, and that would change what other fields say, does nothing.
#[test]
fn options_are_options_and_nothing_else() {
    let to = shared();
    let options =
        json!({"num_predict": 6, "seed": 3, "messages": [], "prompt": "x", "stream": false, "n": 4, "model": 7});
    let parts = lines(&post(to, "/api/chat", &chat(options)));
    let text: String = parts.iter().filter_map(|p| p["message"]["content"].as_str()).collect();
    assert_eq!(text, of_openai(to, json!({"max_tokens": 6, "seed": 3})));
}

/// The context of a request ends its text, and the server's own does so too.
#[test]
fn a_smaller_context() {
    let to = shared();
    let mut body = chat(json!({"seed": 3, "num_ctx": 24}));
    body["stream"] = false.into();
    body["ignore_eos"] = true.into();
    let answer = ask(to, "/api/chat", &body);
    let tokens = answer["prompt_eval_count"].as_u64().zip(answer["eval_count"].as_u64());
    assert_eq!(tokens.map(|(prompt, new)| prompt + new), Some(24));
    assert_eq!(answer["done_reason"], "length");
}

/// Requests that may take too much memory are refused before anything is done, as on the other routes.
#[test]
fn memory_is_counted_first() {
    let local = start(&["--max-request-memory", "64K", "--max-body", "64K"]);
    let mut body = chat(json!({"num_predict": 400}));
    (body["logprobs"], body["top_logprobs"]) = (true.into(), 20.into());
    assert!(refused(local.to, "/api/chat", &body, 400).contains("--max-request-memory"));
    let large = json!({"prompt": "x ".repeat(60_000), "raw": true});
    assert!(refused(local.to, "/api/generate", &large, 413).contains("--max-body"));
}
