//! Whether drafts pay.

use std::time::Duration;

/// Tokens without a draft at the start of every stretch: what they take is what drafts have to beat.
const PLAIN: usize = 3;
/// Verifications in a stretch.
const ROUNDS: usize = 12;

/// Measures in stretches: a few tokens without a draft, then rounds of drafting and verifying. When the tokens of a
/// stretch's rounds took longer than those without a draft, there are no more drafts.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    always: bool,
    off: Option<(Duration, Duration)>,
    plain: (usize, Duration),
    rounds: (usize, Duration),
    /// Tokens of the text that the rounds of this stretch gave.
    tokens: usize,
}

impl Pace {
    /// Nothing measured yet.
    pub fn new() -> Pace {
        Pace::default()
    }

    /// Forgets what was measured.
    pub fn restart(&mut self) {
        *self = Pace { always: self.always, ..Pace::default() };
    }

    /// Drafts whatever is measured.
    pub fn always(&mut self) {
        self.always = true;
    }

    /// Whether the token asked for last should begin a draft; nothing is evaluated ahead.
    pub fn wants_draft(&mut self) -> bool {
        if self.rounds.0 >= ROUNDS {
            let per_token = |(n, time): (usize, Duration)| time / n.max(1) as u32;
            // but this token
            let drafted = per_token((self.tokens - 1, self.rounds.1));
            let plain = per_token(self.plain);
            *self = Pace {
                always: self.always,
                off: (drafted > plain).then_some((drafted, plain)),
                tokens: 1,
                ..Pace::default()
            };
        }
        self.always || (self.off.is_none() && self.plain.0 >= PLAIN)
    }

    /// The next token of the text is asked for.
    pub fn token(&mut self) {
        self.tokens += 1;
    }

    /// A token was evaluated by itself.
    pub fn plain(&mut self, time: Duration) {
        // it is none of the rounds'
        self.tokens = self.tokens.saturating_sub(1);
        if self.plain.0 < PLAIN {
            self.plain.0 += 1;
            self.plain.1 += time;
        }
    }

    /// Tokens were drafted and verified, beginning with the one asked for last.
    pub fn round(&mut self, time: Duration) {
        self.rounds.0 += 1;
        self.rounds.1 += time;
    }

    /// What a token took with drafts and without them, when that was the reason to stop.
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
            pace.token();
            if ahead > 0 {
                ahead -= 1;
            } else if pace.wants_draft() {
                ahead = accepted[rounds % accepted.len()];
                rounds += 1;
                pace.round(round * MS);
            } else {
                pace.plain(10 * MS);
            }
        }
        rounds
    }

    #[test]
    fn drafts_that_pay_go_on() {
        let mut pace = Pace::new();
        // 30 ms for 4 tokens of 10 ms each
        let rounds = run(&mut pace, 1000, 30, &[3, 2, 4]);
        assert!(pace.off().is_none());
        // three tokens of each stretch are without
        assert!(rounds > 220, "{rounds}");
    }

    #[test]
    fn drafts_that_do_not_pay_end() {
        let mut pace = Pace::new();
        // 30 ms for 2 tokens
        let rounds = run(&mut pace, 1000, 30, &[1]);
        assert_eq!(rounds, ROUNDS);
        assert_eq!(pace.off(), Some((15 * MS, 10 * MS)));
    }

    #[test]
    fn drafts_that_cease_to_pay_end() {
        let mut pace = Pace::new();
        run(&mut pace, 500, 30, &[4]);
        assert!(pace.off().is_none());
        run(&mut pace, 500, 60, &[4]);
        assert!(pace.off().is_some());
    }

    #[test]
    fn drafts_can_be_kept() {
        let mut pace = Pace::new();
        pace.always();
        assert_eq!(run(&mut pace, 100, 1000, &[0]), 100);
        assert!(pace.off().is_none());
        // also at another width
        pace.restart();
        assert_eq!(run(&mut pace, 100, 1000, &[0]), 100);
    }
}
