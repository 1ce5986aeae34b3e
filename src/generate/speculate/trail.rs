//! Hidden states of a text's last positions.

use std::ops::Range;

/// The hidden state before every position of a run of positions: that of the token before it, zeros before the first.
pub(super) struct Trail {
    columns: usize,
    /// The first position whose state before it is here.
    first: usize,
    /// `[positions][columns]`
    states: Vec<f32>,
}

impl Trail {
    /// The beginning that all texts have: states of `columns` numbers, zeros before position 0.
    pub fn new(columns: usize) -> Trail {
        Trail { columns, first: 0, states: vec![0.0; columns] }
    }

    /// Forgets the text.
    pub fn forget(&mut self) {
        *self = Trail::new(self.columns);
    }

    /// The positions whose states are here.
    pub fn positions(&self) -> Range<usize> {
        self.first..self.first + self.states.len() / self.columns
    }

    /// The states before some of [`Trail::positions`].
    pub fn before(&self, positions: Range<usize>) -> &[f32] {
        let of = |position: usize| (position - self.first) * self.columns;
        &self.states[of(positions.start)..of(positions.end)]
    }

    /// Takes in the state of the token at `position`. What was known of later ones is of another text.
    pub fn hear(&mut self, position: usize, state: &[f32]) {
        let (read_at, known) = (position + 1, self.positions());
        match known.contains(&read_at) || read_at == known.end {
            true => self.states.truncate((read_at - self.first) * self.columns),
            false => {
                self.first = read_at;
                self.states.clear();
            }
        }
        self.states.extend_from_slice(state);
    }

    /// Forgets states before positions ahead of `position`, but not the last one.
    pub fn forget_before(&mut self, position: usize) {
        let known = self.positions();
        let position = position.clamp(known.start, known.end - 1);
        self.states.drain(..(position - self.first) * self.columns);
        self.first = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_known_by_the_position_that_reads_them() {
        let mut trail = Trail::new(1);
        assert_eq!((trail.positions(), trail.before(0..1)), (0..1, &[0.0][..]));
        (0..5).for_each(|position| trail.hear(position, &[position as f32 + 10.0]));
        assert_eq!((trail.positions(), trail.before(1..4)), (0..6, &[10.0, 11.0, 12.0][..]));
        // a text that goes on otherwise
        trail.hear(2, &[7.0]);
        assert_eq!((trail.positions(), trail.before(2..4)), (0..4, &[11.0, 7.0][..]));
        trail.forget_before(3);
        assert_eq!((trail.positions(), trail.before(3..4)), (3..4, &[7.0][..]));
        trail.forget_before(99);
        assert_eq!(trail.positions(), 3..4);
        // a text of which the beginning was not heard
        trail.hear(8, &[1.0]);
        assert_eq!((trail.positions(), trail.before(9..10)), (9..10, &[1.0][..]));
    }
}
