//! A text in chunks of a context each.

use std::ops::{ControlFlow, Range};

use super::error::EvalError;
use super::evaluator::Evaluator;
use super::score::{LogitRows, Scorer};

/// Which positions of a chunk are scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scored {
    /// The second half, llama-perplexity's usual way: every prediction has half a context before it.
    SecondHalf,
    /// All that have a token after them, as papers on quantization score windows of 2048 tokens (GPTQ and later).
    All,
    /// The last positions, as many as lie between the beginnings of two chunks.
    Last(usize),
}

/// A text cut into chunks.
#[derive(Clone, Debug)]
pub struct Chunks {
    pub(super) tokens: Vec<u32>,
    pub(super) n_ctx: usize,
    pub(super) bos: Option<u32>,
    pub(super) count: usize,
    /// Chunks before the first that is evaluated.
    pub(super) skipped: usize,
    pub(super) scored: Scored,
}

/// Cells that the reference's contexts have a multiple of.
const CONTEXT_STEP: usize = 256;

/// Checks that there are as many tokens as chunks of `n_ctx` need.
fn enough(tokens: &[u32], n_ctx: usize, needed: usize) -> Result<(), EvalError> {
    match tokens.len() {
        tokens if tokens < needed => Err(EvalError::TooShort { tokens, n_ctx, needed }),
        _ => Ok(()),
    }
}

/// At most `limit` of `all` chunks, but one at least.
fn limited(all: usize, limit: Option<usize>) -> Result<usize, EvalError> {
    match all.min(limit.unwrap_or(usize::MAX)) {
        0 => Err(EvalError::NoChunks),
        count => Ok(count),
    }
}

impl Chunks {
    /// Cuts `tokens` into chunks of `n_ctx`, at most `limit` of them. `bos`: the token that replaces the
    /// first one of every chunk.
    ///
    /// # Errors
    /// Fewer than two contexts of tokens, or a context too small to score.
    pub fn new(tokens: Vec<u32>, n_ctx: usize, bos: Option<u32>, limit: Option<usize>) -> Result<Chunks, EvalError> {
        if n_ctx < 3 {
            return Err(EvalError::SmallContext(n_ctx));
        }
        enough(&tokens, n_ctx, n_ctx.saturating_mul(2))?;
        Chunks::unchecked(tokens, n_ctx, bos, limit)
    }

    /// As [`Chunks::new`] for the tokens of a base file, which may be one chunk only.
    pub(super) fn unchecked(
        tokens: Vec<u32>,
        n_ctx: usize,
        bos: Option<u32>,
        limit: Option<usize>,
    ) -> Result<Chunks, EvalError> {
        let count = limited(tokens.len() / n_ctx, limit)?;
        Ok(Chunks { tokens, n_ctx, bos, count, skipped: 0, scored: Scored::SecondHalf })
    }

    /// Cuts `tokens` into chunks of `n_ctx`, at most `limit` of them, whose positions are [all](Scored::All) scored.
    /// Each begins with the text's own token.
    ///
    /// # Errors
    /// Fewer tokens than a chunk has, or a context too small to score.
    pub fn all(tokens: Vec<u32>, n_ctx: usize, limit: Option<usize>) -> Result<Chunks, EvalError> {
        if n_ctx < 2 {
            return Err(EvalError::SmallContext(n_ctx));
        }
        enough(&tokens, n_ctx, n_ctx)?;
        let chunks = Chunks::unchecked(tokens, n_ctx, None, limit)?;
        Ok(Chunks { scored: Scored::All, ..chunks })
    }

    /// Chunks that begin `stride` tokens after one another, whose last `stride` positions are scored: those of
    /// llama-perplexity's `--ppl-stride`. They have `n_ctx` tokens and half a stride, in whole 256s, and each begins
    /// with the text's own token.
    ///
    /// # Errors
    /// Fewer than two chunks of tokens; a stride of 0, or one as long as a chunk.
    pub fn strided(tokens: Vec<u32>, n_ctx: usize, stride: usize, limit: Option<usize>) -> Result<Chunks, EvalError> {
        let n_ctx = n_ctx.saturating_add(stride / 2).checked_next_multiple_of(CONTEXT_STEP).unwrap_or(usize::MAX);
        if stride == 0 || stride >= n_ctx {
            return Err(EvalError::Stride { stride, n_ctx });
        }
        enough(&tokens, n_ctx, n_ctx.saturating_mul(2))?;
        let count = limited((tokens.len() - n_ctx).div_ceil(stride), limit)?;
        Ok(Chunks { tokens, n_ctx, bos: None, count, skipped: 0, scored: Scored::Last(stride) })
    }

    /// These chunks alone of those that there are, with the numbers that they have among all.
    ///
    /// # Errors
    /// There are no such chunks.
    pub fn part(&self, part: Range<usize>) -> Result<Chunks, EvalError> {
        if part.is_empty() || part.end > self.count {
            return Err(EvalError::Part { part, count: self.count });
        }
        Ok(Chunks { count: part.end, skipped: part.start, ..self.clone() })
    }

    /// Number of chunks that are evaluated, and of those before them.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The chunks that are evaluated.
    pub fn evaluated(&self) -> Range<usize> {
        self.skipped..self.count
    }

    /// Context size.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Tokens from the beginning of a chunk to that of the next.
    pub fn step(&self) -> usize {
        match self.scored {
            Scored::SecondHalf | Scored::All => self.n_ctx,
            Scored::Last(stride) => stride,
        }
    }

    /// Tokens up to the end of the last evaluated chunk, as the text has them.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..(self.count - 1) * self.step() + self.n_ctx]
    }

    /// First scored position of a chunk.
    pub fn first(&self) -> usize {
        match self.scored {
            Scored::SecondHalf => self.n_ctx / 2,
            Scored::All => 0,
            Scored::Last(stride) => self.n_ctx - 1 - stride,
        }
    }

    /// Scored positions per chunk.
    pub fn scored(&self) -> usize {
        self.n_ctx - 1 - self.first()
    }

    /// Tokens of chunk `index`, as the text has them.
    pub(super) fn text(&self, index: usize) -> &[u32] {
        &self.tokens[index * self.step()..][..self.n_ctx]
    }

    /// Tokens of chunk `index`, as the model gets them.
    pub(super) fn context(&self, index: usize) -> Vec<u32> {
        let mut tokens = self.text(index).to_vec();
        if let Some(bos) = self.bos {
            tokens[0] = bos;
        }
        tokens
    }

    /// Evaluates all chunks, as many side by side as `model` takes, and scores their positions in text order.
    pub(super) fn score<S: Scorer>(&self, model: &mut dyn Evaluator, scorer: &mut S) -> Result<(), EvalError> {
        let mut rows = LogitRows::new(model.n_vocab());
        let side_by_side = model.side_by_side().max(1);
        for start in self.evaluated().step_by(side_by_side) {
            let group = start..(start + side_by_side).min(self.count);
            let texts: Vec<Vec<u32>> = group.map(|index| self.context(index)).collect();
            let mut scored = Ok(());
            let evaluated = model.eval(&texts, self.first(), &mut |text, position, logits| {
                scored = self.score_position(start + text, position, logits, &mut rows, scorer);
                match scored {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            });
            scored?;
            evaluated?;
        }
        Ok(())
    }

    /// Takes the logits at a position of chunk `index`; they are scored once `rows` are full or the chunk ends.
    pub(super) fn score_position<S: Scorer>(
        &self,
        index: usize,
        position: usize,
        logits: &[f32],
        rows: &mut LogitRows,
        scorer: &mut S,
    ) -> Result<(), EvalError> {
        let (first, last) = (self.first(), self.n_ctx - 1);
        if position >= last {
            return Ok(());
        }
        if position == first {
            scorer.begin()?;
        }
        rows.push(position, logits);
        if !rows.full() && position + 1 < last {
            return Ok(());
        }
        let (text, shared) = (self.text(index), scorer.shared());
        let scores = rows.drain(|position, logits| {
            if logits.iter().all(|v| v.is_finite()) {
                Ok(S::score(shared, position - first, logits, text[position + 1]))
            } else {
                let chunk = index + 1;
                Err(EvalError::NonFinite { chunk, position })
            }
        });
        for score in scores {
            scorer.take(score?)?;
        }
        if position + 1 == last {
            scorer.end(index + 1)?;
        }
        Ok(())
    }
}
