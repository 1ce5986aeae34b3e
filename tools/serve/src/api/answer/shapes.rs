//! Functions that several kinds of answers share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use trine::Grammar;
use trine::chat::format_time;
use trine::generate::End;
use trine::sample::OPTIONS;
use trine::step::Scales;

use super::probabilities;
use super::reply::Choice;
use crate::engine::{Done, Ended, Progress, Request};
use crate::service::Service;

/// `finish_reason`.
pub fn finish_reason(done: &Done) -> &'static str {
    match done.ended {
        Ended::Text(End::Eos | End::Stop(_)) => "stop",
        _ => "length",
    }
}

/// `stop_type`.
pub fn stop_type(done: &Done) -> &'static str {
    match done.ended {
        Ended::Text(End::Eos) => "eos",
        Ended::Text(End::Stop(_)) => "word",
        _ => "limit",
    }
}

/// The effective seed, bits and factors of adapters where they are the request's own, and what ended a text from outside.
pub fn effective(done: &Done) -> Value {
    let mut out = json!({ "bits": Some(done.bits).filter(|b| *b > 0), "seed": done.seed });
    if let Some(scales) = &done.adapters {
        out["lora"] = adapters(scales);
    }
    match done.ended {
        Ended::Deadline => out["ended_by"] = "deadline".into(),
        Ended::Shutdown => out["ended_by"] = "shutdown".into(),
        Ended::Text(_) => {}
    }
    out
}

/// Factors of adapters as requests give them.
pub fn adapters(scales: &Scales) -> Value {
    scales.iter().enumerate().map(|(id, scale)| json!({"id": id, "scale": probabilities::number(*scale)})).collect()
}

/// `usage` of all choices; a prompt is counted once, whatever the number of its choices.
pub fn usage(choices: &[Choice], per_prompt: usize) -> Value {
    let done = |c: &Choice| c.done.clone();
    let prompts: Vec<Done> = choices.iter().step_by(per_prompt).filter_map(done).collect();
    let prompt: usize = prompts.iter().map(|d| d.prompt_tokens).sum();
    let cached: usize = prompts.iter().map(|d| d.cached_tokens).sum();
    let texts = choices.iter().filter_map(done);
    let generated: usize = texts.map(|d| d.generated_tokens).sum();
    json!({
        "completion_tokens": generated,
        "prompt_tokens": prompt,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    })
}

/// `timings` of a choice, finished or not.
pub fn timings(choice: &Choice) -> Value {
    let (prompt, cached, generated, read, wrote) = match (&choice.done, &choice.progress) {
        (Some(d), _) => (d.prompt_tokens, d.cached_tokens, d.generated_tokens, d.prompt_time, d.generation_time),
        (None, Some(p)) => (
            p.processed,
            p.cached,
            choice.generated,
            // Waiting is no reading.
            if p.processed > p.cached { p.time } else { Duration::ZERO },
            choice.since_prompt(),
        ),
        (None, None) => (0, 0, choice.generated, Duration::ZERO, Duration::ZERO),
    };
    let prompt_n = prompt.saturating_sub(cached);
    // The first token comes with the prompt and takes no step of its own.
    let steps = generated.saturating_sub(1);
    let mut timings = json!({
        "cache_n": cached,
        "prompt_n": prompt_n,
        "prompt_ms": millis(read),
        "prompt_per_token_ms": ratio(millis(read), prompt_n as f64),
        "prompt_per_second": ratio(prompt_n as f64 * 1e3, millis(read)),
        "predicted_n": generated,
        "predicted_ms": millis(wrote),
        "predicted_per_token_ms": ratio(millis(wrote), steps as f64),
        "predicted_per_second": ratio(steps as f64 * 1e3, millis(wrote)),
    });
    if let Some(done) = choice.done.as_ref().filter(|d| d.drafted > 0) {
        timings["draft_n"] = done.drafted.into();
        timings["draft_n_accepted"] = done.accepted.into();
    }
    timings
}

/// A time as RFC 3339 has it, in UTC.
pub fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = format_time(since.as_secs(), "%FT%H:%M:%S").unwrap_or_default();
    format!("{seconds}.{:06}Z", since.subsec_micros())
}

/// `prompt_progress`.
pub fn progress(p: &Progress) -> Value {
    json!({
        "total": p.total,
        "cache": p.cached,
        "processed": p.processed,
        "time_ms": millis(p.time),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// A ratio that is a number whatever it is of.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// `generation_settings`: the options in force.
pub fn settings(service: &Service, r: &Request, stream: bool) -> Value {
    let s = &r.sampler;
    let number = probabilities::number;
    let mut biases: Vec<Value> =
        s.logit_bias.iter().map(|(id, bias)| json!({"token": id, "bias": number(*bias)})).collect();
    let mut banned: Vec<u32> = s.banned.clone();
    if r.ignore_eos {
        banned.extend(service.engine.model().end_tokens());
    }
    biases.extend(banned.iter().map(|id| json!({"token": id, "bias": null})));
    let mut settings = json!({
        "seed": s.seed,
        "stop": r.stop,
        "max_tokens": r.max_tokens.map_or(-1, |n| n as i64),
        "n_predict": r.max_tokens.map_or(-1, |n| n as i64),
        "n_keep": r.shift.unwrap_or_default(),
        "n_discard": 0,
        "ignore_eos": r.ignore_eos,
        "stream": stream,
        "logit_bias": biases,
        "n_probs": r.logprobs.unwrap_or(0),
        "grammar": r.grammar.as_ref().map_or("", Grammar::source),
        "samplers": s.samplers.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "timings_per_token": false,
        "post_sampling_probs": r.odds,
        "bits": r.bits.or(service.engine.options().bits),
        "lora": adapters(r.adapters.as_ref().unwrap_or(service.engine.model().weights().adapter_scales())),
        "cache_prompt": r.cache.is_some(),
    });
    for option in OPTIONS {
        let value = option.get(s);
        settings[option.field] = if option.range.whole { json!(value as i64) } else { number(value as f32) };
    }
    settings
}
