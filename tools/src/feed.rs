//! A session that is fed random tokens, to time what it takes.

use std::time::Instant;

use anyhow::Result;
use trine::step::Session;

/// The session and the next token.
pub struct Feed {
    session: Session,
    next: u32,
    n_vocab: u32,
}

impl Feed {
    /// Feeds `session`; the tokens are the same in every run.
    pub fn new(session: Session) -> Feed {
        Feed {
            n_vocab: session.model().n_vocab() as u32,
            session,
            next: 1,
        }
    }

    /// Another token (Knuth's MMIX constants, upper half).
    fn token(&mut self) -> u32 {
        self.next = self
            .next
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        (self.next >> 8) % self.n_vocab.max(1)
    }

    /// Forgets all but the first `n_past` tokens.
    pub fn truncate(&mut self, n_past: usize) {
        self.session.truncate(n_past);
    }

    /// A prompt of `n` tokens, `batch` at once.
    ///
    /// # Errors
    /// The context is full.
    pub fn prompt(&mut self, n: usize, batch: usize) -> Result<()> {
        let tokens: Vec<u32> = (0..n).map(|_| self.token()).collect();
        for tokens in tokens.chunks(batch) {
            // Only the last logits are of use to somebody who goes on from a prompt.
            self.session
                .eval(tokens, tokens.len() - 1, &mut |_, _| ())?;
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
            let token = self.token();
            let start = Instant::now();
            self.session.eval(&[token], 0, &mut |_, _| ())?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(seconds)
    }
}
