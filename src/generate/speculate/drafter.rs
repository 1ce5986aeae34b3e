//! The drafts of one text.

use std::collections::VecDeque;

/// Tokens of the first draft, where as many are allowed.
const FIRST: usize = 4;
/// Tokens by which a draft grows after one that was accepted whole.
const GROWTH: usize = 2;

/// Counts of drafts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Verified drafts.
    pub rounds: usize,
    /// Drafted tokens.
    pub drafted: usize,
    /// Drafted tokens that the text has.
    pub accepted: usize,
}

impl Counts {
    /// The share of drafted tokens that the text has, or 0.
    pub fn acceptance(&self) -> f64 {
        self.accepted as f64 / self.drafted.max(1) as f64
    }
}

/// Length of a text's next draft, and the verified draft whose tokens the text has not chosen yet.
#[derive(Debug)]
pub struct Drafter {
    length: usize,
    most: usize,
    /// Drafted tokens that were evaluated at the text's width, each with the logits behind it.
    ahead: VecDeque<(u32, Vec<f32>)>,
    counts: Counts,
}

impl Drafter {
    /// Drafts of up to `most` tokens; 0: none.
    pub fn new(most: usize) -> Drafter {
        Drafter { length: FIRST.min(most), most, ahead: VecDeque::new(), counts: Counts::default() }
    }

    /// Tokens of the next draft of a text that gets at most `left` tokens more, in a context with room for `room`
    /// drafted ones. The token behind a draft that is accepted whole comes with it, and is one of those that are left.
    pub fn length(&self, left: usize, room: usize) -> usize {
        self.length.min(left.saturating_sub(1)).min(room)
    }

    /// Takes in a verified draft: its tokens, each with the logits behind it at the text's width.
    pub fn verify(&mut self, drafted: impl IntoIterator<Item = (u32, Vec<f32>)>) {
        self.ahead.extend(drafted);
        self.counts.drafted += self.ahead.len();
        self.counts.rounds += usize::from(!self.ahead.is_empty());
    }

    /// The logits behind `id`, the next token of the text, where the draft has it. Otherwise the rest of the draft is
    /// forgotten. A draft that is accepted whole makes the next one longer, any other makes it shorter.
    pub fn follow(&mut self, id: u32) -> Option<Vec<f32>> {
        let (drafted, after) = self.ahead.pop_front()?;
        if drafted != id {
            self.ahead.clear();
            self.length = (self.length - 1).max(1);
            return None;
        }
        self.counts.accepted += 1;
        if self.ahead.is_empty() {
            self.length = (self.length + GROWTH).min(self.most);
        }
        Some(after)
    }

    /// Tokens of the draft that the text has not chosen yet.
    pub fn ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Forgets them.
    pub fn forget(&mut self) {
        self.ahead.clear();
    }

    /// Counts of all drafts.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_as_long_as_the_last_one_was_right() {
        let mut drafter = Drafter::new(7);
        let mut verify = |drafted: &[u32], chosen: &[u32]| {
            let before = drafter.counts().accepted;
            drafter.verify(drafted.iter().map(|&id| (id, vec![id as f32])));
            for &id in chosen {
                match drafter.follow(id) {
                    Some(after) => assert_eq!(after, [id as f32]),
                    None => break,
                }
            }
            assert_eq!(drafter.ahead(), 0);
            (drafter.counts().accepted - before, drafter.length(100, 100))
        };
        assert_eq!(verify(&[5, 6, 7, 8], &[5, 6, 7, 8, 9]), (4, 6));
        assert_eq!(verify(&[5, 5], &[5, 5]), (2, 7));
        assert_eq!(verify(&[5, 6], &[5, 7]), (1, 6));
        // Without a draft nothing is learnt.
        assert_eq!(verify(&[], &[3]), (0, 6));
        for _ in 0..9 {
            assert_eq!(verify(&[5], &[6]).0, 0);
        }
        assert_eq!(verify(&[5], &[6]), (0, 1));
        assert_eq!((drafter.counts().drafted, drafter.counts().accepted), (18, 7));
    }

    #[test]
    fn a_draft_fits_the_text_and_its_context() {
        let drafter = Drafter::new(9);
        assert_eq!((drafter.length(100, 100), drafter.length(3, 100), drafter.length(100, 1)), (4, 2, 1));
        assert_eq!((drafter.length(0, 9), drafter.length(1, 9), Drafter::new(0).length(9, 9)), (0, 0, 0));
    }
}
