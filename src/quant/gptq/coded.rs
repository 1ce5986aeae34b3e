//! Neighbouring rows that are rounded together: the steps of their groups, and the codes that were chosen.
//!
//! The values that a group's weights may take are settled before the first column is rounded, from the weights as they are: by the
//! encoder of the type, with the diagonal of the Hessian as importance (that of ik_llama.cpp's types looks at nothing else), or for Q4_0, Q5_0 and types of two bits or less by a
//! [search](super::clip). Columns can then be taken in any order. MARLIN's way searches for a scale when its group is
//! reached instead.
//!
//! When a row is rounded, [descent](super::descent) goes over its columns twice.

use std::borrow::Cow;

use trine_formats::types::grid::{Grid, Levels, Step};
use trine_formats::types::ik;
use trine_formats::types::num::put_f16;
use trine_formats::types::{EncodeFn, Part, TypeId, TypeInfo};

use super::clip::Clip;
use super::descent::Descent;
use super::factor::Factor;
use super::multiples::Search;
use super::options::Options;
use super::prune::{OF, pruned};
use super::rows::{Block, Strip, steps_of_row};
use crate::kernels::Isa;

/// Types with one scale for a block, which their encoders take from its largest weight, whatever the importance.
const SEARCHED: [TypeId; 7] =
    [TypeId::Q4_0, TypeId::Q5_0, TypeId::Q2_0, TypeId::PQ2_0, TypeId::TQ1_0, TypeId::PTQ1_0, TypeId::TQ2_0];

/// How often a row is gone over.
const SWEEPS: usize = 2;

/// Search for the steps of a type.
enum Steps {
    /// The type's encoder, and where it has super-blocks a search from there on.
    Encoded(EncodeFn, Option<Search>),
    /// A search that looks at each column by itself.
    Searched(Clip),
    /// The same search, on the weights as they are when a group is reached.
    WhenReached(Clip),
}

/// Rows of one width that become one type, whose columns have codes of their own.
pub struct Coded<'a> {
    factor: &'a Factor,
    info: &'static TypeInfo,
    grid: &'static Grid,
    how: Steps,
    /// Columns that share a step.
    group: usize,
    /// The steps of all groups, row after row.
    steps: Vec<Step>,
    /// The codes of all columns, row after row.
    codes: Vec<u8>,
    /// Where two of four columns become zero, those of the four that were reached last.
    pruned: Option<[bool; OF]>,
}

impl<'a> Coded<'a> {
    /// No rows yet.
    pub fn new(
        info: &'static TypeInfo,
        grid: &'static Grid,
        encode: EncodeFn,
        factor: &'a Factor,
        options: &Options,
        isa: Isa,
    ) -> Coded<'a> {
        let clip = match grid.levels {
            Levels::Even { lowest, count } if SEARCHED.contains(&info.id) => {
                Some(Clip::new(lowest, count, options.compat, isa))
            }
            _ => None,
        };
        let is_grouped = info.id == TypeId::Q4_0;
        let (how, group) = match clip {
            Some(clip) if is_grouped && options.compat => (Steps::WhenReached(clip), options.group),
            Some(clip) if is_grouped => (Steps::Searched(clip), options.group),
            Some(clip) => (Steps::Searched(clip), grid.group),
            None => {
                let encode = ik::by_importance(info.id).unwrap_or(encode);
                (Steps::Encoded(encode, Search::new(info, grid)), grid.group)
            }
        };
        Coded {
            factor,
            info,
            grid,
            how,
            group,
            steps: Vec::new(),
            codes: Vec::new(),
            pruned: options.sparse.then_some([false; OF]),
        }
    }

    /// True if two of four columns become zero.
    fn is_sparse(&self) -> bool {
        self.pruned.is_some()
    }

    /// The weights that decide the scales: where some become zero, without those that would if nothing were fed back.
    /// Zeros cost nothing with any scale.
    fn deciding<'w>(&self, weights: &'w [f32]) -> Cow<'w, [f32]> {
        if !self.is_sparse() {
            return weights.into();
        }
        let mut deciding = weights.to_vec();
        for (number, four) in self.factor.order().as_chunks::<OF>().0.iter().enumerate() {
            let pivots = std::array::from_fn(|j| self.factor.pivot(number * OF + j));
            let gone = pruned(four.map(|column| weights[column].into()), pivots);
            for (&column, gone) in four.iter().zip(gone) {
                deciding[column] = if gone { 0.0 } else { deciding[column] };
            }
        }
        deciding.into()
    }

    /// Columns after which [`Coded::reach`] is to be called, where it has something to do.
    fn span(&self) -> Option<usize> {
        matches!(self.how, Steps::WhenReached(_)).then_some(self.group)
    }

    fn step(&self, row: usize, column: usize) -> usize {
        row * self.factor.columns().div_ceil(self.group) + column / self.group
    }

    /// The group that starts at column `first` of row `row` is reached, with its weights as the errors so far have left
    /// them.
    fn reach(&mut self, row: usize, first: usize, weights: &[f64]) {
        let at = self.step(row, first);
        if let Steps::WhenReached(clip) = &mut self.how {
            self.steps[at].scale = clip.by_factor(self.factor, first, weights);
        }
    }

    /// Chooses the code of a column; the value that the file will hold.
    fn code(&mut self, row: usize, column: usize, weight: f64) -> f64 {
        let step = self.steps[self.step(row, column)];
        let gone = self.pruned.is_some_and(|pruned| pruned[column % OF]);
        let weight = if gone { 0.0 } else { weight };
        let code = self.grid.nearest(step, weight);
        self.codes[row * self.factor.columns() + column] = code;
        self.grid.value(step, code).into()
    }
}

impl Strip for Coded<'_> {
    fn push(&mut self, weights: &[f32], blocks: &mut [u8]) {
        let importance = self.factor.importance();
        let before = self.steps.len();
        let groups = weights.len().div_ceil(self.group);
        self.steps.resize(before + groups, Step::default());
        self.codes.resize(self.codes.len() + weights.len(), 0);
        let deciding = self.deciding(weights);
        let steps = &mut self.steps[before..];
        match &mut self.how {
            Steps::Encoded(encode, search) => {
                encode(weights, Some(importance), blocks);
                // No type with a search has a scale before its rows.
                if let Some(search) = search {
                    let columns = weights.chunks(self.info.block).zip(importance.chunks(self.info.block));
                    for (block, (weights, importance)) in blocks.chunks_exact_mut(self.info.bytes).zip(columns) {
                        search.improve(weights, importance, block);
                    }
                }
                steps_of_row(self.info, blocks, steps, self.group, |block, steps| self.grid.steps(block, steps));
            }
            Steps::Searched(clip) => {
                let groups = deciding.chunks(self.group);
                let groups = groups.zip(importance.chunks(self.group));
                for (step, (weights, importance)) in steps.iter_mut().zip(groups) {
                    step.scale = clip.by_importance(weights, importance);
                }
            }
            Steps::WhenReached(_) => {}
        }
    }

    fn round(&mut self, row: usize, block: &mut Block<'_>) {
        let (order, span) = (block.order, self.span());
        for (i, &column) in order.iter().enumerate() {
            if self.is_sparse() && i.is_multiple_of(OF) {
                let weights = std::array::from_fn(|j| block.weights[i + j]);
                self.pruned = Some(pruned(weights, block.pivots(i)));
            }
            if let Some(span) = span.filter(|span| i.is_multiple_of(*span)) {
                self.reach(row, column, &block.weights[i..order.len().min(i + span)]);
            }
            let rounded = self.code(row, column, block.weights[i]);
            block.feed(i, rounded);
        }
    }

    fn descend(&mut self, row: usize, descent: &mut Descent<'_>) {
        let first = row * self.factor.columns();
        for _ in 0..SWEEPS {
            for (i, &column) in descent.order.iter().enumerate() {
                let step = self.steps[self.step(row, column)];
                let code = self.grid.nearest(step, descent.wanted(i));
                self.codes[first + column] = code;
                descent.set(i, self.grid.value(step, code).into());
            }
        }
    }

    fn write(&self, out: &mut [u8]) {
        let per_row = self.factor.columns() / self.info.block;
        let rows = out.chunks_exact_mut(self.info.head + per_row * self.info.bytes);
        let blocks = rows.flat_map(|row| row[self.info.head..].chunks_exact_mut(self.info.bytes));
        for (b, (block, codes)) in blocks.zip(self.codes.chunks_exact(self.info.block)).enumerate() {
            if !matches!(self.how, Steps::Encoded(..)) {
                let at = self.step(b / per_row, b % per_row * self.info.block);
                put_f16(block, self.info.at(Part::Scale), self.steps[at].scale);
            }
            self.grid.place(codes, block);
        }
    }
}
