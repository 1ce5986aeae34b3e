//! State of a request's texts while they are generated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use trine::chat::Thoughts;

use super::items::Items;
use crate::api::request::Asked;
use crate::api::request::tools::reader::Reader;
use crate::engine::{Done, Ended, Event, Progress, Request, TokenLogprobs, Told};
use crate::error::ApiError;
use crate::service::{Service, now};

/// A text that comes into being.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The prompt it continues, an index.
    pub prompt: usize,
    /// The request to the engine.
    pub request: Arc<Request>,
    /// The text so far; in a stream empty.
    pub text: String,
    /// Its tokens; in a stream empty.
    pub tokens: Vec<u32>,
    /// Log-probabilities of the tokens; in a stream only of tokens whose text was not sent yet.
    pub logprobs: Vec<Told>,
    /// How likely the tokens of the prompt were, if that was asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// How much of the prompt was read.
    pub progress: Option<Progress>,
    /// Tokens so far.
    pub generated: usize,
    /// True if the text has a line break.
    pub has_newline: bool,
    /// In a stream: whether the beginning was sent, and how many characters.
    pub begun: bool,
    /// See `begun`.
    pub chars: usize,
    /// In a stream: takes the thoughts out of the text.
    pub thoughts: Thoughts,
    /// In a stream: finds calls of functions in the text.
    pub reader: Reader,
    /// In a stream of items: those so far, the ones that are whole, and how many events were sent.
    pub items: Items,
    /// See `items`.
    pub output: Vec<Value>,
    /// See `items`.
    pub sent: u64,
    /// The end.
    pub done: Option<Done>,
    read_at: Option<Instant>,
}

impl Choice {
    /// Time since the prompt was read.
    pub fn since_prompt(&self) -> Duration {
        self.read_at.map_or(Duration::ZERO, |t| t.elapsed())
    }
}

/// A part of a stream.
pub enum Part {
    /// The prompt was read so far.
    Progress(Progress),
    /// A token, with the text that is certain now.
    Token {
        /// Its id.
        id: u32,
        /// The text, perhaps empty.
        text: String,
    },
    /// The end, with the pending text.
    Done(String),
}

/// The answer to a request.
pub struct Reply {
    /// The model.
    pub service: Arc<Service>,
    /// The request.
    pub asked: Asked,
    /// Its texts.
    pub choices: Vec<Choice>,
    /// A name for the answer.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Time that the request waited for the model to be loaded.
    pub loading: Duration,
}

impl Reply {
    /// The answer to `asked`, before anything is known of it.
    ///
    /// # Errors
    /// The system gives no random numbers for the id.
    pub fn new(service: &Arc<Service>, mut asked: Asked) -> Result<Reply, ApiError> {
        let requests = std::mem::take(&mut asked.requests);
        let choices = requests.into_iter().enumerate().map(|(i, request)| Choice {
            prompt: i / asked.choices,
            request: Arc::new(request),
            text: String::new(),
            tokens: Vec::new(),
            logprobs: Vec::new(),
            prompt_logprobs: Vec::new(),
            progress: None,
            generated: 0,
            has_newline: false,
            begun: false,
            chars: 0,
            thoughts: asked.thoughts.clone(),
            reader: Reader::default(),
            items: Items::new(&asked.thoughts),
            output: Vec::new(),
            sent: 0,
            done: None,
            read_at: None,
        });
        Ok(Reply {
            choices: choices.collect(),
            service: service.clone(),
            asked,
            id: format!("chatcmpl-{}", random_name(32)?),
            created: now(),
            loading: Duration::ZERO,
        })
    }

    /// Takes the next event of a choice, and returns what it is to a stream.
    ///
    /// # Errors
    /// The text ended by a fault, or because the server ends.
    pub fn take(&mut self, index: usize, event: Event) -> Result<Option<Part>, ApiError> {
        let stream = self.asked.stream;
        let choice = &mut self.choices[index];
        Ok(Some(match event {
            Event::Prompt(progress) => {
                if progress.processed == progress.total {
                    choice.read_at = Some(Instant::now());
                }
                choice.progress = Some(progress);
                Part::Progress(progress)
            }
            Event::PromptLogprobs(list) => {
                choice.prompt_logprobs.extend(list);
                return Ok(None);
            }
            Event::Token(token) => {
                choice.generated += 1;
                choice.has_newline |= token.text.contains('\n');
                choice.logprobs.extend(token.logprobs);
                if !stream {
                    choice.tokens.push(token.id);
                    choice.text += &token.text;
                }
                Part::Token { id: token.id, text: token.text }
            }
            Event::Done(mut done) => {
                self.service.meters.text(&done);
                if done.ended == Ended::Shutdown {
                    return Err(ApiError::unavailable("the server is shutting down", 1));
                }
                let rest = std::mem::take(&mut done.text);
                choice.has_newline |= rest.contains('\n');
                if !stream {
                    choice.text += &rest;
                }
                choice.done = Some(done);
                Part::Done(rest)
            }
            Event::Refused(why) => return Err(why.into()),
            Event::Failed(why) => return Err(ApiError::server(why)),
            Event::Vector(_) => return Err(ApiError::server("a vector instead of a text")),
        }))
    }

    /// True if all texts have ended.
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|c| c.done.is_some())
    }

    /// A name for a call of a function: that of the answer, which is random, and the places of the choice and of the
    /// call.
    pub fn call_id(&self, choice: usize, call: usize) -> String {
        let random: String = self.id.chars().rev().take(18).collect();
        format!("call_{random}{choice:03}{call:03}")
    }

    /// The members that all objects of an answer in OpenAI's shapes have.
    pub fn object(&self, kind: &str, choices: Vec<Value>) -> Value {
        serde_json::json!({
            "choices": choices,
            "created": self.created,
            "id": self.id,
            "model": self.asked.model,
            "system_fingerprint": self.service.about.fingerprint,
            "object": kind,
        })
    }
}

/// A random name of letters and digits.
///
/// # Errors
/// The system gives no random numbers.
pub fn random_name(len: usize) -> Result<String, ApiError> {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut bytes = vec![0; len];
    getrandom::fill(&mut bytes).map_err(|e| ApiError::server(format!("no random numbers: {e}")))?;
    let letters = bytes.iter().map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()]));
    Ok(letters.collect())
}
