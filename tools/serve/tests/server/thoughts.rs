//! Models that think before they answer.

use serde_json::{Value, json};
use trine_testkit::gguf::with_controls;

use crate::client::{ask, post};
use crate::local::{Local, start, start_with};

/// A template whose answers begin with a thought, and which shows those of earlier turns.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>\n{% endif %}{% endif %}";

fn thinking() -> Local {
    start(&["--chat-template", TEMPLATE])
}

fn body() -> Value {
    json!({"messages": [{"role": "user", "content": "The game"}], "max_tokens": 12, "seed": 3, "ignore_eos": true})
}

#[test]
fn thoughts_are_told_apart_from_the_answer() {
    let local = thinking();
    let with = |format: Option<&str>, stream: bool| {
        let mut body = body();
        body["reasoning_format"] = format.into();
        body["stream"] = stream.into();
        body
    };
    let message = |format| ask(local.to, "/v1/chat/completions", &with(format, false))["choices"][0]["message"].clone();
    let plain = message(Some("none"));
    let text = plain["content"].as_str().expect("a text").to_owned();
    assert!(!text.trim().is_empty() && plain["reasoning_content"].is_null(), "{plain}");
    // The thought has no end, so there is nothing else.
    for format in [None, Some("auto"), Some("deepseek")] {
        let parted = message(format);
        assert_eq!((&parted["reasoning_content"], &parted["content"]), (&text.trim().into(), &"".into()));
        let events = post(local.to, "/v1/chat/completions", &with(format, true)).events().0;
        let parts =
            |name: &str| -> String { events.iter().filter_map(|e| e["choices"][0]["delta"][name].as_str()).collect() };
        assert_eq!((parts("reasoning_content"), parts("content")), (text.trim().to_owned(), String::new()));
    }
    post(local.to, "/v1/chat/completions", &with(Some("x"), false)).error(400);
    let answer = ask(local.to, "/v1/messages", &body());
    assert_eq!(answer["content"][0]["type"], "thinking");
    assert_eq!(answer["content"][0]["thinking"], text.trim());
    let mut own = body();
    own["input"] = own["messages"].take();
    let answer = ask(local.to, "/v1/responses", &own);
    assert_eq!(answer["output"][0]["type"], "reasoning");
    assert_eq!(answer["output"][0]["content"][0]["text"], text.trim());
    let kept = start(&["--chat-template", TEMPLATE, "--reasoning-format", "none"]);
    assert_eq!(ask(kept.to, "/v1/chat/completions", &body())["choices"][0]["message"], plain);
    // Without thoughts, and with a form, the text is the answer.
    let mut off = body();
    off["chat_template_kwargs"] = json!({"enable_thinking": false});
    let message = &ask(local.to, "/v1/chat/completions", &off)["choices"][0]["message"];
    assert!(message["reasoning_content"].is_null() && message["content"] != "", "{message}");
    let mut form = body();
    form["response_format"] = json!({"type": "json_schema", "json_schema": {"schema": {"enum": [1, 2]}}});
    let message = &ask(local.to, "/v1/chat/completions", &form)["choices"][0]["message"];
    assert!(["1", "2"].map(Value::from).contains(&message["content"]), "{message}");
}

/// A template whose model writes every part of an answer as a message with a channel.
const CHANNELS: &str =
    "{% for m in messages %}{{ m.content }}{% endfor %}<|start|>assistant{# <|channel|>analysis<|message|> #}";

/// Marks of channels that are control tokens are seen, and stand in no answer.
#[test]
fn channels_are_thoughts_and_answers() {
    const ANALYSIS: &str = "<|channel|>analysis<|message|>";
    let folder = trine_testkit::folder();
    let model = folder.path().join("m.gguf");
    with_controls(&model, &[(4000, ANALYSIS), (4001, "<|channel|>final<|message|>"), (4002, "<|other|>")]);
    let local = start_with(model.to_str().expect("a path"), &["--chat-template", CHANNELS]);
    let message = |format: &str, token: usize| {
        let mut body = json!({"messages": [{"role": "user", "content": "The game"}], "max_tokens": 3, "seed": 3});
        body["logit_bias"] = json!([[token, 1000]]);
        body["reasoning_format"] = format.into();
        let message = ask(local.to, "/v1/chat/completions", &body)["choices"][0]["message"].clone();
        (message["reasoning_content"].clone(), message["content"].clone())
    };
    assert_eq!(message("none", 4000), (Value::Null, ANALYSIS.repeat(3).into()));
    // The first begins a thought, and the others are what the model thinks.
    assert_eq!(message("auto", 4000), (ANALYSIS.repeat(2).into(), "".into()));
    assert_eq!(message("auto", 4001), (Value::Null, "".into()));
    assert_eq!(message("none", 4002), (Value::Null, "".into()));
}

/// The template gets the thoughts of earlier turns, in whatever form they come.
#[test]
fn thoughts_of_earlier_turns_are_kept() {
    let local = thinking();
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "reasoning_content": "why", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "b"},
    ]);
    let rendered = ask(local.to, "/apply-template", &json!({ "messages": messages }))["prompt"].clone();
    // a template that does nothing with functions gets them in words
    let (call, result) =
        ("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<tool_response>\nb\n</tool_response>");
    assert_eq!(rendered, format!("user: a\nassistant: [why]{call}\nuser: {result}\nassistant: <think>\n"));
    let count = |path: &str, body: Value| ask(local.to, path, &body)["input_tokens"].clone();
    let tokens = count("/v1/chat/completions/input_tokens", json!({ "messages": messages }));
    let anthropic = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "why", "signature": ""},
            {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}]},
    ]);
    assert_eq!(count("/v1/messages/count_tokens", json!({ "messages": anthropic })), tokens);
    let items = json!([
        {"role": "user", "content": "a"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "b"},
    ]);
    assert_eq!(count("/v1/responses/input_tokens", json!({ "input": items })), tokens);
}
