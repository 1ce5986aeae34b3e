//! How fast a model is: prompts during the evaluation, single tokens after it.

use std::time::Instant;

use anyhow::Result;
use trine::Model;
use trine::eval::{Evaluator, Logits, SideBySide};
use trine::step::{SessionOptions, StepError};

use super::stop_if_asked;
use crate::feed::Feed;
use crate::stats::Summary;

/// Tokens before the timed ones, and timed ones.
const WARMUP: usize = 8;
const TIMED: usize = 64;

/// A model that takes the time of the chunks it evaluates, without what is done with the logits.
pub struct Timed {
    model: SideBySide,
    /// Tokens and seconds of each group of chunks.
    groups: Vec<(usize, f64)>,
}

impl Timed {
    /// Takes the time of `model`.
    pub fn new(model: SideBySide) -> Timed {
        Timed { model, groups: Vec::new() }
    }

    /// Tokens per second, the median over the groups of chunks; `None` before the first.
    pub fn rate(&self) -> Option<f64> {
        let rates: Vec<f64> = self.groups.iter().map(|&(n, s)| n as f64 / s).collect();
        (!rates.is_empty()).then(|| Summary::of(&rates).median)
    }
}

impl Evaluator for Timed {
    fn n_vocab(&self) -> usize {
        self.model.n_vocab()
    }

    fn side_by_side(&self) -> usize {
        self.model.side_by_side()
    }

    fn eval(&mut self, texts: &[Vec<u32>], from: usize, sink: Logits<'_>) -> Result<(), StepError> {
        let mut scoring = 0.0;
        let start = Instant::now();
        self.model.eval(texts, from, &mut |text, i, logits| {
            let start = Instant::now();
            let wanted = sink(text, i, logits);
            scoring += start.elapsed().as_secs_f64();
            wanted
        })?;
        let tokens = texts.iter().map(Vec::len).sum();
        self.groups.push((tokens, start.elapsed().as_secs_f64() - scoring));
        Ok(())
    }
}

/// Tokens per second one by one, from the median of a few.
///
/// # Errors
/// Ctrl-C.
pub fn generation(model: &Model, bits: Option<u8>) -> Result<f64> {
    let options = SessionOptions { n_ctx: WARMUP + TIMED, n_ubatch: 1 };
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
