//! Bodies of requests: how much memory those that are read may take together.
//!
//! A body of some megabytes can be a hundred times as large in pieces, and every connection may send one. So a body has
//! its room before it is taken from its connection, and what its pieces take is counted before there are any. Bodies
//! that are small have room of their own: they do not wait for large ones.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::ApiError;
use crate::service::Weight;

/// Bytes that are counted as one.
const UNIT: usize = 1 << 10;
/// After how many seconds others may come again.
const RETRY: u64 = 5;

/// The room for bodies that are read: half of it for the pieces of large ones, a quarter for those of small ones, and a
/// quarter for large ones on their way.
pub struct Intake {
    coming: Room,
    large: Room,
    small: Room,
    patience: Duration,
}

/// A part of the memory.
struct Room {
    units: Arc<Semaphore>,
    all: usize,
}

/// Room that a body has until this is dropped.
pub struct Held {
    _permit: OwnedSemaphorePermit,
}

impl Room {
    fn new(bytes: usize) -> Room {
        let all = bytes.div_ceil(UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Room { units: Arc::new(Semaphore::new(all)), all }
    }

    /// Waits for room for `bytes` bytes, or for all of it where they are more.
    async fn take(&self, bytes: usize, patience: Duration) -> Result<Held, ApiError> {
        let units = bytes.div_ceil(UNIT).clamp(1, self.all);
        let taken = self.units.clone().acquire_many_owned(units as u32);
        match tokio::time::timeout(patience, taken).await {
            Ok(Ok(_permit)) => Ok(Held { _permit }),
            _ => Err(ApiError::unavailable("too many large requests are being read", RETRY)),
        }
    }
}

impl Intake {
    /// Room for `bytes` bytes, for which a request waits as long as `patience`.
    pub fn new(bytes: usize, patience: Duration) -> Intake {
        let (coming, large, small) = (Room::new(bytes / 4), Room::new(bytes / 2), Room::new(bytes / 4));
        Intake { coming, large, small, patience }
    }

    /// Waits for room for a large body of `bytes` bytes on its way; small ones need none, connections have it.
    ///
    /// # Errors
    /// There was none in time.
    pub async fn coming(&self, bytes: usize) -> Result<Held, ApiError> {
        self.coming.take(bytes, self.patience).await
    }

    /// Waits for room for the pieces of a body, which take `bytes` bytes.
    ///
    /// # Errors
    /// There was none in time; all the room is too little.
    pub async fn pieces(&self, bytes: usize, weight: Weight) -> Result<Held, ApiError> {
        let room = match weight {
            Weight::Light => &self.small,
            Weight::Heavy => &self.large,
        };
        let most = room.all.saturating_mul(UNIT);
        if bytes > most {
            let message = format!(
                "in pieces the body takes up to {bytes} bytes of memory, and {most} may be had: see --max-bodies"
            );
            return Err(ApiError::new(413, "invalid_request_error", message));
        }
        room.take(bytes, self.patience).await
    }
}

/// Bytes that a value takes in an array or object, which grow by doubling.
const VALUE: usize = 150;
/// Bytes that an array or an object takes beside its place, with its first members.
const ARRAY: usize = 320;
const OBJECT: usize = 560;
/// Levels at which the reader gives up.
const DEEPEST: usize = 128;

/// Returns the most memory in bytes that a JSON text takes in pieces, twice: other forms of requests are turned into that
/// of chats.
pub fn cost(json: &[u8]) -> usize {
    let (mut pieces, mut depth, mut quoted, mut escaped) = (json.len(), 0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' if !quoted => pieces += VALUE,
            b'[' | b'{' if !quoted => {
                pieces += if *byte == b'[' { ARRAY } else { OBJECT };
                depth += 1;
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            break;
        }
    }
    2 * pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_outside_of_texts() {
        assert_eq!(cost(br#""a\"[{,""#), 2 * 8);
        assert_eq!(cost(br#"{"a":[1,2]}"#), 2 * (11 + VALUE + ARRAY + OBJECT));
        assert_eq!(cost(br#"["\\",{}]"#), 2 * (9 + VALUE + ARRAY + OBJECT));
        // Nothing is read of what is too deep.
        assert_eq!(cost(&[b'['; 9999]), 2 * (9999 + (DEEPEST + 1) * ARRAY));
        assert_eq!(cost(&b"[]".repeat(500)), 2 * (1000 + 500 * ARRAY));
    }

    #[test]
    fn large_bodies_wait_for_one_another_and_small_ones_do_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let intake = Intake::new(4 << 20, Duration::from_millis(1));
            let first = intake.coming(700 << 10).await;
            assert_eq!(intake.coming(700 << 10).await.err().map(|e| e.status), Some(503));
            drop(first);
            assert!(intake.coming(700 << 10).await.is_ok());
            // One that is larger than all the room has it alone.
            assert!(intake.coming(70 << 20).await.is_ok());

            let first = intake.pieces(2 << 20, Weight::Heavy).await;
            assert_eq!(intake.pieces(2000, Weight::Heavy).await.err().map(|e| e.status), Some(503));
            assert!(intake.pieces(2000, Weight::Light).await.is_ok());
            drop(first);
            assert_eq!(intake.pieces((2 << 20) + 1, Weight::Heavy).await.err().map(|e| e.status), Some(413));
        });
    }
}
