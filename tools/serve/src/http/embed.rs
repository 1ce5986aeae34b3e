//! The routes that make vectors of texts.

use std::collections::VecDeque;
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;

use super::asked::Asked;
use super::guard::Known;
use super::state::State;
use super::{generate, reply};
use crate::api::ApiError;
use crate::api::embeddings::{Inputs, Shape};
use crate::engine::{Answer, Ended, Event, Refused, Vector};

/// Answers a request for vectors in this shape.
pub async fn embed(state: &State, shape: Shape, known: Known, headers: &HeaderMap, body: Body) -> Response<Body> {
    match answer(state, shape, known, headers, body).await {
        Ok(response) => response,
        Err(e) => e.into_response(),
    }
}

async fn answer(
    state: &State,
    shape: Shape,
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
    let read = service.blocking(move |service| Inputs::read(service, &body, &caller, shape));
    let mut inputs = read.await?;
    let mut waiting = std::mem::take(&mut inputs.requests).into_iter().peekable();
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
    let work = service.blocking(move |_| {
        let text = inputs.answer(vectors, since.elapsed(), loading);
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
