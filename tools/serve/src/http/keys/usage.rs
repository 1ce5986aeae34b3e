//! The recent use of a key, and whether that leaves room for more.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::limits::Limits;
use crate::api::ApiError;

/// Most seconds after which a client is told to come again: some give up at once when they are told more.
const LATEST: f64 = 120.0;

/// The recent use of a key.
#[derive(Debug, Default)]
pub struct Usage {
    state: Mutex<KeyUse>,
}

/// The counters of a key, behind the lock.
#[derive(Debug, Default)]
struct KeyUse {
    /// Number of requests that run or wait.
    running: usize,
    /// Tokens that were had and not yet made up for by time, and when that was looked at. A minute makes up for as many
    /// as are allowed in one.
    spent: f64,
    at: Option<Instant>,
}

impl Usage {
    /// Counts one more request.
    ///
    /// # Errors
    /// There are as many as may be, or too many tokens were had lately.
    pub fn enter(&self, limits: &Limits, now: Instant) -> Result<(), ApiError> {
        let mut state = self.lock();
        if let Some(most) = limits.concurrent.filter(|most| state.running >= *most) {
            return Err(ApiError::busy(format!("this key may have {most} requests at the same time"), 1));
        }
        if let Some(most) = limits.tokens_per_minute {
            state.make_up(most, now);
            if state.spent >= most as f64 {
                let seconds = (state.spent - most as f64 + 1.0) * 60.0 / most as f64;
                let message = format!("this key may have {most} tokens a minute");
                return Err(ApiError::busy(message, seconds.ceil().clamp(1.0, LATEST) as u64));
            }
        }
        state.running += 1;
        Ok(())
    }

    /// Counts a request out.
    pub fn leave(&self) {
        self.lock().running -= 1;
    }

    /// Counts tokens.
    pub fn spend(&self, limits: &Limits, tokens: usize, now: Instant) {
        if let Some(most) = limits.tokens_per_minute {
            let mut state = self.lock();
            state.make_up(most, now);
            state.spent += tokens as f64;
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeyUse> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyUse {
    /// Takes off what time has made up for.
    fn make_up(&mut self, most: u64, now: Instant) {
        let since = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.spent = (self.spent - since * most as f64 / 60.0).max(0.0);
        self.at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn requests_at_the_same_time() {
        let (usage, now) = (Usage::default(), Instant::now());
        let limits = Limits { concurrent: Some(2), ..Limits::default() };
        assert_eq!([(); 2].map(|()| usage.enter(&limits, now)), [Ok(()), Ok(())]);
        assert_eq!(usage.enter(&limits, now).map_err(|e| e.status), Err(429));
        usage.leave();
        assert_eq!(usage.enter(&limits, now), Ok(()));
        // Without a limit there may be more.
        assert_eq!(usage.enter(&Limits::default(), now), Ok(()));
    }

    #[test]
    fn tokens_a_minute() {
        let (usage, start) = (Usage::default(), Instant::now());
        let limits = Limits { tokens_per_minute: Some(600), ..Limits::default() };
        let enter = |seconds: u64| {
            let entered = usage.enter(&limits, start + Duration::from_secs(seconds));
            entered.map_err(|e| (e.status, e.retry_after))
        };
        assert_eq!(enter(0), Ok(()));
        usage.spend(&limits, 599, start);
        assert_eq!(enter(0), Ok(()));
        // A text may go beyond the limit; what it had too much is waited for.
        usage.spend(&limits, 201, start);
        assert_eq!(enter(0), Err((429, Some(21))));
        assert_eq!(enter(20), Err((429, Some(1))));
        assert_eq!(enter(21), Ok(()));
        // More than a minute makes up for no more than was had.
        assert_eq!(enter(1000), Ok(()));
        usage.spend(&limits, 600, start + Duration::from_secs(1000));
        assert_eq!(enter(1000), Err((429, Some(1))));
        usage.spend(&limits, 1_000_000, start + Duration::from_secs(1000));
        assert_eq!(enter(1000), Err((429, Some(120))));
    }
}
