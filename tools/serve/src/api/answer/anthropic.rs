//! The answer of `/v1/messages`: Anthropic's shape.

use serde_json::{Value, json};
use trine::generate::End;

use super::items::{Items, Step};
use super::reply::{Part, Reply};
use super::shapes;
use crate::engine::{Done, Ended};

/// The whole answer.
pub fn whole(reply: &Reply) -> Value {
    let choice = &reply.choices[0];
    let mut items = Items::new(&reply.asked.thoughts);
    let calls = reply.asked.calls.as_deref();
    let mut steps = items.read(calls, &choice.text);
    steps.extend(items.finish(calls));
    let blocks = steps.into_iter().filter_map(|step| match step {
        Step::ThoughtEnds(_, text) => Some(json!({"type": "thinking", "thinking": text, "signature": ""})),
        Step::TextEnds(_, text) => Some(json!({"type": "text", "text": text})),
        Step::CallEnds(at, name, arguments) => {
            // Arguments that the end cut off are none.
            let input: Value = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            Some(json!({"type": "tool_use", "id": reply.call_id(0, at), "name": name, "input": input}))
        }
        _ => None,
    });
    let mut out = beginning(reply);
    out["content"] = blocks.collect();
    if let Some(done) = &choice.done {
        let (reason, stop) = stopped(reply, done, items.calls());
        out["stop_reason"] = reason.into();
        out["stop_sequence"] = stop;
        out["usage"] = usage(done);
        out["trine"] = shapes::effective(done);
    }
    out
}

fn beginning(reply: &Reply) -> Value {
    let progress = reply.choices[0].progress;
    json!({
        "id": reply.id.replacen("chatcmpl-", "msg_", 1),
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": reply.asked.model,
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": progress.map_or(0, |p| p.total), "output_tokens": 0},
    })
}

fn usage(done: &Done) -> Value {
    json!({
        "input_tokens": done.prompt_tokens - done.cached_tokens,
        "cache_read_input_tokens": done.cached_tokens,
        "output_tokens": done.generated_tokens,
    })
}

/// Why the answer ended, and the stop string that ended it.
fn stopped(reply: &Reply, done: &Done, calls: usize) -> (&'static str, Value) {
    match done.ended {
        Ended::Text(End::Stop(i)) => {
            let stop = reply.choices[0].request.stop.get(i);
            ("stop_sequence", stop.cloned().into())
        }
        Ended::Text(End::Eos) if calls > 0 => ("tool_use", Value::Null),
        Ended::Text(End::Eos) => ("end_turn", Value::Null),
        _ => ("max_tokens", Value::Null),
    }
}

/// The events of a stream for a part of the text.
pub fn parts(reply: &mut Reply, part: Part) -> Vec<Value> {
    let mut out = Vec::new();
    let calls = reply.asked.calls.clone();
    if !reply.choices[0].begun {
        reply.choices[0].begun = true;
        out.push(json!({"type": "message_start", "message": beginning(reply)}));
    }
    match part {
        Part::Progress(_) => {}
        Part::Token { text, .. } => {
            let steps = reply.choices[0].items.read(calls.as_deref(), &text);
            events(reply, steps, &mut out);
        }
        Part::Done(rest) => {
            let items = &mut reply.choices[0].items;
            let mut steps = items.read(calls.as_deref(), &rest);
            steps.extend(items.finish(calls.as_deref()));
            events(reply, steps, &mut out);
            let choice = &reply.choices[0];
            if let Some(done) = &choice.done {
                let (reason, stop) = stopped(reply, done, choice.items.calls());
                let delta = json!({"stop_reason": reason, "stop_sequence": stop});
                let (usage, trine) = (usage(done), shapes::effective(done));
                out.push(json!({"type": "message_delta", "delta": delta, "usage": usage, "trine": trine}));
            }
            out.push(json!({"type": "message_stop"}));
        }
    }
    out
}

fn events(reply: &Reply, steps: Vec<Step>, out: &mut Vec<Value>) {
    let start = |at: usize, block: Value| json!({"type": "content_block_start", "index": at, "content_block": block});
    let delta = |at: usize, delta: Value| json!({"type": "content_block_delta", "index": at, "delta": delta});
    out.extend(steps.into_iter().map(|step| match step {
        Step::Thought(at) => start(at, json!({"type": "thinking", "thinking": "", "signature": ""})),
        Step::Thinks(at, text) => delta(at, json!({"type": "thinking_delta", "thinking": text})),
        Step::Text(at) => start(at, json!({"type": "text", "text": ""})),
        Step::More(at, text) => delta(at, json!({"type": "text_delta", "text": text})),
        Step::Call(at, name) => {
            let id = reply.call_id(0, at);
            start(at, json!({"type": "tool_use", "id": id, "name": name, "input": {}}))
        }
        Step::Arguments(at, part) => delta(at, json!({"type": "input_json_delta", "partial_json": part})),
        Step::ThoughtEnds(at, _) | Step::TextEnds(at, _) | Step::CallEnds(at, ..) => {
            json!({"type": "content_block_stop", "index": at})
        }
    }));
}
