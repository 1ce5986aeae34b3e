//! A request for texts, read.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use trine::chat::Thoughts;
use trine::{Grammar, SamplerOptions};

use super::super::{Dialect, Route};
use super::caller::{Caller, cache, named};
use super::fields::Fields;
use super::prompt::{self, Prompt};
use super::thoughts;
use super::tools::{Calls, Tools};
use super::{
    Unread, adapters, anthropic, biases, infill, messages, ollama, responses, sampling, structure, unsupported,
};
use crate::engine::{MOST_STOPS, Request};
use crate::error::ApiError;
use crate::service::Service;

/// A request for texts.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The route it came by.
    pub route: Route,
    /// Its prompts, at least one.
    pub prompts: Vec<Prompt>,
    /// True if the request gave a list of prompts.
    pub listed: bool,
    /// Texts for each prompt.
    pub choices: usize,
    /// How calls of functions are written in the texts, where they may be.
    pub calls: Option<Arc<Calls>>,
    /// The texts: all choices of the first prompt, then those of the second.
    pub requests: Vec<Request>,
    /// Takes the thoughts out of the texts.
    pub thoughts: Thoughts,
    /// Send tokens as they come.
    pub stream: bool,
    /// End a stream with the number of tokens.
    pub include_usage: bool,
    /// Put the prompt in front of the text.
    pub echo: bool,
    /// Tell the ids of tokens.
    pub return_tokens: bool,
    /// Tell how much of the prompt was read.
    pub return_progress: bool,
    /// Tell the speeds with every token.
    pub timings_per_token: bool,
    /// Add the native answer to the others.
    pub verbose: bool,
    /// Members that the native answer is reduced to.
    pub response_fields: Option<Vec<String>>,
    /// After how much silence a stream sends a comment.
    pub ping: Option<Duration>,
    /// The name of the model in the answer.
    pub model: String,
}

/// Most prompts of a request.
const PROMPTS: usize = 64;

impl Asked {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// An error that names the field; a form whose grammar must be compiled before.
    pub fn read(route: Route, service: &Service, body: &Value, caller: &Caller) -> Result<Asked, Unread> {
        let converted = match route {
            Route::Responses => Some(responses::to_chat(body)?),
            Route::Messages => Some(anthropic::to_chat(body)?),
            Route::OllamaChat => Some(ollama::to_chat(body, service)?),
            Route::OllamaGenerate => Some(ollama::to_chat_or_text(body, service)?),
            Route::Native | Route::Infill | Route::Text | Route::Chat => None,
        };
        let f = Fields::of(converted.as_ref().unwrap_or(body))?;
        let chat = match route {
            Route::Native | Route::Infill | Route::Text => false,
            Route::OllamaGenerate => f.get("messages").is_some(),
            Route::Chat | Route::Responses | Route::Messages | Route::OllamaChat => true,
        };
        unsupported::check(&f, route)?;
        let (model, bits) = named(&f, service)?;
        let tools = match chat {
            true => Tools::read(&f, service)?,
            false => None,
        };
        let described = tools.as_ref().map_or(&[][..], |t| &t.described);
        let gap = infill::prompt(&f, route, max_tokens(&f, service)?, service)?;
        let (prompts, listed) = match gap {
            Some(prompt) => (vec![prompt], false),
            None if chat => (vec![messages::prompt(&f, described, service)?], false),
            None => {
                const NAME: &str = "prompt";
                let value = f.get(NAME).ok_or_else(|| ApiError::field(NAME, "is required"))?;
                prompt::prompts(NAME, PROMPTS, value, service.encoder())?
            }
        };
        let form = grammar(&f, tools.as_ref(), service)?;
        let answers = form.is_none() || tools.as_ref().is_some_and(|t| !t.must_call());
        let thoughts = match prompts.first().filter(|_| chat && answers) {
            Some(prompt) => thoughts::asked(&f, &prompt.tokens, service)?,
            None => Thoughts::default(),
        };
        let choices = choices(&f, service)?;
        if choices > 1 && route.has_one_answer() {
            return Err(ApiError::field("n", "this route has one answer").into());
        }
        let shown = match tools.as_ref().and_then(Tools::marks) {
            Some(marks) => marks.to_vec(),
            None if chat && answers => thoughts::tokens(service),
            None => Vec::new(),
        };
        let mut one = Request { bits, grammar: form, shown, ..request(&f, route, service, caller)? };
        if route.dialect() == Dialect::Ollama {
            one.max_tokens = ollama::within_context(&f, &prompts, one.max_tokens)?;
        }
        if !one.resume.is_empty() && prompts.len() * choices > 1 {
            return Err(ApiError::field("resume_tokens", "only for one prompt and one choice").into());
        }
        let tokens: Vec<&[u32]> = prompts.iter().map(|p| &p.tokens[..]).collect();
        service.engine.check(one.clone(), &tokens, choices).map_err(ApiError::from)?;
        let requests = prompts.iter().flat_map(|p| {
            let one = &one;
            (0..choices).map(move |i| {
                let mut request = one.clone();
                request.prompt.clone_from(&p.tokens);
                request.shift = one.shift.map(|keep| keep.min(p.tokens.len()));
                request.sampler.seed = one.sampler.seed.wrapping_add(i as u32);
                request
            })
        });
        let options = f.object("stream_options")?;
        let include_usage = options.map(|o| o.is_set("include_usage")).transpose()?;
        let ping = f.integer("sse_ping_interval", -1..=86400)?;
        Ok(Asked {
            requests: requests.collect(),
            route,
            calls: tools.and_then(|t| t.calls),
            prompts,
            listed,
            choices,
            thoughts,
            stream: f.is_set("stream")?,
            include_usage: include_usage.unwrap_or(false),
            echo: f.is_set("echo")? && route == Route::Text,
            return_tokens: f.is_set("return_tokens")?,
            return_progress: f.is_set("return_progress")?,
            timings_per_token: f.is_set("timings_per_token")?,
            verbose: f.flag("verbose")?.unwrap_or(service.limits.verbose),
            response_fields: response_fields(&f)?,
            ping: match ping {
                Some(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
                None => service.limits.ping,
            },
            model,
        })
    }
}

/// The form that the texts must have.
fn grammar(f: &Fields<'_>, tools: Option<&Tools>, service: &Service) -> Result<Option<Grammar>, Unread> {
    let form = structure::grammar(f, service)?;
    let calls = tools.map(|t| t.grammar(service)).transpose()?.flatten();
    if form.is_some() && calls.is_some() {
        return Err(ApiError::field(
            "tools",
            "contradicts 'response_format', 'json_schema' and 'grammar', unless 'tool_choice' is \"none\"",
        )
        .into());
    }
    Ok(form.or(calls))
}

fn choices(f: &Fields<'_>, service: &Service) -> Result<usize, ApiError> {
    let most = service.limits.max_choices as i64;
    let n = f.integer("n", 1..=most)?;
    let n = n.or(f.integer("n_cmpl", 1..=most)?);
    Ok(n.unwrap_or(1) as usize)
}

/// The request but for its prompt, bits and grammar.
fn request(f: &Fields<'_>, route: Route, service: &Service, caller: &Caller) -> Result<Request, ApiError> {
    let n_ctx = service.engine.options().n_ctx();
    let biases = biases::biases(f, service.engine.model().tokenizer())?;
    let breakers = |texts: &[String]| service.breakers(texts);
    let defaults = SamplerOptions { seed: seed(f, service)?, ..service.limits.sampler.clone() };
    let mut sampler = sampling::sampler(f, defaults, n_ctx, breakers)?;
    (sampler.logit_bias, sampler.banned) = (biases.added, biases.banned);
    let logprobs = logprobs(f, route)?;
    Ok(Request {
        prompt: Vec::new(),
        pooling: None,
        resume: f.ids("resume_tokens")?.unwrap_or_default(),
        shift: shift(f, service, max_tokens(f, service)?)?,
        max_tokens: max_tokens(f, service)?,
        sampler,
        grammar: None,
        stop: stops(f)?,
        shown: Vec::new(),
        ignore_eos: f.is_set("ignore_eos")?,
        bits: None,
        adapters: adapters::adapters(f, service)?,
        draft_bits: f.integer("draft_bits", 0..=8)?.map(|b| b as u8),
        logprobs,
        odds: f.is_set("post_sampling_probs")?,
        prompt_logprobs: route == Route::Text && logprobs.is_some() && f.is_set("echo")?,
        cache: cache(f, caller)?,
        slot: f.integer("id_slot", -1..=i64::from(i32::MAX))?.and_then(|slot| usize::try_from(slot).ok()),
        party: caller.party.clone(),
        priority: caller.priority,
        deadline: caller.deadline_within(service),
    })
}

/// The seed that is asked for, or the server's, or a random one.
fn seed(f: &Fields<'_>, service: &Service) -> Result<u32, ApiError> {
    let asked = f.integer("seed", -1..=i64::from(u32::MAX))?;
    match asked.or(Some(service.limits.seed)).and_then(|s| u32::try_from(s).ok()).filter(|s| *s != u32::MAX) {
        Some(seed) => Ok(seed),
        None => trine_tools::sampling::seed().map_err(|e| ApiError::field("seed", e)),
    }
}

fn max_tokens(f: &Fields<'_>, service: &Service) -> Result<Option<usize>, ApiError> {
    // All are looked at, so that a wrong type is found; the first counts.
    let mut asked = None;
    for name in ["n_predict", "max_completion_tokens", "max_tokens"] {
        asked = asked.or(f.integer(name, -1..=i64::from(i32::MAX))?);
    }
    let n = asked.unwrap_or(service.limits.predict);
    Ok(usize::try_from(n).ok())
}

/// Tokens of a prompt that stay when the context is full, where the text may go on then: where the server says so, and the
/// request how long its text may be.
fn shift(f: &Fields<'_>, service: &Service, most: Option<usize>) -> Result<Option<usize>, ApiError> {
    let asked = f.integer("n_keep", -1..=i64::from(i32::MAX))?;
    let keep = asked.unwrap_or(service.limits.keep);
    let bos = usize::from(service.engine.model().tokenizer().add_bos());
    let keep = usize::try_from(keep).map_or(usize::MAX, |n| n + bos);
    Ok(Some(keep).filter(|_| service.limits.shift && most.is_some()))
}

fn stops(f: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    const WANTED: &str = "a string or an array of strings";
    let list = match f.get("stop") {
        None => return Ok(Vec::new()),
        Some(one @ Value::String(_)) => std::slice::from_ref(one),
        Some(Value::Array(list)) if list.len() > MOST_STOPS => {
            return Err(ApiError::field("stop", format!("more than {MOST_STOPS} strings")));
        }
        Some(Value::Array(list)) => list,
        Some(other) => return Err(super::fields::wrong("stop", WANTED, other)),
    };
    let text = |v: &Value| match v.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(super::fields::wrong("stop", WANTED, v)),
    };
    let texts = list.iter().map(text).filter(|t| t.as_ref().is_ok_and(|t| !t.is_empty()) || t.is_err());
    texts.collect()
}

/// How many of the most likely tokens are told with every token.
fn logprobs(f: &Fields<'_>, route: Route) -> Result<Option<usize>, ApiError> {
    let most = i64::from(i32::MAX);
    let native = f.integer("n_probs", 0..=most)?.filter(|n| *n > 0);
    let asked = match route {
        Route::Chat | Route::Responses | Route::Messages | Route::OllamaChat | Route::OllamaGenerate => {
            let top = f.integer("top_logprobs", 0..=most)?;
            match (f.is_set("logprobs")?, top) {
                (true, top) => Some(top.unwrap_or(0)),
                (false, Some(1..)) => {
                    return Err(ApiError::field("top_logprobs", "needs 'logprobs': true"));
                }
                (false, _) => None,
            }
        }
        Route::Text => f.integer("logprobs", 0..=most)?,
        Route::Native | Route::Infill => f.integer("logprobs", 0..=most)?.filter(|n| *n > 0),
    };
    Ok(asked.or(native).map(|n| n as usize))
}

fn response_fields(f: &Fields<'_>) -> Result<Option<Vec<String>>, ApiError> {
    let Some(list) = f.list("response_fields")?.filter(|l| !l.is_empty()) else {
        return Ok(None);
    };
    let name = |v: &Value| match v.as_str() {
        Some(name) if list.len() <= 64 => Ok(name.to_owned()),
        _ => Err(super::fields::wrong("response_fields", "an array of at most 64 names", v)),
    };
    list.iter().map(name).collect::<Result<_, _>>().map(Some)
}
