//! `/v1/rerank` and its kin: how well texts answer a question, in the shapes of Jina's and Cohere's API and of text
//! embeddings inference.

use serde_json::{Value, json};
use trine::{Pooling, RankError};

use super::request::fields::{Fields, wrong};
use super::request::{Caller, adapters, cache, named};
use crate::engine::{Request, Vector};
use crate::error::ApiError;
use crate::service::Service;

/// Most documents of a request.
const MOST: usize = 2048;

/// A request to rank texts.
pub struct Ranks {
    /// One for each document.
    pub requests: Vec<Request>,
    /// The name of the model in the answer.
    model: String,
    /// The documents, where the answer repeats them.
    documents: Option<Vec<String>>,
    /// Results that are sent: the best ones.
    most: usize,
    /// True for a bare list with a `score` for each, as text embeddings inference has it.
    bare: bool,
}

impl Ranks {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// An error that names the field; the model does not rank texts.
    pub fn read(service: &Service, body: &Value, caller: &Caller) -> Result<Ranks, ApiError> {
        let f = Fields::of(body)?;
        let model = service.engine.model();
        if !model.ranks() {
            return Err(ApiError::invalid(RankError::NoHead.to_string()));
        }
        let query = f.text("query")?.ok_or_else(|| ApiError::field("query", "is required"))?;
        let (documents, texts) = (f.list("documents")?, f.list("texts")?);
        let bare = texts.is_some();
        let name = if documents.is_some() || !bare { "documents" } else { "texts" };
        let list = documents.or(texts).ok_or_else(|| ApiError::field(name, "is required"))?;
        if list.is_empty() {
            return Err(ApiError::field(name, "there is nothing in it"));
        }
        if list.len() > MOST {
            return Err(ApiError::field(name, format!("more than {MOST} of them")));
        }
        let documents = list.iter().map(|value| document(name, value)).collect::<Result<Vec<_>, _>>()?;
        let (model_name, bits) = named(&f, service)?;
        let one = Request {
            pooling: Some(Pooling::Rank),
            bits,
            adapters: adapters(&f, service)?,
            cache: cache(&f, caller)?,
            party: caller.party.clone(),
            priority: caller.priority,
            deadline: caller.deadline_within(service),
            ..Request::new(Vec::new())
        };
        let encoder = service.encoder();
        let prompt = |text: &str| {
            encoder.check(query.len() + text.len())?;
            model.rank_prompt(query, text).map_err(|e| ApiError::invalid(e.to_string()))
        };
        let requests = documents.iter().map(|text| Ok(Request { prompt: prompt(text)?, ..one.clone() }));
        let repeated = [f.is_set("return_documents")?, f.is_set("return_text")?][usize::from(bare)];
        Ok(Ranks {
            requests: requests.collect::<Result<_, ApiError>>()?,
            model: model_name,
            most: f.integer("top_n", 0..=i64::MAX)?.map_or(documents.len(), |n| documents.len().min(n as usize)),
            documents: repeated.then_some(documents),
            bare,
        })
    }

    /// The answer: the best first, and of equal ones that which stands first in the request.
    pub fn answer(&self, vectors: &[Vector]) -> String {
        let tokens: usize = vectors.iter().map(|v| v.prompt_tokens).sum();
        let mut ranks: Vec<(usize, f32)> =
            vectors.iter().enumerate().map(|(i, v)| (i, v.numbers.first().copied().unwrap_or_default())).collect();
        ranks.sort_by(|a, b| b.1.total_cmp(&a.1));
        let results = ranks.into_iter().take(self.most).map(|(index, score)| {
            let document = self.documents.as_ref().map(|all| Value::from(all[index].as_str()));
            match (self.bare, document) {
                (true, None) => format!("{{\"index\":{index},\"score\":{score}}}"),
                (true, Some(text)) => format!("{{\"index\":{index},\"score\":{score},\"text\":{text}}}"),
                (false, None) => format!("{{\"index\":{index},\"relevance_score\":{score}}}"),
                (false, Some(text)) => {
                    format!("{{\"index\":{index},\"relevance_score\":{score},\"document\":{{\"text\":{text}}}}}")
                }
            }
        });
        let results = results.collect::<Vec<_>>().join(",");
        if self.bare {
            return format!("[{results}]\n");
        }
        let model = Value::from(self.model.as_str());
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        format!("{{\"model\":{model},\"object\":\"list\",\"usage\":{usage},\"results\":[{results}]}}\n")
    }
}

/// A document: a text, or an object with one.
fn document(name: &str, value: &Value) -> Result<String, ApiError> {
    let text = value.as_str().or_else(|| value.get("text")?.as_str());
    text.map(str::to_owned).ok_or_else(|| wrong(name, "an array of strings", value))
}
