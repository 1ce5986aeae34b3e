//! Random tokens, and a session that is fed with them, to time what it takes.

use std::time::Instant;

use anyhow::Result;
use trine::step::Session;

/// Tokens that are the same in every run.
pub struct RandomTokens {
    next: u32,
    n_vocab: u32,
}

impl RandomTokens {
    /// A source of tokens from a vocabulary of `n_vocab`.
    pub fn new(n_vocab: usize) -> RandomTokens {
        RandomTokens { next: 1, n_vocab: n_vocab as u32 }
    }

    /// The next `n`.
    pub fn take(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.token()).collect()
    }

    /// Another token (Knuth's MMIX constants, upper half).
    fn token(&mut self) -> u32 {
        self.next = self.next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.next >> 8) % self.n_vocab.max(1)
    }
}

/// The session and its tokens.
pub struct Feed {
    session: Session,
    tokens: RandomTokens,
}

impl Feed {
    /// Feeds `session`.
    pub fn new(session: Session) -> Feed {
        Feed { tokens: RandomTokens::new(session.model().n_vocab()), session }
    }

    /// Forgets all but the first `n_past` tokens; how many are left: a recurrent state is kept whole or not at all.
    pub fn truncate(&mut self, n_past: usize) -> usize {
        self.session.truncate(n_past)
    }

    /// A prompt of `n` tokens, `batch` at once.
    ///
    /// # Errors
    /// The context is full.
    pub fn prompt(&mut self, n: usize, batch: usize) -> Result<()> {
        for tokens in self.tokens.take(n).chunks(batch) {
            // Only the last logits are of use to somebody who goes on from a prompt.
            self.session.eval(tokens, tokens.len() - 1, &mut |_, _| ())?;
        }
        Ok(())
    }

    /// `n` tokens one by one, with the logits of each; the seconds that each took.
    ///
    /// # Errors
    /// The context is full.
    pub fn generate(&mut self, n: usize) -> Result<Vec<f64>> {
        let mut seconds = Vec::with_capacity(n);
        for _ in 0..n {
            let token = self.tokens.token();
            let start = Instant::now();
            self.session.eval(&[token], 0, &mut |_, _| ())?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(seconds)
    }
}
