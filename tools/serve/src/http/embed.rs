//! The routes that make vectors of texts, or rank them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use serde_json::Value;

use super::asked::Asked;
use super::guard::Known;
use super::state::State;
use super::{generate, reply};
use crate::api::ApiError;
use crate::api::embeddings::{Inputs, Shape};
use crate::api::request::Caller;
use crate::api::rerank::Ranks;
use crate::engine::{Answer, Ended, Event, Refused, Request, Vector};
use crate::service::{Service, Weight};

/// The routes of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Vectors in this shape.
    Vectors(Shape),
    /// Ranks.
    Ranks,
}

/// A request that was read.
enum Read {
    Vectors(Inputs),
    Ranks(Ranks),
}

impl Read {
    fn of(wanted: Wanted, service: &Service, body: &Value, caller: &Caller) -> Result<Read, ApiError> {
        match wanted {
            Wanted::Vectors(shape) => Inputs::read(service, body, caller, shape).map(Read::Vectors),
            Wanted::Ranks => Ranks::read(service, body, caller).map(Read::Ranks),
        }
    }

    /// Takes out what the engine is asked for.
    fn requests(&mut self) -> Vec<Request> {
        std::mem::take(match self {
            Read::Vectors(inputs) => &mut inputs.requests,
            Read::Ranks(ranks) => &mut ranks.requests,
        })
    }

    fn answer(&self, vectors: Vec<Vector>, took: Duration, loading: Duration) -> String {
        match self {
            Read::Vectors(inputs) => inputs.answer(vectors, took, loading),
            Read::Ranks(ranks) => ranks.answer(&vectors),
        }
    }
}

/// Answers a request for vectors or ranks.
pub async fn embed(state: &State, wanted: Wanted, known: Known, headers: &HeaderMap, body: Body) -> Response<Body> {
    match answer(state, wanted, known, headers, body).await {
        Ok(response) => response,
        Err(e) => e.into_response(),
    }
}

async fn answer(
    state: &State,
    wanted: Wanted,
    known: Known,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response<Body>, ApiError> {
    let since = Instant::now();
    let caller = generate::caller(state, &known, headers)?;
    let request = Asked::read(state, body).await?;
    known.enter()?;
    let service = request.lease(state, &known).await?;
    let body = request.body;
    let read = service.blocking(request.weight, move |service| Read::of(wanted, service, &body, &caller));
    let mut read = read.await?;
    drop(request.room);
    let mut waiting = read.requests().into_iter().peekable();
    // As many as can run: the engine reads several in one pass, and a long list leaves the queue to others.
    let most = service.engine.options().parallel;
    let (mut running, mut vectors) = (VecDeque::new(), Vec::new());
    loop {
        while let Some(request) = waiting.peek().filter(|_| running.len() < most) {
            match service.engine.submit(request.clone()) {
                Ok(answer) => running.push_back(answer),
                // Others fill the queue; there is room again when one of ours is done.
                Err(Refused::Busy { .. }) if !running.is_empty() => break,
                Err(refused) => return Err(refused.into()),
            }
            waiting.next();
        }
        let Some(first) = running.pop_front() else {
            break;
        };
        let vector = vector(first).await?;
        service.meters.vector(&vector);
        known.entry.vector(&vector);
        vectors.push(vector);
    }
    let loading = service.loading;
    let work = service.blocking(Weight::Light, move |_| {
        let text = read.answer(vectors, since.elapsed(), loading);
        Ok(reply::with_type(200, "application/json; charset=utf-8", text))
    });
    work.await
}

/// The vector at the end of an answer.
async fn vector(mut answer: Answer) -> Result<Vector, ApiError> {
    while let Some(event) = answer.next().await {
        match event {
            Event::Vector(vector) => return Ok(vector),
            Event::Done(done) if done.ended == Ended::Deadline => {
                return Err(ApiError::unavailable("the time of the request is over", 1));
            }
            Event::Done(done) if done.ended == Ended::Shutdown => {
                return Err(ApiError::unavailable("the server is shutting down", 1));
            }
            Event::Refused(why) => return Err(why.into()),
            Event::Failed(why) => return Err(ApiError::server(why)),
            Event::Done(_) => return Err(ApiError::server("a text instead of a vector")),
            Event::Prompt(_) | Event::PromptLogprobs(_) | Event::Token(_) => {}
        }
    }
    Err(ApiError::server("the engine has ended"))
}
