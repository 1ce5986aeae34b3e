//! Where positions stand in a cache of cells that several sequences share.
//!
//! llama.cpp can hold all sequences of a batch in one row of cells (its unified cache): their common prefix, then the
//! continuation of each, one after the other. Pages have no such row, and almost nothing depends on it. The exception
//! is the total of the soft-max, whose terms are added in groups of four neighbouring cells: which positions form a
//! group depends on their cells. A [`Placement`] states the cells, so that sums are grouped as in the unified cache.

/// The cells of a sequence's positions: runs of positions whose cells follow each other. Without any run, cell and
/// position are the same number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The first position of each run and its cell, both ascending.
    runs: Vec<(usize, usize)>,
}

impl Placement {
    /// True if every position is its own cell.
    pub fn is_plain(&self) -> bool {
        self.runs.is_empty()
    }

    /// From `position` on, cells are counted from `cell`. What was said of later positions is forgotten.
    ///
    /// # Panics
    /// When the cell is not behind those of the positions before.
    pub fn continue_at(&mut self, position: usize, cell: usize) {
        self.truncate(position);
        let before = position.checked_sub(1).map(|p| self.cell(p));
        assert!(
            before.is_none_or(|before| before < cell),
            "position {position} stands before the one that precedes it"
        );
        self.runs.push((position, cell));
    }

    /// Forgets what was said of the positions from `position` on.
    pub(super) fn truncate(&mut self, position: usize) {
        self.runs.retain(|&(first, _)| first < position);
    }

    /// The cell of a position.
    pub fn cell(&self, position: usize) -> usize {
        let run = self.runs.iter().rev().find(|(first, _)| *first <= position);
        run.map_or(position, |(first, cell)| cell + position - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_each_other() {
        let mut placement = Placement::default();
        assert!(placement.is_plain());
        assert_eq!(placement.cell(7), 7);
        placement.continue_at(0, 10);
        placement.continue_at(4, 21);
        let cells: Vec<usize> = (0..6).map(|p| placement.cell(p)).collect();
        assert_eq!(cells, [10, 11, 12, 13, 21, 22]);
        placement.continue_at(2, 15);
        assert_eq!(placement.cell(5), 18);
        placement.truncate(0);
        assert!(placement.is_plain());
    }

    #[test]
    #[should_panic(expected = "position 2 stands before")]
    fn cells_do_not_go_back() {
        let mut placement = Placement::default();
        placement.continue_at(0, 10);
        placement.continue_at(2, 11);
    }
}
