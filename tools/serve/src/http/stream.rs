//! Answers that are sent as they come: server-sent events, and lines of JSON.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

use super::events::Events;
use super::log::Entry;
use super::reply::with_type;
use crate::api::{ApiError, Dialect, Reply, Route, answer};
use crate::engine::Event;
use crate::models::Lease;

/// Frames that wait for a slow client; after that its text waits too.
const WAITING: usize = 16;

/// A comment, which clients leave out.
const PING: &[u8] = b":\n\n";

/// A body whose parts come through a channel. When the client is gone it is dropped, which the sender notices.
struct Channel(mpsc::Receiver<Bytes>);

impl HttpBody for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|part| part.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Sends `begun` and then what the events become, for which `lease` keeps the model.
pub fn respond(reply: Reply, events: Events, begun: Vec<Value>, entry: Arc<Entry>, lease: Lease) -> Response<Body> {
    let kind = match reply.asked.route.dialect() {
        Dialect::Ollama => "application/x-ndjson",
        Dialect::OpenAi | Dialect::Anthropic => "text/event-stream",
    };
    let (to, from) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let _lease = lease;
        let gone = to.clone();
        tokio::select! {
            biased;
            () = gone.closed() => {}
            // An error here means that the client is gone.
            _ = pump(reply, events, begun, to, &entry) => {}
        }
    });
    let mut response = with_type(200, kind, Body::new(Channel(from)));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that would collect an answer before they pass it on leave this one alone.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Gone;

/// An error as an event of a stream.
fn failed(route: Route, error: &ApiError) -> Value {
    let mut body = error.body(route.dialect());
    if route == Route::Responses {
        body["type"] = "error".into();
    }
    body
}

async fn pump(
    mut reply: Reply,
    mut events: Events,
    begun: Vec<Value>,
    to: mpsc::Sender<Bytes>,
    entry: &Entry,
) -> Result<(), Gone> {
    let (ping, route) = (reply.asked.ping, reply.asked.route);
    send_all(&to, route, begun).await?;
    while !reply.is_done() {
        let event = tokio::select! {
            event = events.next() => event,
            () = silence(ping) => {
                match route.dialect() {
                    // Lines have no comments.
                    Dialect::Ollama => send_all(&to, route, vec![answer::ollama::nothing(&reply)]).await?,
                    Dialect::OpenAi | Dialect::Anthropic => send(&to, Bytes::from_static(PING)).await?,
                }
                continue;
            }
        };
        match take(&mut reply, event, entry) {
            Ok(parts) => send_all(&to, route, parts).await?,
            // The headers are sent, so the error comes as an event, and nothing after it.
            Err(e) => return send_all(&to, route, vec![failed(route, &e)]).await,
        }
    }
    send_all(&to, route, answer::tail(&reply)).await?;
    if matches!(route, Route::Text | Route::Chat) {
        send(&to, Bytes::from_static(b"data: [DONE]\n\n")).await?;
    }
    Ok(())
}

/// Takes an event, or that there are no more although a text has not ended.
///
/// # Errors
/// The text ended by a fault.
pub fn take(reply: &mut Reply, event: Option<(usize, Event)>, entry: &Entry) -> Result<Vec<Value>, ApiError> {
    let Some((index, event)) = event else {
        return Err(ApiError::server("the engine has ended"));
    };
    match &event {
        Event::Prompt(progress) if progress.processed == progress.total => entry.spend(progress.total),
        Event::Token(_) => entry.spend(1),
        _ => {}
    }
    let parts = answer::take(reply, index, event);
    if let Some(done) = &reply.choices[index].done {
        entry.text(done);
    }
    parts
}

async fn silence(ping: Option<Duration>) {
    match ping {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}

async fn send_all(to: &mpsc::Sender<Bytes>, route: Route, objects: Vec<Value>) -> Result<(), Gone> {
    for object in objects {
        if route.dialect() == Dialect::Ollama {
            send(to, Bytes::from(format!("{object}\n"))).await?;
            continue;
        }
        // Clients of these routes look at the names of events.
        let name = match (route, object["type"].as_str()) {
            (Route::Responses | Route::Messages, Some(name)) => format!("event: {name}\n"),
            _ => String::new(),
        };
        send(to, Bytes::from(format!("{name}data: {object}\n\n"))).await?;
    }
    Ok(())
}

async fn send(to: &mpsc::Sender<Bytes>, bytes: Bytes) -> Result<(), Gone> {
    to.send(bytes).await.map_err(|_| Gone)
}
