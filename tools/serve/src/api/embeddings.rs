//! `/v1/embeddings` in OpenAI's shape, `/embedding` and `/embeddings` in llama-server's, `/api/embed` and
//! `/api/embeddings` in Ollama's.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use trine::{Pooling, Scale};

use super::request::fields::Fields;
use super::request::{Caller, adapters, cache, named, prompt};
use crate::engine::{Request, Vector};
use crate::error::ApiError;
use crate::service::{Encoder, Service};

/// Most inputs of a request, as at OpenAI.
const MOST: usize = 2048;
/// The shapes of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// OpenAI's.
    OpenAi,
    /// llama-server's own.
    Native,
    /// Ollama's, of `/api/embed`.
    Ollama,
    /// Ollama's older one, of `/api/embeddings`: one prompt, one vector, as it is.
    OllamaOne,
}

impl Shape {
    /// The fields in which the texts may stand, of which the first that a request has counts.
    fn names(self) -> &'static [&'static str] {
        match self {
            Shape::OpenAi | Shape::Native => &["input", "content"],
            Shape::Ollama => &["input"],
            Shape::OllamaOne => &["prompt"],
        }
    }

    /// True if it is one of Ollama's.
    fn is_ollama(self) -> bool {
        matches!(self, Shape::Ollama | Shape::OllamaOne)
    }
}

/// A request for vectors.
pub struct Inputs {
    /// One for each input.
    pub requests: Vec<Request>,
    /// The name of the model in the answer.
    model: String,
    pooling: Pooling,
    scale: Scale,
    /// Numbers of a vector that are sent: the first ones.
    dimensions: usize,
    base64: bool,
    shape: Shape,
}

impl Inputs {
    /// Reads the body of a request in this shape.
    ///
    /// # Errors
    /// An error that names the field.
    pub fn read(service: &Service, body: &Value, caller: &Caller, shape: Shape) -> Result<Inputs, ApiError> {
        let f = Fields::of(body)?;
        let names = shape.names();
        let given = names.iter().find_map(|name| Some((*name, f.get(name)?)));
        let prompts = match given {
            // Without a text such a request loads the model.
            None if shape.is_ollama() => Vec::new(),
            Some((_, Value::String(text))) if shape.is_ollama() && text.is_empty() => Vec::new(),
            Some((_, Value::Array(list))) if shape.is_ollama() && list.is_empty() => Vec::new(),
            None => return Err(ApiError::field(names[0], "is required")),
            Some((name, value)) => {
                let encoder =
                    Encoder { cut: shape.is_ollama() && f.flag("truncate")?.unwrap_or(true), ..service.encoder() };
                prompt::prompts(name, MOST, value, encoder)?.0
            }
        };
        let name = given.map_or(names[0], |(name, _)| name);
        if let Some(i) = prompts.iter().position(|p| p.tokens.is_empty()) {
            return Err(ApiError::field(name, format!("input {i} is empty")));
        }
        let (model, bits) = named(&f, service)?;
        let n_embd = service.engine.model().weights().config().n_embd as i64;
        let dimensions = f.integer("dimensions", 1..=n_embd)?.unwrap_or(n_embd) as usize;
        // This field is llama-server's, and so is the answer.
        let shape = if name == "content" { Shape::Native } else { shape };
        let pooling = pooling(&f)?.unwrap_or(service.pooling);
        if pooling == Pooling::None && dimensions < n_embd as usize {
            return Err(ApiError::field("dimensions", "tokens have whole vectors"));
        }
        if pooling == Pooling::None {
            let tokens: usize = prompts.iter().map(|p| p.tokens.len()).sum();
            each(shape, tokens, n_embd as usize)?;
        }
        let one = Request {
            pooling: Some(pooling),
            bits,
            adapters: adapters(&f, service)?,
            cache: cache(&f, caller)?,
            party: caller.party.clone(),
            priority: caller.priority,
            deadline: caller.deadline_within(service),
            ..Request::new(Vec::new())
        };
        let requests = prompts.into_iter().map(|p| Request { prompt: p.tokens, ..one.clone() });
        Ok(Inputs {
            requests: requests.collect(),
            model,
            pooling,
            scale: scale(&f)?.unwrap_or(if shape == Shape::OllamaOne { Scale::None } else { Scale::Length }),
            dimensions,
            base64: base64(&f)?,
            shape,
        })
    }

    /// The answer, in one line. Of thousands of vectors a tree of JSON would take many times their memory, so it is
    /// written as it goes.
    pub fn answer(&self, vectors: Vec<Vector>, took: Duration, loading: Duration) -> String {
        let tokens: usize = vectors.iter().map(|v| v.prompt_tokens).sum();
        let bits = vectors.first().map(|v| v.bits).filter(|b| *b > 0);
        let objects = vectors.into_iter().enumerate().map(|(i, mut vector)| {
            if self.pooling == Pooling::None {
                // As they are, as llama-server has it.
                let each = vector.numbers.len() / vector.prompt_tokens.max(1);
                let states = vector.numbers.chunks(each.max(1)).map(|v| self.numbers(v));
                let states = states.collect::<Vec<_>>().join(",");
                return format!("{{\"index\":{i},\"embedding\":[{states}]}}");
            }
            vector.numbers.truncate(self.dimensions);
            self.scale.apply(&mut vector.numbers);
            let numbers = self.numbers(&vector.numbers);
            match (self.shape, self.base64) {
                (Shape::Ollama | Shape::OllamaOne, _) => numbers,
                (Shape::Native, _) => format!("{{\"index\":{i},\"embedding\":[{numbers}]}}"),
                (Shape::OpenAi, true) => format!(
                    "{{\"object\":\"embedding\",\"index\":{i},\"embedding\":{numbers},\"encoding_format\":\"base64\"}}"
                ),
                (Shape::OpenAi, false) => format!("{{\"object\":\"embedding\",\"index\":{i},\"embedding\":{numbers}}}"),
            }
        });
        let objects = objects.collect::<Vec<_>>().join(",");
        let model = Value::from(self.model.as_str());
        match self.shape {
            Shape::OpenAi => {}
            Shape::Native => return format!("[{objects}]\n"),
            Shape::OllamaOne if objects.is_empty() => return "{\"embedding\":[]}\n".to_owned(),
            Shape::OllamaOne => return format!("{{\"embedding\":{objects}}}\n"),
            Shape::Ollama => {
                let (took, loading) = (took.as_nanos(), loading.as_nanos());
                return format!(
                    "{{\"model\":{model},\"embeddings\":[{objects}],\"total_duration\":{took},\"load_duration\":{loading},\"prompt_eval_count\":{tokens}}}\n"
                );
            }
        }
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        let effective = json!({"bits": bits, "pooling": self.pooling.name()});
        format!(
            "{{\"object\":\"list\",\"data\":[{objects}],\"model\":{model},\"usage\":{usage},\"trine\":{effective}}}\n"
        )
    }

    /// The numbers of a vector: in JSON the shortest decimals that read back to the same, or their bytes.
    fn numbers(&self, vector: &[f32]) -> String {
        if self.base64 && self.shape == Shape::OpenAi {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            return format!("\"{}\"", BASE64.encode(bytes));
        }
        let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
        format!("[{}]", numbers.join(","))
    }
}

const POOLING: &str = "pooling";
/// Most numbers of an answer that has a vector for every token.
const MOST_NUMBERS: usize = 1 << 24;

fn pooling(f: &Fields<'_>) -> Result<Option<Pooling>, ApiError> {
    let unknown = || ApiError::field(POOLING, "must be \"mean\", \"cls\", \"last\" or \"none\"");
    let pooling = f.text(POOLING)?.map(|name| Pooling::by_name(name).ok_or_else(unknown)).transpose()?;
    match pooling {
        Some(Pooling::Rank) => Err(ApiError::field(POOLING, "\"rank\" is for /v1/rerank")),
        other => Ok(other),
    }
}

/// Refuses a vector for each of `tokens` tokens in OpenAI's shape, which has one for a text, and where the answer would
/// be too long.
fn each(shape: Shape, tokens: usize, n_embd: usize) -> Result<(), ApiError> {
    if shape != Shape::Native {
        return Err(ApiError::field(
            POOLING,
            "\"none\" is for /embedding: the shape of this route has one vector for a text",
        ));
    }
    if tokens.saturating_mul(n_embd) > MOST_NUMBERS {
        return Err(ApiError::field(
            POOLING,
            format!("the vectors of {tokens} tokens are more than {MOST_NUMBERS} numbers; send less text at once"),
        ));
    }
    Ok(())
}

fn scale(f: &Fields<'_>) -> Result<Option<Scale>, ApiError> {
    const NAME: &str = "embd_normalize";
    const KNOWN: &str = "must be -1 (as it is), 0 (largest number 32760) or 2 (length 1)";
    let number = f.integer(NAME, i64::from(i32::MIN)..=i64::from(i32::MAX))?;
    number.map(|n| Scale::by_number(n).ok_or_else(|| ApiError::field(NAME, KNOWN))).transpose()
}

fn base64(f: &Fields<'_>) -> Result<bool, ApiError> {
    const NAME: &str = "encoding_format";
    match f.text(NAME)? {
        None | Some("float") => Ok(false),
        Some("base64") => Ok(true),
        Some(_) => Err(ApiError::field(NAME, "must be \"float\" or \"base64\"")),
    }
}
