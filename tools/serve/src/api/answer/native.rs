//! `/completion`: llama-server's own shape.

use serde_json::{Value, json};
use trine::generate::End;

use super::probabilities::entry;
use super::reply::{Choice, Part, Reply};
use super::shapes;
use crate::engine::{Done, Ended};

/// The answer: an object, or an array of them for several texts.
pub fn whole(reply: &Reply) -> Value {
    let objects = (0..reply.choices.len()).map(|i| reduced(reply, last(reply, i)));
    let mut objects: Vec<Value> = objects.collect();
    if objects.len() == 1 && !reply.asked.listed {
        return objects.remove(0);
    }
    objects.into()
}

/// The final object of the text `index`.
pub fn last(reply: &Reply, index: usize) -> Value {
    let choice = &reply.choices[index];
    let asked = &reply.asked;
    let Some(done) = &choice.done else {
        return Value::Null;
    };
    let prompt = &asked.prompts[choice.prompt];
    let text = match &prompt.text {
        Some(text) => text.clone(),
        None => reply.service.text_of(&prompt.tokens),
    };
    let mut out = json!({
        "index": index,
        "content": choice.text,
        "tokens": if asked.return_tokens { choice.tokens.as_slice() } else { &[] },
        "id_slot": slot(choice),
        "stop": true,
        "model": asked.model,
        "tokens_predicted": done.generated_tokens,
        "tokens_evaluated": done.prompt_tokens,
        "generation_settings": shapes::settings(&reply.service, &choice.request, asked.stream),
        "prompt": text,
        "has_new_line": choice.has_newline,
        "truncated": done.shifts > 0 || done.ended == Ended::Text(End::Context),
        "stop_type": shapes::stop_type(done),
        "stopping_word": stopping_word(choice, done),
        "tokens_cached": done.cached_tokens,
        "timings": shapes::timings(choice),
        "system_fingerprint": reply.service.about.fingerprint,
        "trine": shapes::effective(done),
    });
    probabilities(reply, choice, &mut out);
    out
}

/// The events of a stream for a part of the text `index`.
pub fn parts(reply: &mut Reply, index: usize, part: Part) -> Vec<Value> {
    let (text, tokens) = match part {
        Part::Progress(p) if reply.asked.return_progress => {
            let mut out = step(reply, index, String::new(), &[]);
            out["prompt_progress"] = shapes::progress(&p);
            return vec![out];
        }
        Part::Progress(_) => return Vec::new(),
        // Pending text comes with a later token, and so do the probabilities.
        Part::Token { text, id: _ } if text.is_empty() && !reply.asked.return_tokens => {
            return Vec::new();
        }
        Part::Token { id, text } => (text, vec![id]),
        Part::Done(rest) => {
            let mut out = Vec::new();
            if !rest.is_empty() {
                out.push(step(reply, index, rest, &[]));
            }
            out.push(reduced(reply, last(reply, index)));
            return out;
        }
    };
    vec![step(reply, index, text, &tokens)]
}

/// The number of the text's place; -1 before it has one.
fn slot(choice: &Choice) -> i64 {
    choice.progress.map_or(-1, |p| p.slot as i64)
}

fn step(reply: &mut Reply, index: usize, text: String, tokens: &[u32]) -> Value {
    let choice = &reply.choices[index];
    let mut out = json!({
        "index": index,
        "content": text,
        "tokens": if reply.asked.return_tokens { tokens } else { &[] },
        "stop": false,
        "id_slot": slot(choice),
        "tokens_predicted": choice.generated,
        "tokens_evaluated": choice.progress.map_or(0, |p| p.total),
    });
    if reply.asked.timings_per_token {
        out["timings"] = shapes::timings(choice);
    }
    probabilities(reply, choice, &mut out);
    reply.choices[index].logprobs.clear();
    out
}

fn probabilities(reply: &Reply, choice: &Choice, out: &mut Value) {
    if choice.request.logprobs.is_some() && !choice.logprobs.is_empty() {
        let tokenizer = reply.service.engine.model().tokenizer();
        let list = choice.logprobs.iter().map(|t| entry(tokenizer, t));
        out["completion_probabilities"] = list.collect();
    }
}

fn stopping_word<'a>(choice: &'a Choice, done: &Done) -> &'a str {
    match done.ended {
        Ended::Text(End::Stop(i)) => choice.request.stop.get(i).map_or("", String::as_str),
        _ => "",
    }
}

/// The members that were asked for, each by the name that it was asked for by; `a/b` is the member `b` of the member
/// `a`.
fn reduced(reply: &Reply, object: Value) -> Value {
    let Some(names) = &reply.asked.response_fields else {
        return object;
    };
    let mut out = serde_json::Map::new();
    for name in names {
        let found = name.split('/').try_fold(&object, |value, member| value.get(member));
        if let Some(value) = found {
            out.insert(name.clone(), value.clone());
        }
    }
    out.into()
}
