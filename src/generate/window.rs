//! The tokens of a context that once was full, and forgot some so that its text goes on.

/// True if a context of `n_ctx` tokens that holds `tokens` has no room for a token and one after it.
pub(super) fn is_full(tokens: usize, n_ctx: usize) -> bool {
    tokens + 1 >= n_ctx
}

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
    pub fn tokens(&self) -> Option<&[u32]> {
        self.tokens.as_deref()
    }

    /// Takes the next token of the text.
    pub fn push(&mut self, id: u32) {
        if let Some(tokens) = &mut self.tokens {
            tokens.push(id);
        }
    }

    /// Forgets half of the tokens behind the first `keep`, but for the last one, which was just chosen. The text has had
    /// the tokens `all` so far. False if there is nothing to forget.
    pub fn shift(&mut self, all: &[u32], keep: usize) -> bool {
        let evaluated = self.tokens().unwrap_or(all).len() - 1;
        let forgotten = evaluated.saturating_sub(keep) / 2;
        if forgotten > 0 {
            self.tokens.get_or_insert_with(|| all.to_vec()).drain(keep..keep + forgotten);
            self.kept = Some(keep);
            self.shifts += 1;
        }
        forgotten > 0
    }

    /// See [`super::TextMachine::take_shift`].
    pub fn take_kept(&mut self) -> Option<usize> {
        self.kept.take()
    }

    /// How often tokens were forgotten.
    pub fn shifts(&self) -> usize {
        self.shifts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_last_half_stay() {
        let mut window = Window::default();
        assert_eq!(window.tokens(), None);
        assert!(window.shift(&[1, 2, 3, 4, 5, 6, 7], 2));
        assert_eq!(window.tokens(), Some(&[1, 2, 5, 6, 7][..]));
        assert_eq!((window.take_kept(), window.take_kept(), window.shifts()), (Some(2), None, 1));
        window.push(8);
        assert!(window.shift(&[], 0));
        assert_eq!(window.tokens(), Some(&[5, 6, 7, 8][..]));
        assert!(!window.shift(&[], 2), "one token is no two halves");
        assert_eq!((window.tokens(), window.shifts()), (Some(&[5, 6, 7, 8][..]), 2));
    }
}
