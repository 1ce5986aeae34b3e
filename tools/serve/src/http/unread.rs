//! Answers that wait to be read: how many bytes they may have together.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use axum::response::IntoResponse;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::ApiError;

/// Smaller answers are not counted: connections have room for them.
const SMALL: u64 = 64 << 10;
/// Bytes of a part, of which a connection takes the next one when there is room.
const PART: usize = 64 << 10;
/// Bytes that are counted as one.
const UNIT: usize = 1 << 10;

/// The room for answers that were not read yet.
#[derive(Clone)]
pub struct Unread {
    room: Arc<Semaphore>,
    all: usize,
}

/// An answer that has its room until all of it was sent.
struct Held {
    rest: Bytes,
    _room: OwnedSemaphorePermit,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let n = self.rest.len().min(PART);
        let part = self.rest.split_to(n);
        Poll::Ready((n > 0).then(|| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl Unread {
    /// Returns room for `bytes` bytes.
    pub fn new(bytes: usize) -> Unread {
        let all = bytes.div_ceil(UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Unread { room: Arc::new(Semaphore::new(all)), all }
    }

    /// Gives an answer its room, or takes an error in its place: others are not read. An answer that is larger than all
    /// the room needs all of it.
    pub async fn hold(&self, response: Response<Body>) -> Response<Body> {
        let Some(size) = response.body().size_hint().exact().filter(|n| *n > SMALL) else {
            return response;
        };
        let units = (size as usize).div_ceil(UNIT).min(self.all);
        let Ok(room) = self.room.clone().try_acquire_many_owned(units as u32) else {
            return ApiError::unavailable("too many answers wait to be read", 1).into_response();
        };
        let (head, mut body) = response.into_parts();
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        match frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()) {
            Some(rest) if rest.len() as u64 == size => {
                Response::from_parts(head, Body::new(Held { rest, _room: room }))
            }
            _ => ApiError::server("the answer was lost").into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Response<Body> {
        Response::new(Body::from(vec![7; bytes]))
    }

    async fn read(response: Response<Body>) -> usize {
        let mut body = response.into_body();
        let mut n = 0;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            n += frame.into_data().expect("data").len();
        }
        n
    }

    #[test]
    fn answers_that_nobody_reads_have_an_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let unread = Unread::new(400 << 10);
            let first = unread.hold(answer(300 << 10)).await;
            assert_eq!(unread.hold(answer(200 << 10)).await.status(), 503);
            assert_eq!(unread.hold(answer(1000)).await.status(), 200);
            assert_eq!(first.body().size_hint().exact(), Some(300 << 10));
            assert_eq!(read(first).await, 300 << 10);
            // One that is larger than all the room has it alone.
            let large = unread.hold(answer(500 << 10)).await;
            assert_eq!(unread.hold(answer(70 << 10)).await.status(), 503);
            assert_eq!(read(large).await, 500 << 10);
        });
    }
}
