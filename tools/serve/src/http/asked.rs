//! The body of a request, and the model that it asks for.

use std::sync::Arc;

use axum::body::Body;
use serde_json::Value;

use super::body::{self, Taken, parse};
use super::guard::Known;
use super::intake::{self, Held};
use super::state::State;
use crate::api::ApiError;
use crate::api::request::fields::Fields;
use crate::api::request::keep_alive::keep_alive;
use crate::args::KeepAlive;
use crate::models::Lease;
use crate::service::{LONGEST_NAME, Weight};

/// The body of a request, and the model that it asks for.
pub struct Asked {
    /// The body, an object.
    pub body: Arc<Value>,
    /// The name of the model.
    pub model: Option<String>,
    /// How long the model is to stay loaded afterwards.
    pub keep: Option<KeepAlive>,
    /// How much work it is to read it further.
    pub weight: Weight,
    /// Memory for it, until it is read.
    pub room: Held,
}

impl Asked {
    /// Reads a body. It is not read while there is no model yet.
    ///
    /// # Errors
    /// It does not come, or is no object; the name is none.
    pub async fn read(state: &State, body: Body) -> Result<Asked, ApiError> {
        state.models.check_ready()?;
        let taken = body::read(body, state.max_body, &state.intake).await?;
        Asked::parsed(state, taken).await
    }

    /// The same where no body stands for an empty object.
    ///
    /// # Errors
    /// As [`Asked::read`].
    pub async fn read_or_empty(state: &State, body: Body) -> Result<Asked, ApiError> {
        state.models.check_ready()?;
        let mut taken = body::read(body, state.max_body, &state.intake).await?;
        if taken.bytes.is_empty() {
            taken.bytes.extend(b"{}");
        }
        Asked::parsed(state, taken).await
    }

    async fn parsed(state: &State, taken: Taken) -> Result<Asked, ApiError> {
        let weight = Weight::of_body(taken.bytes.len());
        let count = move || Ok((intake::cost(&taken.bytes), taken));
        let (cost, taken) = state.work.run(weight, count).await?;
        let room = state.intake.pieces(cost, weight).await?;
        let body = state.work.run(weight, move || parse(&taken.bytes)).await?;
        let f = Fields::of(&body)?;
        let model = match f.short_text("model", LONGEST_NAME)? {
            Some(name) => Some(name),
            // Ollama's older clients say so.
            None => f.get("name").and_then(Value::as_str).filter(|name| name.len() <= LONGEST_NAME),
        };
        let (model, keep) = (model.map(str::to_owned), keep_alive(&f)?);
        Ok(Asked { body: Arc::new(body), model, keep, weight, room })
    }

    /// The model, loaded.
    ///
    /// # Errors
    /// There is none of that name; the key is not for it; it cannot be loaded, or not in time.
    pub async fn lease(&self, state: &State, known: &Known) -> Result<Lease, ApiError> {
        let may = |name: &str| known.may_ask_for(name);
        state.models.lease(self.model.as_deref(), self.keep, &may).await
    }
}
