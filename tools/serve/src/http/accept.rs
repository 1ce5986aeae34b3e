//! Connections: how many, how long, and how they end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWrite;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::connection::Stream;
use super::listen::Listener;
use super::patient::Patient;

/// Most time between the beginning of a connection, or the end of an answer, and the end of the next request's head.
const HEADERS: Duration = Duration::from_secs(10);

/// Headers of a request, and bytes of its head. The buffer has room for the head and for a part of a body.
const MOST_HEADERS: usize = 64;
const MOST_HEAD: usize = 16 << 10;
const BUFFER: usize = 64 << 10;

/// How long the loop rests when the system has no descriptors left.
const REST: Duration = Duration::from_millis(50);

/// The response to a connection beyond the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json; charset=utf-8\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 92\r\n\r\n{\"error\":{\"code\":503,\"message\":\"too many connections are open\",\"type\":\"unavailable_error\"}}\n";

/// Accepts connections until `stop` says so, and gives up those whose clients leave an answer unread for longer than
/// `patience`; then ends those that are idle and waits for the others.
pub async fn accept(
    listeners: Vec<Listener>,
    router: Router,
    most: usize,
    patience: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(most));
    let graceful = GracefulShutdown::new();
    let mut listeners = VecDeque::from(listeners);
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = next(&mut listeners) => accepted,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            // The client is gone, or there are no descriptors: the connections that are open go on.
            Err(_) => {
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        match connections.clone().try_acquire_owned() {
            Ok(permit) => {
                serve(Patient::new(stream, patience), router.clone(), &graceful, permit);
            }
            Err(_) => refuse(stream),
        }
    }
    drop(listeners);
    graceful.shutdown().await;
}

/// The next connection of any of them. The one that gave the last is asked last, so that none keeps the others waiting.
async fn next(listeners: &mut VecDeque<Listener>) -> io::Result<Box<dyn Stream>> {
    poll_fn(|cx| {
        for _ in 0..listeners.len() {
            listeners.rotate_left(1);
            let accepted = listeners.back().map(|l| l.poll_accept(cx));
            if let Some(Poll::Ready(accepted)) = accepted {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}

fn serve(stream: Patient, router: Router, graceful: &GracefulShutdown, permit: OwnedSemaphorePermit) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        // Without a timer the time limit below would be ignored.
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(MOST_HEADERS)
        // Names in the spelling that programs look for which compare them letter by letter.
        .title_case_headers(true)
        .max_header_size(MOST_HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // An error is a client that went away or spoke no HTTP; hyper has answered it where it could.
        let _ = connection.await;
        drop(permit);
    });
}

fn refuse(mut stream: Box<dyn Stream>) {
    tokio::spawn(async move {
        let told = async {
            // The buffer of a new connection takes all of it at once.
            poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, FULL)).await?;
            poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await
        };
        // Whoever does not even read this is let go.
        let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
    });
}
