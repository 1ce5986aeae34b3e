//! `/v1/completions`: OpenAI's shape.

use serde_json::{Value, json};

use super::probabilities::Columns;
use super::reply::{Choice, Part, Reply};
use super::{native, shapes};

const KIND: &str = "text_completion";

/// The whole answer.
pub fn whole(reply: &Reply) -> Value {
    let choice = |(i, c): (usize, &Choice)| {
        let (echo, logprobs) = beginning(reply, c);
        let mut columns = Columns::new(reply.service.engine.model().tokenizer(), 0);
        if reply.asked.echo {
            columns = logprobs;
        }
        c.logprobs.iter().for_each(|t| columns.generated(t));
        json!({
            "text": echo + &c.text,
            "index": i,
            "logprobs": c.request.logprobs.map(|_| columns.finish()),
            "finish_reason": c.done.as_ref().map(shapes::finish_reason),
        })
    };
    let choices = reply.choices.iter().enumerate().map(choice).collect();
    let mut out = reply.object(KIND, choices);
    finish(reply, &mut out);
    if reply.asked.return_tokens {
        for (i, c) in reply.choices.iter().enumerate() {
            out["choices"][i]["tokens"] = json!(c.tokens);
        }
    }
    out
}

/// The text of the prompt and its tokens, where both are to be repeated.
fn beginning<'a>(reply: &'a Reply, choice: &Choice) -> (String, Columns<'a>) {
    let mut columns = Columns::new(reply.service.engine.model().tokenizer(), 0);
    if !reply.asked.echo {
        return (String::new(), columns);
    }
    let prompt = &reply.asked.prompts[choice.prompt];
    let text = match &prompt.text {
        Some(text) => text.clone(),
        None => reply.service.text_of(&prompt.tokens),
    };
    columns.prompt(&prompt.tokens, &choice.prompt_logprobs, text.chars().count());
    (text, columns)
}

fn finish(reply: &Reply, out: &mut Value) {
    out["usage"] = shapes::usage(&reply.choices, reply.asked.choices);
    if let [first, ..] = &reply.choices[..] {
        out["timings"] = shapes::timings(first);
        out["trine"] = first.done.as_ref().map_or(Value::Null, shapes::effective);
    }
    if reply.asked.verbose {
        out["__verbose"] = native::whole(reply);
    }
}

/// The events of a stream for a part of the text `index`.
pub fn parts(reply: &mut Reply, index: usize, part: Part) -> Vec<Value> {
    let mut out = Vec::new();
    if matches!(part, Part::Token { .. } | Part::Done(_)) && !reply.choices[index].begun {
        reply.choices[index].begun = true;
        if reply.asked.echo {
            let choice = &reply.choices[index];
            let (text, columns) = beginning(reply, choice);
            let chars = columns.chars();
            let logprobs = choice.request.logprobs.map(|_| columns.finish());
            out.push(chunk(reply, index, &text, logprobs, Value::Null));
            reply.choices[index].chars = chars;
        }
    }
    match part {
        Part::Progress(p) if reply.asked.return_progress => {
            let mut object = reply.object(KIND, Vec::new());
            object["prompt_progress"] = shapes::progress(&p);
            out.push(object);
        }
        Part::Progress(_) => {}
        Part::Token { text, .. } if text.is_empty() => {}
        Part::Token { text, .. } => {
            let logprobs = told(reply, index);
            let mut object = chunk(reply, index, &text, logprobs, Value::Null);
            if reply.asked.timings_per_token {
                object["timings"] = shapes::timings(&reply.choices[index]);
            }
            out.push(object);
        }
        Part::Done(rest) => {
            let logprobs = told(reply, index);
            let choice = &reply.choices[index];
            let reason = choice.done.as_ref().map(shapes::finish_reason);
            let mut object = chunk(reply, index, &rest, logprobs, reason.into());
            object["trine"] = choice.done.as_ref().map_or(Value::Null, shapes::effective);
            if !reply.asked.include_usage {
                object["timings"] = shapes::timings(choice);
            }
            out.push(object);
        }
    }
    out
}

/// The probabilities that were not sent yet.
fn told(reply: &mut Reply, index: usize) -> Option<Value> {
    let choice = &mut reply.choices[index];
    let list = std::mem::take(&mut choice.logprobs);
    choice.request.logprobs?;
    let tokenizer = reply.service.engine.model().tokenizer();
    let mut columns = Columns::new(tokenizer, choice.chars);
    list.iter().for_each(|t| columns.generated(t));
    choice.chars = columns.chars();
    Some(columns.finish())
}

fn chunk(reply: &Reply, index: usize, text: &str, logprobs: Option<Value>, reason: Value) -> Value {
    let choice = json!({
        "text": text,
        "index": index,
        "logprobs": logprobs,
        "finish_reason": reason,
    });
    reply.object(KIND, vec![choice])
}

/// The events of a stream after all texts have ended.
pub fn tail(reply: &Reply) -> Vec<Value> {
    if !reply.asked.include_usage {
        return Vec::new();
    }
    let mut out = reply.object(KIND, Vec::new());
    out["usage"] = shapes::usage(&reply.choices, reply.asked.choices);
    out["timings"] = reply.choices.first().map_or(Value::Null, shapes::timings);
    vec![out]
}
