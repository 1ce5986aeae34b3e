//! Functions that the model may call.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use trine_testkit::gguf::with_controls;

use crate::client::{ask, get, post};
use crate::local::{Local, start, start_with};

/// A template in the manner of Hermes and Qwen.
const HERMES: &str = "{% if tools %}tools:{% for t in tools %} {{ t | tojson }}{% endfor %}{{ '\\n' }}{% endif %}\
    {% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}<tool_call>\n\
    {{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}{{ '\\n' }}{% endfor %}\
    {% if add_generation_prompt %}assistant:{% endif %}";

/// One that gives functions to a model of which nobody knows how it calls them.
const OTHER: &str = "{{ tools | length }}{% for m in messages %}{{ m.content }}\n{% endfor %}";

fn with_template(template: &str) -> Local {
    let folder = trine_testkit::folder();
    let path: PathBuf = folder.path().join("tools.jinja");
    std::fs::write(&path, template).expect("a file");
    start(&["--chat-template-file", path.to_str().expect("a path")])
}

fn functions() -> Value {
    let kind = json!({"type": "object", "properties": {"kind": {"enum": ["rain", "wind"]}}, "required": ["kind"], "additionalProperties": false});
    // A schema with definitions of its own.
    let place = json!({
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/at"}},
        "required": ["at"],
        "additionalProperties": false,
        "$defs": {"at": {"type": "integer", "minimum": 0, "maximum": 9}},
    });
    json!([
        {"type": "function", "function": {"name": "get_weather", "description": "Tell it", "parameters": kind}},
        {"type": "function", "function": {"name": "go-to", "parameters": place}},
        {"type": "function", "function": {"name": "stop"}},
    ])
}

fn body(choice: Value, seed: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": "Is it raining?"}],
        "tools": functions(), "tool_choice": choice, "seed": seed, "temperature": 1.3, "max_tokens": 160,
        "parallel_tool_calls": false,
    })
}

/// A call as it must be.
#[track_caller]
fn fits(call: &Value) {
    assert_eq!(call["type"], "function");
    let id = call["id"].as_str().expect("an id");
    assert!(id.starts_with("call_") && id.len() == 29, "{id}");
    let arguments = call["function"]["arguments"].as_str().expect("a text");
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    match call["function"]["name"].as_str() {
        Some("get_weather") => {
            assert!(["rain", "wind"].map(Value::from).contains(&arguments["kind"]), "{call}");
        }
        Some("go-to") => assert!(arguments["at"].as_u64().is_some_and(|n| n < 10), "{call}"),
        Some("stop") => assert!(arguments.is_object(), "{call}"),
        _ => panic!("{call}"),
    }
}

/// The calls that the deltas of a stream add up to, and its content.
fn streamed(local: &Local, body: &Value) -> (Vec<Value>, String, Value) {
    let mut body = body.clone();
    body["stream"] = true.into();
    let (events, done) = post(local.to, "/v1/chat/completions", &body).events();
    assert!(done);
    let (mut calls, mut content, mut reason): (Vec<Value>, _, _) = (Vec::new(), String::new(), Value::Null);
    for event in &events {
        let choice = &event["choices"][0];
        content += choice["delta"]["content"].as_str().unwrap_or_default();
        for part in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = part["index"].as_u64().expect("an index") as usize;
            if index == calls.len() {
                // The first delta of a call names it, the others do not.
                assert!(part["id"].is_string() && part["function"]["name"].is_string(), "{part}");
                calls.push(json!({"id": part["id"], "type": part["type"], "function": part["function"]}));
                continue;
            }
            assert_eq!(index + 1, calls.len());
            assert!(part.get("id").is_none(), "{part}");
            let more = part["function"]["arguments"].as_str().expect("a text");
            let call = &mut calls[index]["function"]["arguments"];
            *call = format!("{}{more}", call.as_str().expect("a text")).into();
        }
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
        }
    }
    (calls, content, reason)
}

/// Marks in the templates of models that write calls in other ways, and the beginning of a call of `go-to` there.
const WAYS: [(&str, &str); 15] = [
    ("<tool_call> <function= <parameter=", "<tool_call>\n<function=go-to>\n<parameter=at>\n"),
    ("<tool_call> <arg_key> <arg_value>", "<tool_call>go-to\n<arg_key>at</arg_key>\n<arg_value>"),
    ("<minimax:tool_call>", "<minimax:tool_call>\n<invoke name=\"go-to\">\n<parameter name=\"at\">"),
    ("<seed:tool_call>", "<seed:tool_call>\n<function=go-to>\n<parameter=at>"),
    ("[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]go-to[ARGS]{\"at\": "),
    ("[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"go-to\", \"arguments\": {\"at\": "),
    (
        "<｜tool▁calls▁begin｜> ```json",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>go-to\n```json\n{\"at\": ",
    ),
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>go-to<｜tool▁sep｜>{\"at\": "),
    (
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.go-to:3<|tool_call_argument_begin|>{\"at\": ",
    ),
    ("<|tool_call>", "<|tool_call>call:go-to{at:"),
    ("<start_function_call>", "<start_function_call>call:go-to{at:"),
    (
        "<|START_ACTION|>",
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"go-to\", \"parameters\": {\"at\": ",
    ),
    (
        "<|channel|>commentary <|call|>",
        "<|channel|>commentary to=functions.go-to <|constrain|>json<|message|>{\"at\": ",
    ),
    ("<|tools_prefix|>", "<|tools_prefix|>[{\"go-to\": {\"at\": "),
    ("<|tool_call|>", "<|tool_call|>[{\"name\": \"go-to\", \"arguments\": {\"at\": "),
];

/// A template with these marks.
fn marked(marks: &str) -> String {
    format!("{{{{ tools | length }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}{{# {marks} #}}")
}

/// The ways of other models: a call that must come, several of them, and one that a text comes to.
#[test]
fn calls_in_the_way_of_the_model() {
    for (marks, begun) in WAYS {
        let local = with_template(&marked(marks));
        let mut most = 0;
        for seed in 0..8 {
            if seed > 1 && most > 0 {
                break;
            }
            let mut required = body(json!("required"), seed);
            // The other functions' texts have no end of their own.
            required["tools"].as_array_mut().expect("an array").truncate(2);
            required["parallel_tool_calls"] = true.into();
            let a = ask(local.to, "/v1/chat/completions", &required);
            let calls = a["choices"][0]["message"]["tool_calls"].as_array().expect("calls").clone();
            let (parts, content, _) = streamed(&local, &required);
            let functions = |calls: &[Value]| calls.iter().map(|c| c["function"].clone()).collect::<Vec<_>>();
            assert_eq!(functions(&parts), functions(&calls), "{marks}");
            assert_eq!(content, "", "{marks}");
            let whole = if a["choices"][0]["finish_reason"] == "length" { calls.len() - 1 } else { calls.len() };
            calls[..whole].iter().for_each(fits);
            most = most.max(whole);
        }
        assert!(most > 0, "{marks}");
        let mut auto = body(json!("auto"), 1);
        let tokens = ask(local.to, "/tokenize", &json!({"content": format!("Well. {begun}")}));
        auto["resume_tokens"] = tokens["tokens"].clone();
        auto["return_tokens"] = true.into();
        let a = ask(local.to, "/v1/chat/completions", &auto);
        let rest = ask(local.to, "/detokenize", &json!({ "tokens": a["choices"][0]["tokens"] }));
        let rest = rest["content"].as_str().expect("a text");
        assert!(rest.trim_start().starts_with(|c: char| c.is_ascii_digit()), "{marks}: {rest}");
    }
}

/// Marks that are control tokens are seen in calls, and nowhere else.
#[test]
fn marks_that_are_control_tokens() {
    let folder = trine_testkit::folder();
    let (model, template) = (folder.path().join("m.gguf"), folder.path().join("t.jinja"));
    with_controls(&model, &[(4000, "[TOOL_CALLS]"), (4001, "[ARGS]"), (4002, "[OTHER]")]);
    std::fs::write(&template, marked("[TOOL_CALLS] [ARGS]")).expect("a file");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let local = start_with(&path(&model), &["--chat-template-file", &path(&template)]);
    let mut request = body(json!("required"), 3);
    // the marks, and nothing that looks like them
    request["logit_bias"] = json!([[4000, 100], [4001, 100]]);
    request["return_tokens"] = true.into();
    request["tool_choice"] = json!({"type": "function", "function": {"name": "go-to"}});
    let a = ask(local.to, "/v1/chat/completions", &request);
    let tokens = a["choices"][0]["tokens"].as_array().expect("tokens").clone();
    assert!(tokens[0] == 4000 && tokens.contains(&json!(4001)), "{a}");
    fits(&a["choices"][0]["message"]["tool_calls"][0]);
    let (parts, content, _) = streamed(&local, &request);
    assert_eq!(parts[0]["function"], a["choices"][0]["message"]["tool_calls"][0]["function"]);
    assert_eq!(content, "");
    // a text without functions, and other control tokens beside calls, show none
    let mut request = body(json!("none"), 3);
    request["max_tokens"] = 4.into();
    request["logit_bias"] = json!([[4000, 1000]]);
    let a = ask(local.to, "/v1/chat/completions", &request);
    assert_eq!(a["choices"][0]["message"]["content"], "", "{a}");
    request["tool_choice"] = "auto".into();
    request["logit_bias"] = json!([[4002, 1000]]);
    let a = ask(local.to, "/v1/chat/completions", &request);
    assert!(!a.to_string().contains("OTHER"), "{a}");
}

#[test]
fn calls_that_must_come() {
    for template in [HERMES, OTHER, "{{ tools }}<|python_tag|>{{ messages[0].content }}"] {
        let local = with_template(template);
        for seed in 0..6 {
            let required = body(json!("required"), seed);
            let a = ask(local.to, "/v1/chat/completions", &required);
            let message = &a["choices"][0]["message"];
            if a["choices"][0]["finish_reason"] == "length" {
                continue;
            }
            assert_eq!(a["choices"][0]["finish_reason"], "tool_calls", "{a}");
            assert_eq!(message["content"], Value::Null);
            let calls = message["tool_calls"].as_array().expect("calls");
            assert_eq!(calls.len(), 1);
            fits(&calls[0]);
            let (parts, content, reason) = streamed(&local, &required);
            assert_eq!(parts.len(), 1);
            assert_eq!(parts[0]["function"], calls[0]["function"]);
            assert_eq!((content.as_str(), &reason), ("", &json!("tool_calls")));
        }
        let named = body(json!({"type": "function", "function": {"name": "go-to"}}), 1);
        let a = ask(local.to, "/v1/chat/completions", &named);
        let call = &a["choices"][0]["message"]["tool_calls"][0];
        assert_eq!(call["function"]["name"], "go-to");
        fits(call);
    }
}

#[test]
fn several_calls_in_one_answer() {
    let local = with_template(HERMES);
    let mut most = 0;
    for seed in 0..12 {
        let mut body = body(json!("required"), seed);
        body["parallel_tool_calls"] = true.into();
        // The other functions' texts have no end of their own.
        body["tools"].as_array_mut().expect("an array").truncate(2);
        let a = ask(local.to, "/v1/chat/completions", &body);
        let calls = a["choices"][0]["message"]["tool_calls"].as_array().expect("calls").clone();
        let (parts, ..) = streamed(&local, &body);
        let functions = |calls: &[Value]| calls.iter().map(|c| c["function"].clone()).collect::<Vec<_>>();
        assert_eq!(functions(&parts), functions(&calls));
        let whole = if a["choices"][0]["finish_reason"] == "length" { calls.len() - 1 } else { calls.len() };
        calls[..whole].iter().for_each(fits);
        most = most.max(whole);
    }
    assert!(most > 1, "{most}");
}

#[test]
fn calls_that_may_come() {
    let local = with_template(HERMES);
    for seed in 0..4 {
        // The model does not know how to call, so it writes.
        let mut auto = body(json!("auto"), seed);
        auto["max_tokens"] = 20.into();
        let a = ask(local.to, "/v1/chat/completions", &auto);
        let text = a["choices"][0]["message"]["content"].as_str().expect("a text");
        assert!(!text.is_empty() && a["choices"][0]["message"].get("tool_calls").is_none());
        let (_, content, _) = streamed(&local, &auto);
        assert_eq!(content, text);
        auto["tool_choice"] = "none".into();
        let a = ask(local.to, "/v1/chat/completions", &auto);
        assert!(a["choices"][0]["message"]["content"].is_string());
        // Once it has begun a call, it goes on as it must.
        let mut begun = body(json!("auto"), seed);
        let tokens = ask(local.to, "/tokenize", &json!({"content": "Well. <tool_call>"}));
        begun["resume_tokens"] = tokens["tokens"].clone();
        begun["return_tokens"] = true.into();
        let a = ask(local.to, "/v1/chat/completions", &begun);
        let rest = &a["choices"][0]["tokens"];
        let rest = ask(local.to, "/detokenize", &json!({ "tokens": rest }));
        let rest = rest["content"].as_str().expect("a text");
        assert!(rest.starts_with("\n{\"name\": \""), "{rest}");
    }
}

#[test]
fn what_the_template_gets() {
    let local = with_template(HERMES);
    let messages = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "go-to", "arguments": "{\"at\": 3}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "there"},
    ]);
    let one = json!([{"type": "function", "function": {"name": "stop", "parameters": {"type": "object"}}}]);
    let prompt = ask(local.to, "/apply-template", &json!({"messages": messages, "tools": one}));
    assert_eq!(
        prompt["prompt"],
        "tools: {\"type\": \"function\", \"function\": {\"name\": \"stop\", \"parameters\": {\"type\": \"object\"}}}\n\
         system: Be brief.\nuser: Go\nassistant: <tool_call>\n{\"name\": \"go-to\", \"arguments\": {\"at\": 3}}\n</tool_call>\n\
         tool: there\nassistant:"
    );
}

#[test]
fn arguments_that_are_named_each_need_names() {
    let local = with_template(&marked(WAYS[0].0));
    let mut request = body(json!("required"), 0);
    request["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}}}]);
    let error = post(local.to, "/v1/chat/completions", &request).error(400);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("'properties'")), "{error}");
}

/// A template that does nothing with functions: the model is told of them in words, and calls as it is told.
#[test]
fn templates_without_functions() {
    let plain = start(&[]);
    let required = body(json!({"type": "function", "function": {"name": "go-to"}}), 1);
    let a = ask(plain.to, "/v1/chat/completions", &required);
    fits(&a["choices"][0]["message"]["tool_calls"][0]);
    let prompt = ask(plain.to, "/apply-template", &required)["prompt"].clone();
    let prompt = prompt.as_str().expect("a text");
    assert!(prompt.contains("<tool_call>\n{\"name\": \"NAME\"") && prompt.contains("\"get_weather\""), "{prompt}");
    assert!(prompt.ends_with("Is it raining?\nassistant:"), "{prompt}");
}

#[test]
fn functions_that_are_none() {
    let local = with_template(HERMES);
    let refused = |tools: Value, choice: Value, name: &str| {
        let body = json!({"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": choice, "max_tokens": 2});
        let error = post(local.to, "/v1/chat/completions", &body).error(400);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("'{name}'")), "{body}: {message}");
    };
    let function = |f: Value| json!([{"type": "function", "function": f}]);
    for tools in [
        json!({}),
        json!([1]),
        json!([{"type": "retrieval"}]),
        function(json!({})),
        function(json!({"name": ""})),
        function(json!({"name": "a b"})),
        function(json!({"name": "x".repeat(65)})),
        function(json!({"name": "f", "parameters": 1})),
        function(json!({"name": "f", "parameters": {"type": "bird"}})),
        function(json!({"name": "f", "parameters": {"type": "string", "pattern": "["}})),
        function(
            json!({"name": "f", "parameters": {"type": "object", "properties": {"a": {"$ref": "file:///x"}}, "required": ["a"]}}),
        ),
        Value::from(vec![json!({"type": "function", "function": {"name": "f"}}); 129]),
    ] {
        refused(tools, json!("required"), "tools");
    }
    for choice in [json!("never"), json!(1), json!({}), json!({"type": "function", "function": {"name": "other"}})] {
        refused(functions(), choice, "tool_choice");
    }
    refused(json!([]), json!("required"), "tool_choice");
    let mut both = body(json!("required"), 0);
    both["response_format"] = json!({"type": "json_object"});
    post(local.to, "/v1/chat/completions", &both).error(400);
    // A text that would be a control token is none in the description of a function.
    let control = get(local.to, "/props").json()["eos_token"].clone();
    assert!(control.as_str().is_some_and(|c| !c.is_empty()));
    let hidden = function(json!({"name": "f", "description": control}));
    let error = post(
        local.to,
        "/v1/chat/completions",
        &json!({"messages": [{"role": "user", "content": "x"}], "tools": hidden, "max_tokens": 2}),
    );
    assert_eq!(error.status, 400, "{}", error.text());
}

/// Variables of the template come from the request, as text that holds no control tokens.
#[test]
fn variables_of_the_template() {
    let template = "{{ reasoning_effort }}|{{ enable_thinking }}|{{ more.x if more }}|{{ messages[0].content }}";
    let local = with_template(template);
    let prompt = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        ask(local.to, "/apply-template", &body)["prompt"].clone()
    };
    assert_eq!(prompt(json!({})), "|True||Hi");
    let kwargs = json!({"enable_thinking": true, "more": {"x": 7}});
    assert_eq!(prompt(json!({"chat_template_kwargs": kwargs})), "|True|7|Hi");
    assert_eq!(prompt(json!({"reasoning_effort": "low"})), "low|True||Hi");
    assert_eq!(prompt(json!({"reasoning_effort": "none"})), "|False||Hi");
    let control = get(local.to, "/props").json()["eos_token"].clone();
    for kwargs in [json!([]), json!({"messages": []}), json!({"more": {"x": control}})] {
        let body =
            json!({"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": kwargs, "max_tokens": 1});
        post(local.to, "/v1/chat/completions", &body).error(400);
    }
}
