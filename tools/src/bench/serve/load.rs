//! Requests in a closed or an open loop.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use trine::math::log;

use super::client::{Address, Question, Served};

/// Arrival process of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// This number of clients, each of which asks again when it has its answer.
    Closed(usize),
    /// This number of requests a second on average, at random times that are the same in every run.
    Poisson(f64),
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrivals::Closed(1) => write!(f, "1 client"),
            Arrivals::Closed(n) => write!(f, "{n} clients"),
            Arrivals::Poisson(rate) => write!(f, "{rate}/s"),
        }
    }
}

/// Requests that a server gets.
pub struct Load<'a> {
    /// The server.
    pub address: &'a Address,
    /// The names of the models that are asked for, in turns; none: whatever the server has.
    pub models: &'a [String],
    /// Arrival process of the requests.
    pub arrivals: Arrivals,
    /// Prompts, each used once.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens that each asks for.
    pub new_tokens: usize,
    /// True if prompts may be taken from the server's cache.
    pub cache: bool,
    /// A prompt that comes again and again as soon as every client hears its text, until all have heard it.
    pub interruption: Option<Vec<u32>>,
}

/// A prompt that interrupts a load.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted {
    /// From when on.
    pub since: Instant,
    /// How many prompts came since then.
    pub prompts: usize,
}

/// How often it is looked whether every client hears its text.
const LOOK: Duration = Duration::from_millis(1);

/// Record of a load.
pub struct Ran {
    /// Every request; those that got no answer have status 0.
    pub served: Vec<Served>,
    /// From the first request to the end of the last answer.
    pub time: Duration,
    /// The interruptions, where there were any.
    pub interrupted: Option<Interrupted>,
}

impl Load<'_> {
    /// Sends all requests and waits for all answers.
    ///
    /// # Errors
    /// The server answers none of them.
    pub fn run(&self) -> Result<Ran> {
        let all = Mutex::new(Vec::with_capacity(self.prompts.len()));
        let fault = Mutex::new(None);
        let begun = AtomicUsize::new(0);
        let ask = |i: usize| {
            let answer = self.address.generate(&self.question(i), &|| {
                begun.fetch_add(1, Ordering::SeqCst);
            });
            let served = answer.unwrap_or_else(|e| {
                fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                Served::default()
            });
            all.lock().unwrap_or_else(PoisonError::into_inner).push(served);
        };
        let start = Instant::now();
        let over = AtomicBool::new(false);
        let mut interrupted = None;
        match self.arrivals {
            Arrivals::Closed(clients) => {
                let next = AtomicUsize::new(0);
                let client = || {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= self.prompts.len() {
                            return;
                        }
                        ask(i);
                    }
                };
                thread::scope(|s| {
                    let all: Vec<_> = (0..clients).map(|_| s.spawn(client)).collect();
                    let (begun, over) = (&begun, &over);
                    let others = self.interruption.as_ref().map(|prompt| {
                        let all_begun = move || begun.load(Ordering::SeqCst) >= clients;
                        s.spawn(move || self.interrupt(prompt, &all_begun, over))
                    });
                    let ends: Vec<_> = all.into_iter().map(|client| client.join()).collect();
                    over.store(true, Ordering::SeqCst);
                    interrupted = others.and_then(|o| o.join().ok().flatten());
                    if let Some(panic) = ends.into_iter().find_map(Result::err) {
                        resume_unwind(panic);
                    }
                });
            }
            Arrivals::Poisson(rate) => thread::scope(|s| {
                let ask = &ask;
                for (i, at) in times(rate, self.prompts.len()).into_iter().enumerate() {
                    thread::sleep(at.saturating_sub(start.elapsed()));
                    s.spawn(move || ask(i));
                }
            }),
        }
        let time = start.elapsed();
        let served = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        let fault = fault.into_inner().unwrap_or_else(PoisonError::into_inner);
        match fault {
            Some(e) if served.iter().all(|s| s.status == 0) => Err(e),
            _ => Ok(Ran { served, time, interrupted }),
        }
    }

    /// The request of number `i`.
    fn question(&self, i: usize) -> Question<'_> {
        let turn = i % self.models.len().max(1);
        Question {
            model: self.models.get(turn).map(String::as_str),
            prompt: &self.prompts[i],
            most: self.new_tokens,
            seed: i,
            cache: self.cache,
        }
    }

    /// Sends `prompt` again and again from when `begun` says so until all is `over`.
    fn interrupt(&self, prompt: &[u32], begun: &dyn Fn() -> bool, over: &AtomicBool) -> Option<Interrupted> {
        while !begun() {
            if over.load(Ordering::SeqCst) {
                return None;
            }
            thread::sleep(LOOK);
        }
        let mut done = Interrupted { since: Instant::now(), prompts: 0 };
        let question = Question { prompt, most: 1, cache: false, ..self.question(0) };
        loop {
            // Without an answer it was no interruption.
            match self.address.generate(&question, &|| ()) {
                Ok(served) if served.status == 200 => done.prompts += 1,
                _ => thread::sleep(LOOK),
            }
            if over.load(Ordering::SeqCst) {
                break;
            }
        }
        Some(done)
    }
}

/// When the requests of a Poisson process of `rate` events a second come: the times between them are exponentially
/// distributed, from a fixed seed.
fn times(rate: f64, n: usize) -> Vec<Duration> {
    let mut state = 0u64;
    let mut at = 0.0;
    let mut next = || {
        // SplitMix64 (Steele, Lea and Flood 2014), of which the upper 53 bits are a number below 1.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let uniform = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        at += -log(1.0 - uniform) / rate;
        Duration::from_secs_f64(at)
    };
    (0..n).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_rate_and_no_rhythm() {
        let at: Vec<f64> = times(4.0, 20_000).iter().map(Duration::as_secs_f64).collect();
        let mean = at[at.len() - 1] / at.len() as f64;
        assert!((0.245..0.255).contains(&mean), "{mean}");
        let gaps: Vec<f64> = at.windows(2).map(|w| w[1] - w[0]).collect();
        // Of an exponential distribution, 1 - 1/e of the values lie below the mean.
        let below = gaps.iter().filter(|g| **g < 0.25).count() as f64 / gaps.len() as f64;
        assert!((0.62..0.645).contains(&below), "{below}");
        assert_eq!(times(4.0, 10), times(4.0, 10));
    }
}
