//! The vectors of a text, while its tokens are evaluated.

use trine::step::{NotFinite, Pooled};

use super::super::request::Vectors;

/// What was made of the hidden states of a text so far.
pub enum Gathered {
    /// One vector of all of them.
    One(Pooled),
    /// Each of them by itself.
    Each {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens whose states were taken in.
        taken: usize,
        /// Their states, one behind the other.
        numbers: Vec<f32>,
    },
}

impl Gathered {
    /// The vectors of a text of `tokens` tokens, before any of them was evaluated.
    pub fn new(vectors: Vectors, tokens: usize) -> Gathered {
        match vectors {
            Vectors::One(pooling) => Gathered::One(Pooled::new(pooling, tokens)),
            Vectors::Each => Gathered::Each { tokens, taken: 0, numbers: Vec::new() },
        }
    }

    /// Whether the states of all tokens are wanted, not of the last one alone.
    pub fn wants_all(&self) -> bool {
        match self {
            Gathered::One(pooled) => pooled.wants_all(),
            Gathered::Each { .. } => true,
        }
    }

    /// Takes in the hidden state of the token at `position`; one that was taken in before is left out, because a text
    /// may be evaluated again from its beginning.
    pub fn take(&mut self, position: usize, state: &[f32]) {
        match self {
            Gathered::One(pooled) => pooled.take(position, state),
            Gathered::Each { taken, numbers, .. } if position >= *taken => {
                *taken = position + 1;
                numbers.extend_from_slice(state);
            }
            Gathered::Each { .. } => {}
        }
    }

    /// The numbers, once the state of the last token was taken in; `None` before.
    ///
    /// # Errors
    /// The model computed a NaN or an infinity.
    pub fn finish(&mut self) -> Result<Option<Vec<f32>>, NotFinite> {
        let (tokens, taken, numbers) = match self {
            Gathered::One(pooled) => return pooled.vector(),
            Gathered::Each { tokens, taken, numbers } => (*tokens, *taken, numbers),
        };
        if taken < tokens {
            return Ok(None);
        }
        match numbers.iter().position(|x| !x.is_finite()) {
            Some(index) => Err(NotFinite(index)),
            None => Ok(Some(std::mem::take(numbers))),
        }
    }
}
