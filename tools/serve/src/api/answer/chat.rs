//! The answer of `/v1/chat/completions`: OpenAI's shape.

use serde_json::{Value, json};
use trine::chat::Parted;

use super::probabilities::entry;
use super::reply::{Choice, Part, Reply};
use super::{native, shapes};
use crate::api::request::tools::reader::{Piece, Reader};
use crate::engine::Told;

const WHOLE: &str = "chat.completion";
const CHUNK: &str = "chat.completion.chunk";

/// The whole answer.
pub fn whole(reply: &Reply) -> Value {
    let choice = |(i, c): (usize, &Choice)| {
        let mut out = json!({
            "index": i,
        });
        let (message, calls) = message(reply, i);
        out["finish_reason"] = finish_reason(c, calls);
        out["message"] = message;
        if c.request.logprobs.is_some() {
            out["logprobs"] = logprobs(reply, &c.logprobs);
        }
        if reply.asked.return_tokens {
            out["tokens"] = json!(c.tokens);
        }
        out
    };
    let choices = reply.choices.iter().enumerate().map(choice).collect();
    let mut out = reply.object(WHOLE, choices);
    out["usage"] = shapes::usage(&reply.choices, reply.asked.choices);
    if let [first, ..] = &reply.choices[..] {
        out["timings"] = shapes::timings(first);
        out["trine"] = first.done.as_ref().map_or(Value::Null, shapes::effective);
    }
    if reply.asked.verbose {
        out["__verbose"] = native::whole(reply);
    }
    out
}

/// The message of a choice, and how many calls it has.
fn message(reply: &Reply, index: usize) -> (Value, usize) {
    let mut parts = reply.asked.thoughts.clone();
    let (mut thought, mut text) = parts.read(&reply.choices[index].text);
    let (more, rest) = parts.finish();
    thought += &more;
    text += &rest;
    let (mut message, n) = said(reply, index, &text);
    if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    (message, n)
}

/// The message of a text without thoughts, and how many calls it has.
fn said(reply: &Reply, index: usize, text: &str) -> (Value, usize) {
    let Some(calls) = &reply.asked.calls else {
        return (json!({"role": "assistant", "content": text}), 0);
    };
    let mut reader = Reader::default();
    let mut pieces = reader.read(calls, text);
    pieces.extend(reader.finish());
    let (mut content, mut list) = (String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => content += &text,
            Piece::Call(name) => list.push((name, String::new())),
            Piece::Arguments(text) => list.last_mut().into_iter().for_each(|c| c.1 += &text),
        }
    }
    if list.is_empty() {
        return (json!({"role": "assistant", "content": content}), 0);
    }
    let content = Some(content).filter(|c| !c.is_empty());
    let list = list.into_iter().enumerate().map(|(i, (name, arguments))| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": reply.call_id(index, i), "type": "function", "function": function})
    });
    let calls: Vec<Value> = list.collect();
    let n = calls.len();
    (json!({"role": "assistant", "content": content, "tool_calls": calls}), n)
}

fn finish_reason(choice: &Choice, calls: usize) -> Value {
    match choice.done.as_ref().map(shapes::finish_reason) {
        Some("stop") if calls > 0 => "tool_calls".into(),
        reason => reason.into(),
    }
}

fn logprobs(reply: &Reply, list: &[Told]) -> Value {
    let tokenizer = reply.service.engine.model().tokenizer();
    let content: Vec<Value> = list.iter().map(|t| entry(tokenizer, t)).collect();
    json!({ "content": content })
}

/// The events of a stream for a part of the text `index`.
pub fn parts(reply: &mut Reply, index: usize, part: Part) -> Vec<Value> {
    let mut out = Vec::new();
    if !reply.choices[index].begun {
        reply.choices[index].begun = true;
        let delta = json!({"role": "assistant", "content": null});
        out.push(chunk(reply, index, delta, Value::Null));
    }
    match part {
        Part::Progress(p) if reply.asked.return_progress => {
            let mut object = reply.object(CHUNK, Vec::new());
            object["prompt_progress"] = shapes::progress(&p);
            out.push(object);
        }
        Part::Progress(_) => {}
        Part::Token { text, .. } => more(reply, index, &text, &mut out),
        Part::Done(rest) => {
            more(reply, index, &rest, &mut out);
            let parted = reply.choices[index].thoughts.finish();
            parted_of(reply, index, parted, &mut out);
            let pieces = reply.choices[index].reader.finish();
            pieces_of(reply, index, pieces, &mut out);
            let choice = &reply.choices[index];
            let done = choice.done.clone();
            let reason = finish_reason(choice, choice.reader.calls());
            let mut object = chunk(reply, index, json!({}), reason);
            // Tokens without a text of their own, such as the one that ended it.
            told(reply, index, &mut object);
            object["trine"] = done.as_ref().map_or(Value::Null, shapes::effective);
            if !reply.asked.include_usage {
                object["timings"] = shapes::timings(&reply.choices[index]);
            }
            out.push(object);
        }
    }
    out
}

/// More of a text.
fn more(reply: &mut Reply, index: usize, text: &str, out: &mut Vec<Value>) {
    let parted = reply.choices[index].thoughts.read(text);
    parted_of(reply, index, parted, out);
}

/// More of the thoughts and of the text behind them.
fn parted_of(reply: &mut Reply, index: usize, (thought, text): Parted, out: &mut Vec<Value>) {
    if !thought.is_empty() {
        delta(reply, index, json!({ "reasoning_content": thought }), out);
    }
    let pieces = match reply.asked.calls.clone() {
        Some(calls) => reply.choices[index].reader.read(&calls, &text),
        None => vec![Piece::Text(text)],
    };
    pieces_of(reply, index, pieces, out);
}

fn pieces_of(reply: &mut Reply, index: usize, pieces: Vec<Piece>, out: &mut Vec<Value>) {
    let calls = reply.choices[index].reader.calls();
    let begun = pieces.iter().filter(|p| matches!(p, Piece::Call(_)));
    let mut call = calls - begun.count();
    for piece in pieces {
        let content = match piece {
            Piece::Text(text) => json!({ "content": text }),
            Piece::Call(name) => {
                let id = reply.call_id(index, call);
                let function = json!({"name": name, "arguments": ""});
                call += 1;
                json!({"tool_calls": [{"index": call - 1, "id": id, "type": "function", "function": function}]})
            }
            Piece::Arguments(text) => {
                json!({"tool_calls": [{"index": call - 1, "function": {"arguments": text}}]})
            }
        };
        delta(reply, index, content, out);
    }
}

fn delta(reply: &mut Reply, index: usize, content: Value, out: &mut Vec<Value>) {
    // A delta is never empty: pending text comes with a later one.
    if content["content"] == "" {
        return;
    }
    let mut object = chunk(reply, index, content, Value::Null);
    told(reply, index, &mut object);
    if reply.asked.timings_per_token {
        object["timings"] = shapes::timings(&reply.choices[index]);
    }
    out.push(object);
}

/// Adds the probabilities that were not sent yet.
fn told(reply: &mut Reply, index: usize, object: &mut Value) {
    let list = std::mem::take(&mut reply.choices[index].logprobs);
    if !list.is_empty() {
        object["choices"][0]["logprobs"] = logprobs(reply, &list);
    }
}

fn chunk(reply: &Reply, index: usize, delta: Value, reason: Value) -> Value {
    let choice = json!({"finish_reason": reason, "index": index, "delta": delta});
    reply.object(CHUNK, vec![choice])
}

/// The events of a stream after all texts have ended.
pub fn tail(reply: &Reply) -> Vec<Value> {
    if !reply.asked.include_usage {
        return Vec::new();
    }
    let mut out = reply.object(CHUNK, Vec::new());
    out["usage"] = shapes::usage(&reply.choices, reply.asked.choices);
    out["timings"] = reply.choices.first().map_or(Value::Null, shapes::timings);
    vec![out]
}
