//! Decides if drafts pay.

use std::time::Duration;

/// Tokens without a draft at the start of every stretch: what they take is what drafts have to beat.
const PLAIN: usize = 3;
/// Verifications in a stretch.
const ROUNDS: usize = 12;

/// Tokens without drafts after which it is measured again whether drafts pay: texts differ.
const AGAIN: usize = 1000;

/// Measures in stretches: a few tokens without a draft, then rounds of drafting and verifying. When the tokens of a
/// stretch's rounds took longer than those without a draft, there are no drafts for a while.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    always: bool,
    off: Option<(Duration, Duration)>,
    /// Tokens without a draft since then.
    idle: usize,
    plain: (usize, Duration),
    rounds: (usize, Duration),
    /// Tokens of the text that the rounds of this stretch gave.
    tokens: usize,
}

impl Pace {
    /// Forgets what was measured.
    pub fn restart(&mut self) {
        *self = Pace { always: self.always, ..Pace::default() };
    }

    /// Drafts whatever is measured.
    pub fn always(&mut self) {
        self.always = true;
    }

    /// True if the next token should begin a draft; nothing is evaluated ahead.
    pub fn wants_draft(&mut self) -> bool {
        if self.rounds.0 >= ROUNDS {
            let per_token = |(n, time): (usize, Duration)| time / n.max(1) as u32;
            let drafted = per_token((self.tokens, self.rounds.1));
            let plain = per_token(self.plain);
            self.restart();
            self.off = (drafted > plain).then_some((drafted, plain));
        }
        if self.off.is_some() {
            self.idle += 1;
            if self.idle > AGAIN {
                self.restart();
            }
        }
        self.always || (self.off.is_none() && self.plain.0 >= PLAIN)
    }

    /// A token was evaluated by itself.
    pub fn plain(&mut self, time: Duration) {
        if self.plain.0 < PLAIN {
            self.plain.0 += 1;
            self.plain.1 += time;
        }
    }

    /// Tokens were drafted and verified.
    pub fn round(&mut self, time: Duration) {
        self.rounds.0 += 1;
        self.rounds.1 += time;
    }

    /// The text has `tokens` more of those that the last round evaluated.
    pub fn accepted(&mut self, tokens: usize) {
        self.tokens += tokens;
    }

    /// Time per token with drafts and without them, where that was the reason to stop.
    pub fn off(&self) -> Option<(Duration, Duration)> {
        self.off.filter(|_| !self.always)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs `tokens` tokens; a round takes `round` and gives as many as `accepted` says in turn, and one.
    fn run(pace: &mut Pace, tokens: usize, round: u32, accepted: &[usize]) -> usize {
        let (mut ahead, mut rounds) = (0, 0);
        for _ in 0..tokens {
            if ahead > 0 {
                ahead -= 1;
                pace.accepted(1);
            } else if pace.wants_draft() {
                ahead = accepted[rounds % accepted.len()];
                rounds += 1;
                pace.round(round * MS);
                pace.accepted(1);
            } else {
                pace.plain(10 * MS);
            }
        }
        rounds
    }

    #[test]
    fn drafts_that_pay_go_on() {
        let mut pace = Pace::default();
        // 30 ms for 4 tokens of 10 ms each
        let rounds = run(&mut pace, 1000, 30, &[3, 2, 4]);
        assert!(pace.off().is_none());
        // three tokens of each stretch are without
        assert!(rounds > 220, "{rounds}");
    }

    #[test]
    fn drafts_that_do_not_pay_end() {
        let mut pace = Pace::default();
        // 30 ms for 2 tokens
        let rounds = run(&mut pace, 1000, 30, &[1]);
        assert_eq!(rounds, ROUNDS);
        assert_eq!(pace.off(), Some((15 * MS, 10 * MS)));
    }

    #[test]
    fn drafts_that_cease_to_pay_end() {
        let mut pace = Pace::default();
        run(&mut pace, 500, 30, &[4]);
        assert!(pace.off().is_none());
        run(&mut pace, 500, 60, &[4]);
        assert!(pace.off().is_some());
    }

    #[test]
    fn drafts_that_do_not_pay_are_tried_again() {
        let mut pace = Pace::default();
        assert_eq!(run(&mut pace, 1000, 30, &[1]), ROUNDS);
        assert_eq!(run(&mut pace, 1000, 30, &[1]), ROUNDS);
        // a step of two texts counts as one of each, and gives tokens to both
        let mut pace = Pace::default();
        let mut drafted = 0;
        for _ in 0..600 {
            match pace.wants_draft() {
                true => {
                    pace.round(40 * MS);
                    pace.accepted(6);
                    drafted += 1;
                }
                false => pace.plain(10 * MS),
            }
        }
        assert!(drafted > 450, "{drafted}");
    }

    #[test]
    fn drafts_can_be_kept() {
        let mut pace = Pace::default();
        pace.always();
        assert_eq!(run(&mut pace, 100, 1000, &[0]), 100);
        assert!(pace.off().is_none());
        // also at another width
        pace.restart();
        assert_eq!(run(&mut pace, 100, 1000, &[0]), 100);
    }
}
