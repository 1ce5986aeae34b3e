//! Chats in the forms of `/v1/responses` and `/v1/messages`.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{ask, post};
use crate::local::{shared, start};

const PARSED: &str = "{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function.name }}{% endfor %}\n{% endfor %}assistant:";

/// The text of the same chat by the plain route.
fn plain(to: SocketAddr, messages: Value, more: &Value) -> Value {
    let mut body = more.clone();
    body["messages"] = messages;
    ask(to, "/v1/chat/completions", &body)["choices"][0]["message"]["content"].clone()
}

/// The events of a stream with their names.
fn events(to: SocketAddr, path: &str, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = true.into();
    let text = post(to, path, &body).text();
    let event = |part: &str| -> Value {
        let (name, data) = part.split_once("\ndata: ").expect("an event");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    };
    text.trim_end().split("\n\n").map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().filter_map(|e| e["type"].as_str()).collect();
    kinds.dedup();
    kinds
}

#[test]
fn responses() {
    let to = shared();
    let options = json!({"seed": 3, "max_tokens": 12});
    let text =
        plain(to, json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]), &options);
    let body = json!({"instructions": "Be brief.", "input": "Hi", "seed": 3, "max_output_tokens": 12, "store": true});
    let a = ask(to, "/v1/responses", &body);
    assert_eq!((&a["object"], &a["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(a["incomplete_details"]["reason"], "max_output_tokens");
    let message = &a["output"][0];
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["content"][0], json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}));
    assert_eq!(a["usage"]["output_tokens"], 12);
    let sent = events(to, "/v1/responses", &body);
    assert_eq!(
        kinds(&sent),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    let deltas: String = sent.iter().filter_map(|e| e["delta"].as_str()).collect();
    assert_eq!(text, deltas);
    assert!(sent.iter().enumerate().all(|(i, e)| e["sequence_number"] == i));
    let last = &sent[sent.len() - 1]["response"];
    assert_eq!(last["output"][0]["content"], message["content"]);
    // The form of the text, in the spelling of this route.
    let mut body = json!({"input": "Hi", "seed": 1, "max_output_tokens": 100});
    body["text"] = json!({"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["a", "b"]}}});
    let a = ask(to, "/v1/responses", &body);
    let text = a["output"][0]["content"][0]["text"].as_str().expect("a text");
    assert!(["\"a\"", "\"b\""].contains(&text), "{text}");
    assert_eq!(a["status"], "completed");
    let counted = ask(to, "/v1/responses/input_tokens", &json!({"input": "Hi"}));
    let same = ask(to, "/v1/chat/completions/input_tokens", &json!({"messages": [{"role": "user", "content": "Hi"}]}));
    assert_eq!(counted, same);
    for (name, value) in [
        ("previous_response_id", json!("x")),
        ("input", json!(7)),
        ("input", json!([{"type": "input_image"}])),
        ("input", json!([{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1:1/"}]}])),
        ("n", json!(2)),
    ] {
        let mut body = json!({"input": "Hi", "max_output_tokens": 1});
        body[name] = value;
        post(to, "/v1/responses", &body).error(400);
    }
}

#[test]
fn messages() {
    let to = shared();
    let options = json!({"seed": 4, "max_tokens": 40, "stop": ["\n"]});
    let chat = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Why"},
    ]);
    let text = plain(to, chat, &options);
    let body = json!({
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes?"}]},
            {"role": "user", "content": [{"type": "text", "text": "Why"}]},
        ],
        "max_tokens": 40, "seed": 4, "stop_sequences": ["\n"],
    });
    let a = ask(to, "/v1/messages", &body);
    assert_eq!((&a["type"], &a["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(a["content"], json!([{"type": "text", "text": text}]));
    let stopped = a["stop_reason"] == "stop_sequence";
    assert_eq!(a["stop_sequence"], if stopped { json!("\n") } else { Value::Null });
    assert!(a["usage"]["input_tokens"].as_u64().is_some_and(|n| n > 0));
    let sent = events(to, "/v1/messages", &body);
    assert_eq!(
        kinds(&sent),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let deltas: String = sent.iter().filter_map(|e| e["delta"]["text"].as_str()).collect();
    assert_eq!(text, deltas);
    assert_eq!(sent[0]["message"]["content"], json!([]));
    assert_eq!(sent[sent.len() - 2]["delta"]["stop_reason"], a["stop_reason"]);
    let mut uncounted = body.clone();
    uncounted.as_object_mut().expect("an object").remove("max_tokens");
    let counted = ask(to, "/v1/messages/count_tokens", &uncounted)["input_tokens"].clone();
    let usage = &a["usage"];
    let all = usage["input_tokens"].as_u64().zip(usage["cache_read_input_tokens"].as_u64());
    assert_eq!(counted.as_u64(), all.map(|(a, b)| a + b));
    post(to, "/v1/messages", &uncounted).error(400);
    let image = json!({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]});
    post(to, "/v1/messages", &image).error(400);
}

#[test]
fn functions_in_both_forms() {
    let folder = trine_testkit::folder();
    let path = folder.path().join("tools.jinja");
    std::fs::write(&path, PARSED).expect("a file");
    let local = start(&["--chat-template-file", path.to_str().expect("a path")]);
    let schema = json!({"type": "object", "properties": {"at": {"enum": [1, 2]}}, "required": ["at"], "additionalProperties": false});
    let body = json!({
        "messages": [
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "go", "input": {"at": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "there"}]},
        ],
        "tools": [{"name": "go", "description": "Goes", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "go"}, "max_tokens": 100, "seed": 2,
    });
    let a = ask(local.to, "/v1/messages", &body);
    assert_eq!(a["stop_reason"], "tool_use", "{a}");
    let block = &a["content"][0];
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("go")));
    assert!([1, 2].map(Value::from).contains(&block["input"]["at"]), "{a}");
    let sent = events(local.to, "/v1/messages", &body);
    let json: String = sent.iter().filter_map(|e| e["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), block["input"]);
    let body = json!({
        "input": [
            {"role": "user", "content": "Go"},
            {"type": "function_call", "call_id": "t1", "name": "go", "arguments": "{\"at\": 1}"},
            {"type": "function_call_output", "call_id": "t1", "output": "there"},
        ],
        "tools": [{"type": "function", "name": "go", "description": "Goes", "parameters": schema}],
        "tool_choice": {"type": "function", "name": "go"}, "max_output_tokens": 100, "seed": 2,
    });
    let a = ask(local.to, "/v1/responses", &body);
    let call = &a["output"][0];
    assert_eq!(
        (&call["type"], &call["name"], &a["status"]),
        (&json!("function_call"), &json!("go"), &json!("completed"))
    );
    // The same chat with the same seed: the same arguments.
    let arguments = call["arguments"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(arguments).expect("JSON"), block["input"]);
    let sent = events(local.to, "/v1/responses", &body);
    let deltas: String = sent.iter().filter_map(|e| e["delta"].as_str()).collect();
    assert_eq!(deltas, arguments);
    let last = &sent[sent.len() - 1];
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"][0]["arguments"], arguments);
}
