//! The answers of `/api/chat` and `/api/generate`: Ollama's shapes, which as a stream are lines of JSON.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::items::{Items, Step};
use super::probabilities::entry;
use super::reply::{Part, Reply};
use super::shapes::{self, timestamp};
use crate::api::Route;
use crate::engine::Done;

/// A part of a message, or all of it.
#[derive(Default)]
struct Said {
    thought: String,
    text: String,
    calls: Vec<Value>,
}

/// The whole answer.
pub fn whole(reply: &Reply) -> Value {
    let choice = &reply.choices[0];
    let mut items = Items::new(&reply.asked.thoughts);
    let calls = reply.asked.calls.as_deref();
    let mut steps = items.read(calls, &choice.text);
    steps.extend(items.finish(calls));
    let mut said = Said::default();
    for part in said_in(reply, steps) {
        said.thought += &part.thought;
        said.text += &part.text;
        said.calls.extend(part.calls);
    }
    let mut out = object(reply, said);
    if let Some(done) = &choice.done {
        finish(&mut out, reply, done);
    }
    probabilities(reply, &mut out);
    out
}

/// The objects of a stream for a part of the text.
pub fn parts(reply: &mut Reply, part: Part) -> Vec<Value> {
    let calls = reply.asked.calls.clone();
    let items = &mut reply.choices[0].items;
    let (steps, ends) = match part {
        Part::Progress(_) => return Vec::new(),
        Part::Token { text, .. } => (items.read(calls.as_deref(), &text), false),
        Part::Done(rest) => {
            let mut steps = items.read(calls.as_deref(), &rest);
            steps.extend(items.finish(calls.as_deref()));
            (steps, true)
        }
    };
    let said = said_in(reply, steps);
    let mut out: Vec<Value> = said.into_iter().map(|said| object(reply, said)).collect();
    if let Some(done) = reply.choices[0].done.clone().filter(|_| ends) {
        let mut last = object(reply, Said::default());
        finish(&mut last, reply, &done);
        out.push(last);
    }
    // Those that were not sent yet go with the first object.
    if let Some(first) = out.first_mut() {
        probabilities(reply, first);
        reply.choices[0].logprobs.clear();
    }
    out
}

/// A sign of life in a stream when nothing is to be said for a while: a part of the message that is empty.
pub fn nothing(reply: &Reply) -> Value {
    object(reply, Said::default())
}

/// The answer to a request that asked for no text: the model was loaded or unloaded.
pub fn without_text(route: Route, model: &str, reason: &str) -> Value {
    let mut out = said_as(route, model, Said::default());
    out["done"] = true.into();
    out["done_reason"] = reason.into();
    out
}

/// The parts of a message in what happened to its items. Calls come whole.
fn said_in(reply: &Reply, steps: Vec<Step>) -> Vec<Said> {
    let part = |step| match step {
        Step::Thinks(_, thought) => Some(Said { thought, ..Said::default() }),
        Step::More(_, text) => Some(Said { text, ..Said::default() }),
        Step::CallEnds(at, name, arguments) => {
            // Arguments that the end cut off are none.
            let arguments: Value = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            let function = json!({"index": at, "name": name, "arguments": arguments});
            let call = json!({"id": reply.call_id(0, at), "function": function});
            Some(Said { calls: vec![call], ..Said::default() })
        }
        _ => None,
    };
    steps.into_iter().filter_map(part).collect()
}

fn object(reply: &Reply, said: Said) -> Value {
    said_as(reply.asked.route, &reply.asked.model, said)
}

fn said_as(route: Route, model: &str, said: Said) -> Value {
    let mut out = json!({"model": model, "created_at": timestamp(SystemTime::now())});
    let mut message = Map::new();
    if !said.thought.is_empty() {
        message.insert("thinking".into(), said.thought.into());
    }
    if !said.calls.is_empty() {
        message.insert("tool_calls".into(), said.calls.into());
    }
    match route {
        Route::OllamaChat => {
            message.insert("role".into(), "assistant".into());
            message.insert("content".into(), said.text.into());
            out["message"] = message.into();
        }
        _ => {
            out["response"] = said.text.into();
            message.into_iter().for_each(|(name, value)| out[name] = value);
        }
    }
    out["done"] = false.into();
    out
}

/// Says why the text ended and how long it took, in nanoseconds.
fn finish(out: &mut Value, reply: &Reply, done: &Done) {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    out["done"] = true.into();
    out["done_reason"] = shapes::finish_reason(done).into();
    out["total_duration"] = nanos(reply.loading + done.prompt_time + done.generation_time).into();
    out["load_duration"] = nanos(reply.loading).into();
    out["prompt_eval_count"] = done.prompt_tokens.into();
    out["prompt_eval_duration"] = nanos(done.prompt_time).into();
    out["eval_count"] = done.generated_tokens.into();
    out["eval_duration"] = nanos(done.generation_time).into();
    out["trine"] = shapes::effective(done);
}

fn probabilities(reply: &Reply, out: &mut Value) {
    let choice = &reply.choices[0];
    if choice.request.logprobs.is_some() && !choice.logprobs.is_empty() {
        let tokenizer = reply.service.engine.model().tokenizer();
        out["logprobs"] = choice.logprobs.iter().map(|t| entry(tokenizer, t)).collect();
    }
}
