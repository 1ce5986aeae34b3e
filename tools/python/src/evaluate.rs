//! How well a model predicts texts.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use trine::eval::base_file::BaseWriter;
use trine::eval::perplexity::{Estimate, perplexity as measure};
use trine::eval::{Batching, Chunks, LogProbabilities, SideBySide};
use trine::{CancelToken, SessionOptions};

use crate::error::{caused, evaluated, failed};
use crate::interrupt::{abandonable, interruptible};

/// Tokens that go through the model together.
const BATCH: usize = 512;

/// Options of measuring a text.
#[derive(Clone, Copy)]
pub struct Options {
    /// Tokens of a chunk.
    pub n_ctx: usize,
    /// The most chunks; `None`: all.
    pub chunks: Option<usize>,
    /// Width of an any-precision model; `None`: the widest.
    pub bits: Option<u8>,
}

/// The perplexity of a text and its error. `progress` hears of every chunk; what it raises ends the work.
///
/// # Errors
/// As [`trine::Model::perplexity`]; what `progress` or a handler of signals raised.
pub fn perplexity(
    py: Python<'_>,
    model: &trine::Model,
    text: &str,
    options: Options,
    progress: Option<Py<PyAny>>,
) -> PyResult<(f64, f64)> {
    let cancel = CancelToken::new();
    let (tokenizer, whole) = (model.tokenizer().clone(), text.to_owned());
    // Nothing ends this but its end, and a long text takes seconds.
    let tokens = abandonable(py, move || tokenizer.encode(&whole, true, false))?.map_err(|e| caused(&e))?;
    let done: PyResult<Estimate> = interruptible(py, &cancel, || {
        let Options { n_ctx, chunks, bits } = options;
        let tokenizer = model.tokenizer();
        let chunks = Chunks::new(tokens, n_ctx, tokenizer.text_bos(), chunks).map_err(evaluated)?;
        let batching = Batching { n_ctx, n_batch: BATCH, n_ubatch: BATCH };
        let mut side = SideBySide::new(model.weights(), model.pool(), batching);
        side.cancel_by(cancel.clone());
        if let Some(bits) = bits {
            side.set_bits(bits).map_err(|e| caused(&e))?;
        }
        let (mut raised, all) = (None, chunks.count());
        let mut observe = |done: usize, so_far: &Estimate| {
            let Some(progress) = &progress else { return Ok(()) };
            let called = Python::attach(|py| progress.call1(py, (done, all, so_far.ppl())).map(drop));
            called.map_err(|error| {
                let said = error.to_string();
                raised = Some(error);
                said.into()
            })
        };
        let no_file: Option<&mut BaseWriter<Vec<u8>>> = None;
        let done = measure(&mut side, &chunks, no_file, &mut observe);
        match raised {
            Some(error) => Err(error),
            None => done.map_err(evaluated),
        }
    })?;
    let done = done?;
    Ok((done.ppl(), done.ppl_error()))
}

/// The log-probabilities of the tokens from the index `given` on, by those before, and whether each is the likeliest.
///
/// # Errors
/// No token is given, or the model does not have one; what a handler of signals raised.
pub fn score(
    py: Python<'_>,
    model: &trine::Model,
    tokens: &[u32],
    given: usize,
    bits: Option<u8>,
) -> PyResult<(Vec<f64>, Vec<bool>)> {
    let Some(from) = given.checked_sub(1) else {
        return Err(PyValueError::new_err("prompt has no token, and so nothing says what follows it"));
    };
    let (Some(all), n_vocab) = (tokens.len().checked_sub(1), model.tokenizer().n_vocab()) else {
        return Ok(Default::default());
    };
    if let Some(id) = tokens.iter().find(|id| **id as usize >= n_vocab) {
        return Err(failed(format!("token {id} is outside the vocabulary of {n_vocab}")));
    }
    let cancel = CancelToken::new();
    interruptible(py, &cancel, || {
        let mut session = model.session(SessionOptions { n_ctx: all.max(model.n_ctx_train()), n_ubatch: BATCH });
        session.cancel_by(Some(cancel.clone()));
        if let Some(bits) = bits {
            session.set_bits(bits).map_err(|e| caused(&e))?;
        }
        let (mut logprobs, mut greedy) = (Vec::new(), Vec::new());
        let done = session.eval(&tokens[..all], from.min(all), &mut |i, row| {
            let next = tokens[i + 1];
            logprobs.push(LogProbabilities::new(row).of(next));
            // Of equal logits the first is the likeliest, as for a greedy choice.
            let best = row.iter().enumerate().fold(0, |best, (id, logit)| if *logit > row[best] { id } else { best });
            greedy.push(best == next as usize);
        });
        done.map(|()| (logprobs, greedy)).map_err(|e| caused(&e))
    })?
}
