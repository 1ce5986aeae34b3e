//! Sums and counts from the activations of a pass.

use std::sync::{Mutex, MutexGuard};

use trine_formats::imatrix::{Entry, Imatrix};

use super::CollectError;
use crate::ops::observe::ActivationObserver;

/// An observer that adds up squares of inputs.
pub(super) struct Collector {
    output: bool,
    state: Mutex<ImatrixSums>,
}

/// The sums so far, behind the lock.
pub(super) struct ImatrixSums {
    pub matrix: Imatrix,
    /// The first error.
    pub error: Option<CollectError>,
    /// True if the pass has enough tokens to count for plain matrices.
    pub counts_plain: bool,
}

impl Collector {
    /// Goes on from `matrix`; `output`: also for `output.weight`.
    pub fn new(matrix: Imatrix, output: bool) -> Collector {
        Collector { output, state: Mutex::new(ImatrixSums { matrix, error: None, counts_plain: true }) }
    }

    /// The sums so far.
    pub fn lock(&self) -> MutexGuard<'_, ImatrixSums> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl ActivationObserver for Collector {
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize) {
        let wanted = tensor.starts_with("blk.") || self.output && tensor == "output.weight";
        let state = &mut *self.lock();
        if wanted && state.counts_plain {
            state.add_plain(tensor, rows, columns);
        }
    }

    fn observe_expert(&self, tensor: &str, expert: usize, experts: usize, rows: &[f32], columns: usize) {
        let state = &mut *self.lock();
        state.add_expert(tensor, (expert, experts), rows, columns);
    }
}

impl ImatrixSums {
    /// Adds the squares of `rows` to the sums of `tensor`, and counts them.
    fn add_plain(&mut self, tensor: &str, rows: &[f32], columns: usize) {
        let Some(entry) = self.entry(tensor, 1, columns) else {
            return;
        };
        // Older files have several counts for a plain matrix.
        if entry.counts.iter().all(|&c| c == entry.counts[0]) {
            entry.counts.truncate(1);
        }
        add_squares(&mut entry.sums, rows);
        let tokens = (rows.len() / columns) as i64;
        entry.counts.iter_mut().for_each(|c| *c += tokens);
    }

    /// The same for the expert number `expert` of the `experts` in `tensor`.
    fn add_expert(&mut self, tensor: &str, (expert, experts): (usize, usize), rows: &[f32], columns: usize) {
        let Some(entry) = self.entry(tensor, experts, columns) else {
            return;
        };
        // Older files have one count for all experts.
        if entry.counts.len() == 1 {
            entry.counts.resize(experts, entry.counts[0]);
        }
        if entry.counts.len() != experts {
            let error = CollectError::Experts { tensor: tensor.to_owned(), have: entry.counts.len(), want: experts };
            self.error.get_or_insert(error);
            return;
        }
        add_squares(&mut entry.sums[expert * columns..][..columns], rows);
        entry.counts[expert] += (rows.len() / columns) as i64;
    }

    /// The entry of a tensor of `matrices` matrices; none where what is there is of another model.
    fn entry(&mut self, tensor: &str, matrices: usize, columns: usize) -> Option<&mut Entry> {
        let entries = &mut self.matrix.entries;
        let entry = entries
            .entry(tensor.to_owned())
            .or_insert_with(|| Entry { sums: vec![0.0; columns * matrices], counts: vec![0; matrices] });
        if entry.sums.len() == columns * matrices {
            return Some(entry);
        }
        self.error.get_or_insert(CollectError::Columns {
            tensor: tensor.to_owned(),
            have: entry.sums.len() / matrices,
            want: columns,
        });
        None
    }
}

/// Adds the squares of every row to the sums of its columns, one row after the other.
fn add_squares(sums: &mut [f32], rows: &[f32]) {
    for row in rows.chunks_exact(sums.len()) {
        for (s, x) in sums.iter_mut().zip(row) {
            *s += x * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(entries: &[(&str, &[f32], &[i64])]) -> Collector {
        let mut matrix = Imatrix::new(4);
        for &(name, sums, counts) in entries {
            let (sums, counts) = (sums.to_vec(), counts.to_vec());
            matrix.entries.insert(name.to_owned(), Entry { sums, counts });
        }
        Collector::new(matrix, false)
    }

    fn entry(collector: &Collector, name: &str) -> Option<Entry> {
        collector.lock().matrix.entries.get(name).cloned()
    }

    #[test]
    fn experts_have_sums_and_counts_of_their_own() {
        let c = collector(&[]);
        c.observe_expert("blk.0.ffn_up_exps.weight", 2, 3, &[1.0, 2.0, 3.0, 4.0], 2);
        c.observe_expert("blk.0.ffn_up_exps.weight", 0, 3, &[5.0, 0.5], 2);
        let e = entry(&c, "blk.0.ffn_up_exps.weight").expect("an entry");
        assert_eq!(e.sums, [25.0, 0.25, 0.0, 0.0, 10.0, 20.0]);
        assert_eq!(e.counts, [1, 0, 2]);
    }

    #[test]
    fn small_passes_count_for_experts_alone() {
        let c = collector(&[]);
        c.lock().counts_plain = false;
        c.observe("blk.0.attn_q.weight", &[1.0, 2.0], 2);
        c.observe_expert("blk.0.ffn_up_exps.weight", 1, 2, &[3.0, 1.0], 2);
        assert_eq!(entry(&c, "blk.0.attn_q.weight"), None);
        let e = entry(&c, "blk.0.ffn_up_exps.weight").expect("an entry");
        assert_eq!((e.sums, e.counts), (vec![0.0, 0.0, 9.0, 1.0], vec![0, 1]));
    }

    #[test]
    fn matrices_outside_the_blocks_do_not_count() {
        let c = collector(&[]);
        c.observe("token_embd.weight", &[1.0], 1);
        c.observe("output.weight", &[1.0], 1);
        assert!(c.lock().matrix.entries.is_empty());
    }

    #[test]
    fn a_count_of_an_older_file_is_that_of_every_expert() {
        let name = "blk.0.ffn_down_exps.weight";
        let c = collector(&[(name, &[1.0, 2.0, 3.0, 4.0], &[7])]);
        c.observe_expert(name, 1, 2, &[1.0, 1.0], 2);
        let e = entry(&c, name).expect("an entry");
        assert_eq!((e.sums, e.counts), (vec![1.0, 2.0, 4.0, 5.0], vec![7, 8]));
    }

    #[test]
    fn several_counts_of_a_plain_matrix_become_one_if_they_are_equal() {
        let (equal, other) = ("blk.0.attn_q.weight", "blk.0.attn_k.weight");
        let c = collector(&[(equal, &[1.0, 2.0], &[5, 5]), (other, &[1.0, 2.0], &[5, 6])]);
        for name in [equal, other] {
            c.observe(name, &[1.0, 0.0, 1.0, 0.0], 2);
        }
        assert_eq!(entry(&c, equal).expect("an entry").counts, [7]);
        assert_eq!(entry(&c, other).expect("an entry").counts, [7, 8]);
    }

    #[test]
    fn matrices_of_another_model_are_refused() {
        let name = "blk.0.ffn_up_exps.weight";
        let c = collector(&[(name, &[0.0; 6], &[1])]);
        c.observe_expert(name, 0, 2, &[1.0, 1.0], 2);
        let error = c.lock().error.take();
        assert!(matches!(error, Some(CollectError::Columns { have: 3, want: 2, .. })));
        let c = collector(&[(name, &[0.0; 12], &[1, 2, 3])]);
        c.observe_expert(name, 0, 6, &[1.0, 1.0], 2);
        let error = c.lock().error.take();
        assert!(matches!(error, Some(CollectError::Experts { have: 3, want: 6, .. })));
    }
}
