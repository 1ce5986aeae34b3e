//! How many tokens are drafted, and for whom.

use std::collections::BTreeMap;
use std::time::Duration;

use trine::generate::speculate::Pace;

/// Tokens of the first draft of a text.
const FIRST: usize = 4;
/// Tokens by which a draft grows after one that was right to its end.
const GROWTH: usize = 2;

/// The drafts of one text.
#[derive(Debug)]
pub(super) struct Drafting {
    /// Bits per weight of the drafts; 0: there are none.
    pub bits: u8,
    /// Tokens that were drafted.
    pub drafted: usize,
    /// Of these, tokens that the text has.
    pub accepted: usize,
    length: usize,
    most: usize,
    /// The draft that is verified, and how many of its tokens were chosen so far.
    draft: Vec<u32>,
    right: usize,
}

impl Drafting {
    /// Drafts at `bits`, of at most `most` tokens.
    pub fn new(bits: u8, most: usize) -> Drafting {
        Drafting { bits, drafted: 0, accepted: 0, length: FIRST.min(most), most, draft: Vec::new(), right: 0 }
    }

    /// Tokens of the next draft.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A draft is verified from now on.
    pub fn begin(&mut self, draft: &[u32]) {
        draft.clone_into(&mut self.draft);
        self.right = 0;
        self.drafted += draft.len();
    }

    /// The text has `id` behind the tokens that it had.
    pub fn chosen(&mut self, id: u32) {
        if self.draft.get(self.right) == Some(&id) {
            self.right += 1;
            self.accepted += 1;
        }
    }

    /// Tokens of the draft that the text has.
    pub fn right(&self) -> usize {
        self.right
    }

    /// The draft was verified. One that was right to its end makes the next one longer, any other makes it shorter.
    pub fn finish(&mut self) {
        if self.draft.is_empty() {
            return;
        }
        self.length = match self.right == self.draft.len() {
            true => (self.length + GROWTH).min(self.most),
            false => (self.length - 1).max(1),
        };
        self.draft.clear();
    }
}

/// Steps without drafts after which it is measured again whether drafts pay: texts differ.
const AGAIN: usize = 1000;

/// Measures where drafts pay: a step of several texts reads the weights once for all of them already, so it depends on
/// their number.
#[derive(Debug)]
pub(super) struct Worth {
    always: bool,
    /// By the width and the number of texts of a step: what was measured, and steps since it was found not to pay.
    paces: BTreeMap<(u8, usize), (Pace, usize)>,
}

impl Worth {
    /// Nothing measured yet; `always`: drafts are worth it whatever is measured.
    pub fn new(always: bool) -> Worth {
        let paces = BTreeMap::new();
        Worth { always, paces }
    }

    /// Whether a step at `bits` that gives a token to each of `texts` should draft. [`Worth::measured`] hears of that
    /// step.
    pub fn wants_draft(&mut self, bits: u8, texts: usize) -> bool {
        let (pace, idle) = self.paces.entry((bits, texts)).or_default();
        if self.always {
            pace.always();
        }
        if pace.off().is_some() {
            *idle += 1;
            if *idle > AGAIN {
                *idle = 0;
                pace.restart();
            }
        }
        pace.token();
        pace.wants_draft()
    }

    /// The step gave `tokens` tokens and took so long.
    pub fn measured(&mut self, bits: u8, texts: usize, drafted: bool, tokens: usize, took: Duration) {
        let (pace, _) = self.paces.entry((bits, texts)).or_default();
        if drafted {
            // The first one was counted when drafts were wanted.
            (1..tokens).for_each(|_| pace.token());
            pace.round(took);
        } else {
            pace.plain(took / texts.max(1) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Of `steps` steps of two texts, those that drafted, where a plain step takes 20 ms.
    fn run(worth: &mut Worth, steps: usize, tokens: usize, took: u32) -> usize {
        let mut drafted = 0;
        for _ in 0..steps {
            let drafts = worth.wants_draft(8, 2);
            match drafts {
                true => worth.measured(8, 2, true, tokens, took * MS),
                false => worth.measured(8, 2, false, 2, 20 * MS),
            }
            drafted += usize::from(drafts);
        }
        drafted
    }

    #[test]
    fn drafts_go_on_where_they_pay() {
        // Six tokens in the time of four.
        let drafted = run(&mut Worth::new(false), 600, 6, 40);
        assert!(drafted > 450, "{drafted}");
    }

    #[test]
    fn drafts_end_where_they_do_not_pay_and_are_tried_again() {
        let mut worth = Worth::new(false);
        let once = run(&mut worth, 600, 3, 40);
        assert!((1..30).contains(&once), "{once}");
        let again = run(&mut worth, 600, 3, 40);
        assert_eq!(again, once);
        // Another number of texts is another question.
        assert!(!worth.wants_draft(8, 1));
        worth.measured(8, 1, false, 1, 20 * MS);
        assert!(worth.paces[&(8, 1)].0.off().is_none());
    }

    #[test]
    fn drafts_may_be_wanted_whatever_they_cost() {
        assert_eq!(run(&mut Worth::new(true), 100, 2, 1000), 100);
    }

    #[test]
    fn a_draft_is_as_long_as_the_last_one_was_right() {
        let mut drafting = Drafting::new(3, 7);
        let mut verify = |drafted: &[u32], chosen: &[u32]| {
            drafting.begin(drafted);
            chosen.iter().for_each(|&id| drafting.chosen(id));
            let right = drafting.right();
            drafting.finish();
            (right, drafting.length())
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
        assert_eq!((drafting.drafted, drafting.accepted), (18, 7));
    }
}
