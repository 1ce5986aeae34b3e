//! How fast a model is: prompts during the evaluation, single tokens after it.

use std::time::Instant;

use anyhow::Result;
use trine::Model;
use trine::eval::Evaluator;
use trine::step::{EvalError, Session, SessionOptions};

use super::stop_if_asked;
use crate::feed::Feed;
use crate::stats::Summary;

/// Tokens before the timed ones, and timed ones.
const WARMUP: usize = 8;
const TIMED: usize = 64;

/// A session that takes the time of the chunks it evaluates, without what is done with the logits.
pub struct Timed {
    session: Session,
    /// Tokens and seconds of each chunk.
    chunks: Vec<(usize, f64)>,
}

impl Timed {
    /// Takes the time of `session`.
    pub fn new(session: Session) -> Timed {
        Timed {
            session,
            chunks: Vec::new(),
        }
    }

    /// Tokens per second, the median over the chunks; `None` before the first.
    pub fn rate(&self) -> Option<f64> {
        let rates: Vec<f64> = self.chunks.iter().map(|&(n, s)| n as f64 / s).collect();
        (!rates.is_empty()).then(|| Summary::of(&rates).median)
    }
}

impl Evaluator for Timed {
    fn n_vocab(&self) -> usize {
        Evaluator::n_vocab(&self.session)
    }

    fn clear(&mut self) {
        self.session.clear();
        self.chunks.push((0, 0.0));
    }

    fn eval(
        &mut self,
        tokens: &[u32],
        from: usize,
        sink: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<(), EvalError> {
        let mut scoring = 0.0;
        let start = Instant::now();
        self.session.eval(tokens, from, &mut |i, logits| {
            let start = Instant::now();
            sink(i, logits);
            scoring += start.elapsed().as_secs_f64();
        })?;
        if let Some((n, seconds)) = self.chunks.last_mut() {
            *n += tokens.len();
            *seconds += start.elapsed().as_secs_f64() - scoring;
        }
        Ok(())
    }
}

/// Tokens per second one by one, from the median of a few.
///
/// # Errors
/// Ctrl-C.
pub fn generation(model: &Model, bits: Option<u8>) -> Result<f64> {
    let options = SessionOptions {
        n_ctx: WARMUP + TIMED,
        n_ubatch: 1,
    };
    let mut session = model.session(options);
    if let Some(bits) = bits {
        session.set_bits(bits)?;
    }
    let mut feed = Feed::new(session);
    feed.generate(WARMUP)?;
    let mut seconds = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        stop_if_asked()?;
        seconds.extend(feed.generate(1)?);
    }
    Ok(1.0 / Summary::of(&seconds).median)
}
