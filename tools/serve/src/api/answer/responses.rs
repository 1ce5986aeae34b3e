//! The answer of `/v1/responses`: OpenAI's newer shape, a row of items.

use serde_json::{Value, json};

use super::items::{Items, Step};
use super::reply::{Part, Reply};
use super::shapes;
use crate::engine::Done;

/// The whole answer.
pub fn whole(reply: &Reply) -> Value {
    let choice = &reply.choices[0];
    let mut items = Items::new(&reply.asked.thoughts);
    let calls = reply.asked.calls.as_deref();
    let mut steps = items.read(calls, &choice.text);
    steps.extend(items.finish(calls));
    let output = steps.iter().filter_map(|step| item(reply, step)).collect();
    response(reply, output)
}

/// The response, finished or not.
fn response(reply: &Reply, output: Vec<Value>) -> Value {
    let done = reply.choices[0].done.as_ref();
    let cut = done.is_some_and(|d| shapes::finish_reason(d) == "length");
    let status = match (done, cut) {
        (None, _) => "in_progress",
        (_, true) => "incomplete",
        (_, false) => "completed",
    };
    json!({
        "id": format!("resp_{}", name(reply)),
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": null,
        "incomplete_details": cut.then(|| json!({"reason": "max_output_tokens"})),
        "model": reply.asked.model,
        "output": output,
        "parallel_tool_calls": reply.asked.calls.is_some(),
        "store": false,
        "system_fingerprint": reply.service.about.fingerprint,
        "usage": done.map(usage),
        "trine": done.map(shapes::effective),
    })
}

fn usage(done: &Done) -> Value {
    json!({
        "input_tokens": done.prompt_tokens,
        "input_tokens_details": {"cached_tokens": done.cached_tokens},
        "output_tokens": done.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": done.prompt_tokens + done.generated_tokens,
    })
}

/// The random part of the answer's name.
fn name(reply: &Reply) -> &str {
    reply.id.strip_prefix("chatcmpl-").unwrap_or(&reply.id)
}

/// An item that is whole.
fn item(reply: &Reply, step: &Step) -> Option<Value> {
    match step {
        Step::ThoughtEnds(at, text) => Some(thought(reply, *at, "completed", Some(text))),
        Step::TextEnds(at, text) => Some(message(reply, *at, "completed", vec![text_part(text)])),
        Step::CallEnds(at, name, arguments) => Some(call(reply, *at, "completed", name, arguments)),
        _ => None,
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn message(reply: &Reply, at: usize, status: &str, content: Vec<Value>) -> Value {
    json!({
        "type": "message",
        "id": format!("msg_{}{at:03}", name(reply)),
        "role": "assistant",
        "status": status,
        "content": content,
    })
}

fn thought(reply: &Reply, at: usize, status: &str, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.iter().map(|text| json!({"type": "reasoning_text", "text": text})).collect();
    let id = format!("rs_{}{at:03}", name(reply));
    json!({"type": "reasoning", "id": id, "summary": [], "content": content, "status": status})
}

fn call(reply: &Reply, at: usize, status: &str, function: &str, arguments: &str) -> Value {
    json!({
        "type": "function_call",
        "id": format!("fc_{}{at:03}", name(reply)),
        "call_id": reply.call_id(0, at),
        "name": function,
        "arguments": arguments,
        "status": status,
    })
}

/// The events of a stream for a part of the text.
pub fn parts(reply: &mut Reply, part: Part) -> Vec<Value> {
    let mut out = Vec::new();
    let calls = reply.asked.calls.clone();
    if !reply.choices[0].begun {
        reply.choices[0].begun = true;
        for kind in ["response.created", "response.in_progress"] {
            out.push(json!({"type": kind, "response": response(reply, Vec::new())}));
        }
    }
    match part {
        Part::Progress(_) => {}
        Part::Token { text, .. } => {
            let steps = reply.choices[0].items.read(calls.as_deref(), &text);
            events(reply, &steps, &mut out);
        }
        Part::Done(rest) => {
            let items = &mut reply.choices[0].items;
            let mut steps = items.read(calls.as_deref(), &rest);
            steps.extend(items.finish(calls.as_deref()));
            events(reply, &steps, &mut out);
            let output = std::mem::take(&mut reply.choices[0].output);
            let response = response(reply, output);
            let kind = match response["status"] == "incomplete" {
                true => "response.incomplete",
                false => "response.completed",
            };
            out.push(json!({"type": kind, "response": response}));
        }
    }
    for event in &mut out {
        event["sequence_number"] = reply.choices[0].sent.into();
        reply.choices[0].sent += 1;
    }
    out
}

fn events(reply: &mut Reply, steps: &[Step], out: &mut Vec<Value>) {
    for step in steps {
        let whole = item(reply, step);
        match step {
            Step::Thought(at) => {
                let item = thought(reply, *at, "in_progress", None);
                out.push(json!({"type": "response.output_item.added", "output_index": at, "item": item}));
            }
            Step::Thinks(at, text) => {
                let id = &thought(reply, *at, "", None)["id"];
                let kind = "response.reasoning_text.delta";
                out.push(json!({"type": kind, "item_id": id, "output_index": at, "content_index": 0, "delta": text}));
            }
            Step::ThoughtEnds(at, text) => {
                let id = &thought(reply, *at, "", None)["id"];
                let kind = "response.reasoning_text.done";
                out.push(json!({"type": kind, "item_id": id, "output_index": at, "content_index": 0, "text": text}));
            }
            Step::Text(at) => {
                let item = message(reply, *at, "in_progress", Vec::new());
                out.push(json!({"type": "response.output_item.added", "output_index": at, "item": item}));
                let id = &item["id"];
                out.push(json!({"type": "response.content_part.added", "item_id": id, "output_index": at, "content_index": 0, "part": text_part("")}));
            }
            Step::More(at, text) => {
                let id = &message(reply, *at, "", Vec::new())["id"];
                out.push(json!({"type": "response.output_text.delta", "item_id": id, "output_index": at, "content_index": 0, "delta": text, "logprobs": []}));
            }
            Step::TextEnds(at, text) => {
                let id = &message(reply, *at, "", Vec::new())["id"];
                out.push(json!({"type": "response.output_text.done", "item_id": id, "output_index": at, "content_index": 0, "text": text, "logprobs": []}));
                out.push(json!({"type": "response.content_part.done", "item_id": id, "output_index": at, "content_index": 0, "part": text_part(text)}));
            }
            Step::Call(at, name) => {
                let item = call(reply, *at, "in_progress", name, "");
                out.push(json!({"type": "response.output_item.added", "output_index": at, "item": item}));
            }
            Step::Arguments(at, part) => {
                let id = &call(reply, *at, "", "", "")["id"];
                out.push(json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": at, "delta": part}));
            }
            Step::CallEnds(at, name, arguments) => {
                let id = &call(reply, *at, "", "", "")["id"];
                out.push(json!({"type": "response.function_call_arguments.done", "item_id": id, "output_index": at, "name": name, "arguments": arguments}));
            }
        }
        if let (Some(item), Step::ThoughtEnds(at, _) | Step::TextEnds(at, _) | Step::CallEnds(at, ..)) = (whole, step) {
            out.push(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
            reply.choices[0].output.push(item);
        }
    }
}
