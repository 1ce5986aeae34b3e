//! Tables that the rows of a matrix share.
//!
//! A table of a row by itself follows the row's weights closely, and costs as much as the codes where rows are short.
//! The weights of most rows are distributed alike up to their size, so a matrix gets a few tables, and every row takes
//! one of them times a factor of its own:
//!
//! - rows are divided by their shape, the centroids of eight clusters once the row has size one (`shape`);
//! - the weights of all rows of a class, each divided by its row's factor, are clustered together (`pool`);
//! - every row looks for the class and the factor with the least error (`search`); this and the one before it in turns;
//! - with error feedback, a class gets codes, factors and tables in turns (`feedback::class`).
//!
//! A factor is one more number by which a row meets those of its weights that matter most: a search over factors takes a
//! tenth off the error.

mod pool;
mod rows;
mod search;
mod shape;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use trine_formats::types::num::f32_to_f16;

use super::cluster::{ClusterError, check};
use super::feedback::{Choice, Class, Feedback, shares};
use super::opened::RowWeights;
use super::work::{Clustered, Work};
use rows::{Rows, Taken};
use search::Grids;

/// How often tables and the choices of rows are made in turns.
const ROUNDS: usize = 2;

impl Work<'_> {
    /// Clusters a whole matrix with as many shared tables as `tables`.
    ///
    /// # Errors
    /// The first weight, in order of the rows, that cannot be clustered; its index is counted through the matrix.
    pub fn run_shared(
        &self,
        tables: usize,
        weights: &[f32],
        sensitivities: RowWeights<'_>,
    ) -> Result<Clustered, ClusterError> {
        let own = self.feedback.as_ref().map(Feedback::left_over);
        let sensitivities = own.as_deref().map_or(sensitivities, RowWeights::Columns);
        let rows = Rows { columns: self.columns, weights, sensitivities };
        for i in 0..rows.count() {
            let mut own = vec![0.0; self.columns];
            rows.sensitivities.copy(i, &mut own);
            check(rows.row(i), &own).map_err(|e| e.after(i * self.columns))?;
        }
        let (taken, mut luts) = self.choose(tables, &rows);
        let halves = |values: &mut Vec<f64>| values.iter().map(|&v| f32_to_f16(v as f32)).collect::<Vec<u16>>();
        // Factors of one to two, so that tables are as large as weights.
        let largest = taken.iter().flat_map(|t| &t.scales).fold(0.0f64, |m, &s| m.max(s));
        // The power of two at or below it: its sign and exponent without the fraction.
        let unit = if largest.is_normal() { f64::from_bits(largest.to_bits() & (0xFFF << 52)) } else { 1.0 };
        luts.iter_mut().flatten().flatten().for_each(|c| *c *= unit);
        let classes: Vec<Class> = luts
            .iter_mut()
            .enumerate()
            .map(|(class, luts)| {
                let members = (0..rows.count()).filter(|&i| taken[i].class == class);
                let members: Vec<usize> = members.collect();
                let scale = |&i: &usize| taken[i].scales.iter().map(|s| f32_to_f16((s / unit) as f32)).collect();
                Class {
                    scales: members.iter().map(scale).collect(),
                    codes: vec![vec![0; self.columns]; members.len()],
                    luts: luts.iter_mut().map(halves).collect(),
                    rows: members,
                    ..Class::default()
                }
            })
            .collect();
        let classes: Vec<Class> = classes.into_par_iter().map(|class| self.code(class, &rows)).collect();
        Ok(self.put_together(&classes, rows.count()))
    }

    /// The tables of each class and width for rows of size one, and the choice of every row.
    fn choose(&self, tables: usize, rows: &Rows<'_>) -> (Vec<Taken>, Vec<Vec<Vec<f64>>>) {
        let widths = self.nesting.widths().len();
        let shares = shares(self.nesting, &self.bits);
        let sizes: Vec<f64> = (0..rows.count()).into_par_iter().map(|i| shape::size(rows, i)).collect();
        let classes = shape::classes(rows, &sizes, tables);
        let taken = classes.into_iter().zip(&sizes);
        let mut taken: Vec<Taken> = taken.map(|(class, &s)| Taken { class, scales: vec![s; widths] }).collect();
        let mut luts = vec![self.nesting.widths().map(|w| vec![0.0; 1 << w]).collect::<Vec<_>>(); tables];
        for _ in 0..ROUNDS {
            let each = luts.into_par_iter().enumerate();
            luts = each.map(|(class, old)| pool::tables(self.nesting, rows, &taken, class).unwrap_or(old)).collect();
            let grids: Vec<Grids> = luts.par_iter().map(|luts| Grids::new(luts)).collect();
            let each = (0..rows.count()).into_par_iter();
            taken = each.map(|i| search::best(&grids, &shares, rows, i, sizes[i])).collect();
        }
        (taken, luts)
    }

    /// Gives the rows of a class their codes.
    fn code(&self, mut class: Class, rows: &Rows<'_>) -> Class {
        if let Some(feedback) = &self.feedback {
            feedback.improve_class(&mut class, |i| rows.row(i));
            return class;
        }
        let shares = shares(self.nesting, &self.bits);
        let (mut choice, mut own) = (Choice::default(), vec![0.0; self.columns]);
        for (at, &i) in class.rows.iter().enumerate() {
            let tables = class.tables(at);
            rows.sensitivities.copy(i, &mut own);
            let mut errors = vec![0.0; tables.len()];
            let mut energy = 0.0;
            for ((code, &w), &s) in class.codes[at].iter_mut().zip(rows.row(i)).zip(&own) {
                let (w, s) = (f64::from(w), f64::from(s));
                *code = choice.code(&shares, &tables, |_| w);
                energy += s * w * w;
                for (b, (error, table)) in errors.iter_mut().zip(&tables).enumerate() {
                    let off = w - table[usize::from(*code >> (tables.len() - 1 - b))];
                    *error += s * off * off;
                }
            }
            class.errors.push(errors);
            class.energies.push(energy);
        }
        class
    }

    /// The parts of the matrix of all classes.
    fn put_together(&self, classes: &[Class], rows: usize) -> Clustered {
        let widths = self.nesting.widths().len();
        let mut places = vec![(0, 0); rows];
        for (class, members) in classes.iter().enumerate() {
            members.rows.iter().enumerate().for_each(|(at, &i)| places[i] = (class, at));
        }
        let bytes = |lut: &Vec<u16>| lut.iter().flat_map(|c| c.to_le_bytes()).collect::<Vec<u8>>();
        let mut out = Clustered {
            luts: (0..widths).map(|b| classes.iter().flat_map(|c| bytes(&c.luts[b])).collect()).collect(),
            scales: vec![Vec::new(); widths],
            planes: vec![Vec::new(); usize::from(self.nesting.parent_bits)],
            errors: vec![0.0; widths],
            kept: vec![0; rows],
            ..Clustered::default()
        };
        for (class, at) in places {
            let members = &classes[class];
            out.classes.push(class as u8);
            let planes = out.planes.iter_mut().zip(self.planes(&members.codes[at]));
            planes.for_each(|(all, one)| all.extend(one));
            for (b, scale) in members.scales[at].iter().enumerate() {
                out.scales[b].extend(scale.to_le_bytes());
                out.errors[b] += members.errors[at][b];
            }
            out.energy += members.energies[at];
        }
        out
    }
}
