//! Requests to the engine, and its answers.

use std::time::Duration;

use trine::generate::{End, Token, TokenLogprobs};
use trine::step::Scales;
use trine::{Grammar, Pooling, SamplerOptions};

/// A request to continue a text, or to embed it. The answer is a function of this and of the model, and of nothing
/// else.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its tokens, at least one.
    pub prompt: Vec<u32>,
    /// The vector of the prompt is asked for, and no text. Options of generated tokens do not count then.
    pub pooling: Option<Pooling>,
    /// Tokens that were generated after the prompt already, elsewhere: the text goes on behind them as if they had been
    /// generated here.
    pub resume: Vec<u32>,
    /// Most tokens to generate, those of `resume` included; `None`: until the model or the context ends the text.
    pub max_tokens: Option<usize>,
    /// Tokens of the prompt that stay when the context is full and half of the others are forgotten; `None`: a full
    /// context ends the text.
    pub shift: Option<usize>,
    /// How tokens are chosen; the seed is the effective one.
    pub sampler: SamplerOptions,
    /// The form that the text must have; `None`: any.
    pub grammar: Option<Grammar>,
    /// Texts that end the text, none of them empty.
    pub stop: Vec<String>,
    /// Control tokens whose names belong to the text.
    pub shown: Vec<u32>,
    /// Never choose a token that ends the text.
    pub ignore_eos: bool,
    /// Bits per weight of an any-precision model; `None` for its widest.
    pub bits: Option<u8>,
    /// Factors of the model's adapters; `None`: those with which it was loaded.
    pub adapters: Option<Scales>,
    /// Bits per weight at which tokens are drafted; 0: nothing is, `None`: as the server does. Changes no text.
    pub draft_bits: Option<u8>,
    /// How many of the most likely tokens are told with every token, besides the token's own probability; `None`:
    /// nothing.
    pub logprobs: Option<usize>,
    /// Tell, instead of how likely tokens were by the model, how likely they were to be drawn, behind the sampler's
    /// chain.
    pub odds: bool,
    /// Tell the same of the prompt's tokens.
    pub prompt_logprobs: bool,
    /// Salt of the KV cache: requests that give the same salt share the cached keys and values of their prompts.
    /// `None`: no sharing.
    pub cache: Option<String>,
    /// The place that it is to have where that is free; `None`: any.
    pub slot: Option<usize>,
    /// Who asks: those that wait take turns by this.
    pub party: String,
    /// Those that wait get their places by this first, the highest before the others.
    pub priority: i32,
    /// Most time from admission to the end; then the text ends as [`Ended::Deadline`].
    pub deadline: Option<Duration>,
}

impl Request {
    /// Tokens of the prompt and of what is resumed.
    pub fn given(&self) -> usize {
        self.prompt.len() + self.resume.len()
    }

    /// The continuation of `prompt` with the default options.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request {
            prompt,
            pooling: None,
            resume: Vec::new(),
            max_tokens: None,
            shift: None,
            sampler: SamplerOptions::default(),
            grammar: None,
            stop: Vec::new(),
            shown: Vec::new(),
            ignore_eos: false,
            bits: None,
            adapters: None,
            draft_bits: None,
            logprobs: None,
            odds: false,
            prompt_logprobs: false,
            cache: Some(String::new()),
            slot: None,
            party: String::new(),
            priority: 0,
            deadline: None,
        }
    }
}

/// Events of a request, in this order: `Prompt` once or several times, `PromptLogprobs` if asked for, `Token` for every
/// token, and at the end one `Done`, `Vector`, `Failed` or `Refused`.
#[derive(Clone, Debug)]
pub enum Event {
    /// How much of the prompt was read. The first tells what was found in the cache, the last has `processed == total`.
    Prompt(Progress),
    /// Log probabilities of every token of the prompt but the first, in order.
    PromptLogprobs(Vec<TokenLogprobs>),
    /// The next token.
    Token(Token),
    /// The text ended.
    Done(Done),
    /// The vector that was asked for.
    Vector(Vector),
    /// The text ended by a fault of the model or the server; the message is for the client.
    Failed(String),
    /// The request was taken and cannot be followed: it waited too long, or its grammar leads nowhere.
    Refused(Refused),
}

/// How much of a prompt was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Tokens of the prompt.
    pub total: usize,
    /// Tokens of the prompt that were found in the cache.
    pub cached: usize,
    /// Tokens of the prompt that were found or read so far.
    pub processed: usize,
    /// The number of the text's place.
    pub slot: usize,
    /// Since the request was admitted.
    pub time: Duration,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// For a reason of its own.
    Text(End),
    /// Its time was over.
    Deadline,
    /// The server ends.
    Shutdown,
}

/// The end of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Pending text that belongs to the text after all.
    pub text: String,
    /// Why it ended.
    pub ended: Ended,
    /// Tokens of the prompt, those of `resume` included.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were found in the cache.
    pub cached_tokens: usize,
    /// Tokens that were generated, the one that ended the text included.
    pub generated_tokens: usize,
    /// From admission to the logits after the prompt.
    pub prompt_time: Duration,
    /// From then to the end.
    pub generation_time: Duration,
    /// The seed and the bits per weight it was generated with; 0 bits where the model has one width.
    pub seed: u32,
    /// See `seed`.
    pub bits: u8,
    /// Factors of the adapters; `None`: those with which the model was loaded.
    pub adapters: Option<Scales>,
    /// How often a full context was shifted.
    pub shifts: usize,
    /// Tokens that were drafted, and how many of them the text has.
    pub drafted: usize,
    /// See `drafted`.
    pub accepted: usize,
}

/// The vector of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// Its numbers, as the pooling left them; those of several vectors one behind the other.
    pub numbers: Vec<f32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were found in the cache.
    pub cached_tokens: usize,
    /// From admission to the end.
    pub time: Duration,
    /// The bits per weight it was computed with; 0 where the model has one width.
    pub bits: u8,
}

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Something in it makes no sense; the message says what.
    #[error("{0}")]
    Invalid(String),
    /// The prompt does not fit the context.
    #[error("request ({tokens} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it")]
    TooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens of the context.
        n_ctx: usize,
    },
    /// The prompt fits the context, but not the memory for keys and values even when it is alone.
    #[error(
        "request ({tokens} tokens) does not fit the memory for keys and values ({room} tokens); give the server a larger --kv-memory"
    )]
    NeverFits {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that all pages hold.
        room: usize,
    },
    /// It may take more memory than a request gets.
    #[error(
        "the request may take {needed} bytes, more than --max-request-memory {most}: ask for fewer texts, tokens or probabilities"
    )]
    TooMuch {
        /// Bytes that it may take.
        needed: usize,
        /// The limit.
        most: usize,
    },
    /// Too many requests wait.
    #[error("the server is busy: {waiting} requests are waiting, try again in {retry_after} s")]
    Busy {
        /// Requests in the queue.
        waiting: usize,
        /// Seconds after which there may be room.
        retry_after: u64,
    },
    /// It waited too long for its turn.
    #[error("the request waited for more than {seconds} s, try again later")]
    WaitedTooLong {
        /// The limit.
        seconds: u64,
    },
    /// The server is about to end.
    #[error("the server is shutting down")]
    Draining,
}
