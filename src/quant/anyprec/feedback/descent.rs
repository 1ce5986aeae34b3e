//! Better codes for the tables as they are, one column after the other.
//!
//! With all other columns as they are, a width's error is least where column `i` holds `q_i - g_i / H_ii`, with `g = (Q -
//! W) H`. The column gets the code whose beginnings are nearest to that at all widths together, as when it was first
//! chosen, and `g` follows the change. No step makes the weighed sum of the errors larger, where feeding errors forward
//! cannot look back at the columns that it has done.

use super::choice::Choice;
use super::refit::Refit;
use super::weighed::Feedback;
use crate::linalg::COLUMNS;

/// A descent, with its memory.
#[derive(Default)]
pub struct Descent {
    /// `(Q - W) H` of every width, in panels.
    slopes: Vec<Vec<[f64; COLUMNS]>>,
    choice: Choice,
}

impl Descent {
    /// Goes through the columns of a row once, in the order of the factor, and gives them better `codes` where there
    /// are any. `fitted` has fitted its `tables` to the codes.
    pub fn row(&mut self, feedback: &Feedback<'_>, fitted: &Refit<'_>, tables: &[Vec<f64>], codes: &mut [u8]) {
        let columns = codes.len();
        self.slopes.resize_with(tables.len(), Vec::new);
        for (slope, table) in self.slopes.iter_mut().zip(tables) {
            fitted.slope(table, slope);
        }
        let panels = feedback.metric.hessian.as_chunks::<COLUMNS>().0;
        for (i, code) in codes.iter_mut().enumerate() {
            let (p, lane) = (i / COLUMNS, i % COLUMNS);
            let diagonal = panels[p * columns + i][lane];
            let centroid = |b: usize, code: u8| tables[b][usize::from(code >> (tables.len() - 1 - b))];
            let slopes = &self.slopes;
            let wanted = |b: usize| centroid(b, *code) - slopes[b][p][lane] / diagonal;
            let better = self.choice.code(&feedback.shares, tables, wanted);
            if better == *code {
                continue;
            }
            for (b, slope) in self.slopes.iter_mut().enumerate() {
                let change = centroid(b, better) - centroid(b, *code);
                if change == 0.0 {
                    continue;
                }
                // Rows of `H` are its columns.
                for (to, row) in slope.iter_mut().zip(panels.iter().skip(i).step_by(columns)) {
                    for (to, h) in to.iter_mut().zip(row) {
                        *to += change * h;
                    }
                }
            }
            *code = better;
        }
    }
}
