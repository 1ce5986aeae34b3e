//! The tokens of a full context of which some were forgotten, so that the text goes on.

use trine::generate::{forgotten, next_tokens};

/// The tokens of a context, where they are no more all of the text.
#[derive(Default)]
pub(super) struct Window {
    tokens: Option<Vec<u32>>,
    /// First tokens that are where they were, until the sequence has let go of the others.
    kept: Option<usize>,
    shifts: usize,
}

impl Window {
    /// The tokens; `None`: those of the text.
    pub(super) fn tokens(&self) -> Option<&[u32]> {
        self.tokens.as_deref()
    }

    /// Takes the next token of the text.
    pub(super) fn push(&mut self, id: u32) {
        if let Some(tokens) = &mut self.tokens {
            tokens.push(id);
        }
    }

    /// Forgets tokens behind the first `keep`; the last one was just chosen. The text has had the tokens `all` so far.
    pub(super) fn shift(&mut self, all: &[u32], keep: usize) {
        let tokens = self.tokens.get_or_insert_with(|| all.to_vec());
        let end = keep + forgotten(tokens.len() - 1, keep);
        tokens.drain(keep..end);
        self.kept = Some(keep);
        self.shifts += 1;
    }

    /// See [`super::Running::take_shift`].
    pub(super) fn take_kept(&mut self) -> Option<usize> {
        self.kept.take()
    }

    /// How often tokens were forgotten.
    pub(super) fn shifts(&self) -> usize {
        self.shifts
    }

    /// [`next_tokens`] of those of the context.
    pub(super) fn wanted(&self, evaluated: usize, most: usize) -> Option<(&[u32], usize)> {
        Some(next_tokens(self.tokens()?, evaluated, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_last_half_stay() {
        let mut window = Window::default();
        assert_eq!((window.tokens(), window.wanted(0, 9)), (None, None));
        window.shift(&[1, 2, 3, 4, 5, 6, 7], 2);
        assert_eq!(window.tokens(), Some(&[1, 2, 5, 6, 7][..]));
        assert_eq!((window.take_kept(), window.take_kept(), window.shifts()), (Some(2), None, 1));
        assert_eq!(window.wanted(2, 2), Some((&[5, 6][..], 2)));
        assert_eq!(window.wanted(2, 9), Some((&[5, 6, 7][..], 2)));
        window.push(8);
        window.shift(&[], 0);
        assert_eq!(window.tokens(), Some(&[5, 6, 7, 8][..]));
    }
}
