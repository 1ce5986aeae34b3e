//! Codes and scales of a matrix whose rows are read in parts.

use std::ops::Range;

use rayon::prelude::*;
use trine_formats::widely::quantize::{ComplexRow, Sums, stages_of_tiles};
use trine_formats::widely::{Rule, Scope, Shape, TILE, pack_row, split};

/// Approximate number of weights that are in memory at once.
const CHUNK_WEIGHTS: usize = 1 << 21;

/// The rows of a real matrix in the order of a checkpoint.
pub trait Masters {
    /// Why rows cannot be read.
    type Error;

    /// Reads `rows` into `out`, which then holds nothing else; all weights are finite.
    ///
    /// # Errors
    /// Errors of the source of the weights.
    fn read(&mut self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), Self::Error>;
}

/// Takes the bytes of the words, row after row.
pub(crate) type Sink<'a, E> = dyn FnMut(&[u8]) -> Result<(), E> + 'a;

/// How often a rule reads all weights: a stage starts from the scales of those before it, and a scale of the whole
/// matrix is known at the end of it.
pub fn passes(rule: &Rule) -> usize {
    match rule.scope {
        Scope::Tensor => rule.stages,
        Scope::Row | Scope::Tile64 => 1,
    }
}

/// Quantizes a matrix of `shape`: `sink` gets the bytes of the words, row after row, and the scales of all groups are
/// returned. `done` is told the number of real rows that were read.
///
/// # Errors
/// Those of `masters` and of `sink`.
pub fn encode<M: Masters>(
    rule: &Rule,
    shape: &Shape,
    masters: &mut M,
    sink: &mut Sink<'_, M::Error>,
    done: &mut dyn FnMut(usize),
) -> Result<Vec<f32>, M::Error> {
    let mut work = Work { rule, shape, masters, done, top: Vec::new(), bottom: Vec::new() };
    match rule.scope {
        Scope::Tensor => work.whole(sink),
        Scope::Row | Scope::Tile64 => work.bands(sink),
    }
}

struct Work<'a, M> {
    rule: &'a Rule,
    shape: &'a Shape,
    masters: &'a mut M,
    done: &'a mut dyn FnMut(usize),
    top: Vec<f32>,
    bottom: Vec<f32>,
}

impl<M: Masters> Work<'_, M> {
    /// Complex rows that are read together, whole tiles where tiles have scales.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<M> {
        let rows = self.shape.rows;
        let step = (CHUNK_WEIGHTS / (4 * self.shape.columns)).max(1);
        let step = step.next_multiple_of(self.band());
        (0..rows).step_by(step).map(move |first| first..rows.min(first + step))
    }

    /// Rows whose scales depend on one another.
    fn band(&self) -> usize {
        match self.rule.scope {
            Scope::Tile64 => TILE,
            Scope::Tensor | Scope::Row => 1,
        }
    }

    /// Reads complex rows: their upper and their lower real rows.
    fn read(&mut self, rows: &Range<usize>) -> Result<(), M::Error> {
        let lower = self.shape.rows + rows.start..self.shape.rows + rows.end;
        self.masters.read(rows.clone(), &mut self.top)?;
        self.masters.read(lower, &mut self.bottom)
    }

    /// Scales of the whole matrix: a pass for each stage, the last of which gives the codes.
    fn whole(&mut self, sink: &mut Sink<'_, M::Error>) -> Result<Vec<f32>, M::Error> {
        let (rule, shape) = (self.rule, self.shape);
        let mut scales: [Vec<[f32; 2]>; 2] = Default::default();
        for stage in 0..rule.stages {
            let is_last = stage + 1 == rule.stages;
            let mut totals = [Sums::default(); 2];
            for rows in self.parts() {
                self.read(&rows)?;
                let width = 2 * shape.columns;
                let pairs = self.top.par_chunks(width).zip(self.bottom.par_chunks(width));
                let coded: Vec<([Sums; 2], Vec<u32>)> = pairs
                    .map(|(top, bottom)| {
                        let mut words = vec![0; if is_last { shape.row_words() } else { 0 }];
                        let parts = split(rule.profile, top, bottom);
                        let mut sums = [Sums::default(); 2];
                        for (half, mut part) in parts.into_iter().enumerate() {
                            sums[half] = part.stage(rule, &scales[half], |stage, codes| {
                                if is_last {
                                    let stream = half * rule.stages + stage;
                                    pack_row(shape, stream, codes, &mut words);
                                }
                            });
                        }
                        (sums, words)
                    })
                    .collect();
                for (sums, words) in coded {
                    totals.iter_mut().zip(&sums).for_each(|(t, s)| t.add(s));
                    if is_last {
                        sink(&bytes(&words))?;
                    }
                }
                (self.done)(2 * rows.len());
            }
            for (scales, totals) in scales.iter_mut().zip(&totals) {
                scales.push(totals.scales(rule.profile));
            }
        }
        Ok(scales.into_iter().flatten().flatten().collect())
    }

    /// Scales of rows or of tiles: bands of rows that have nothing to do with one another.
    fn bands(&mut self, sink: &mut Sink<'_, M::Error>) -> Result<Vec<f32>, M::Error> {
        let band = self.band();
        let mut all = Vec::with_capacity(self.shape.groups() * self.shape.group_scales());
        for rows in self.parts() {
            self.read(&rows)?;
            let width = 2 * self.shape.columns * band;
            let pairs = self.top.par_chunks(width).zip(self.bottom.par_chunks(width));
            let (rule, shape) = (self.rule, self.shape);
            let coded: Vec<(Vec<u32>, Vec<f32>)> =
                pairs.map(|(top, bottom)| band_of(rule, shape, top, bottom)).collect();
            for (words, scales) in coded {
                sink(&bytes(&words))?;
                all.extend(scales);
            }
            (self.done)(2 * rows.len());
        }
        Ok(all)
    }
}

/// Words and scales of one row, or of the rows of a band of tiles.
fn band_of(rule: &Rule, shape: &Shape, top: &[f32], bottom: &[f32]) -> (Vec<u32>, Vec<f32>) {
    let width = 2 * shape.columns;
    let pairs = top.chunks(width).zip(bottom.chunks(width));
    let mut halves: [Vec<ComplexRow>; 2] = Default::default();
    for (top, bottom) in pairs {
        let parts = split(rule.profile, top, bottom);
        halves.iter_mut().zip(parts).for_each(|(h, p)| h.push(p));
    }
    let mut words = vec![0; halves[0].len() * shape.row_words()];
    let mut scales = vec![0.0; shape.tiles() * shape.group_scales()];
    let tile = match rule.scope {
        Scope::Tile64 => TILE,
        Scope::Tensor | Scope::Row => shape.columns,
    };
    for (half, rows) in halves.iter_mut().enumerate() {
        let stream = |stage| half * rule.stages + stage;
        stages_of_tiles(
            rule,
            rows,
            tile,
            |row, stage, codes| {
                let row = &mut words[row * shape.row_words()..][..shape.row_words()];
                pack_row(shape, stream(stage), codes, row);
            },
            |tile, stage, both| {
                let at = tile * shape.group_scales() + 2 * stream(stage);
                scales[at..at + 2].copy_from_slice(&both);
            },
        );
    }
    (words, scales)
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use trine_formats::widely::quantize::quantize;
    use trine_formats::widely::{Profile, TieRule};

    use super::*;

    struct Memory<'a> {
        columns: usize,
        weights: &'a [f32],
    }

    impl Masters for Memory<'_> {
        type Error = ();

        fn read(&mut self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), ()> {
            out.clear();
            out.extend(&self.weights[rows.start * self.columns..rows.end * self.columns]);
            Ok(())
        }
    }

    #[test]
    fn parts_and_threads_give_what_the_definition_gives() {
        // more than one part, and tiles that are not whole
        let (rows, columns) = (3000, 2 * 530);
        let mut state = 5u64;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let weights: Vec<f32> = (0..rows * columns).map(|_| number()).collect();
        for (scope, stages, profile, tie) in [
            (Scope::Tensor, 2, Profile::ScriptBf16, TieRule::Phase),
            (Scope::Tensor, 3, Profile::F32, TieRule::Phase),
            (Scope::Row, 2, Profile::F32, TieRule::Tile64),
            (Scope::Tile64, 4, Profile::F32, TieRule::Tile64),
        ] {
            let rule = Rule { stages, scope, profile, tie };
            let shape = rule.shape(rows, columns).expect("even sides");
            assert!(rows * columns > CHUNK_WEIGHTS);
            let mut masters = Memory { columns, weights: &weights };
            let (mut words, mut read) = (Vec::new(), 0);
            let sink = &mut |bytes: &[u8]| {
                words.extend_from_slice(bytes);
                Ok(())
            };
            let scales = encode(&rule, &shape, &mut masters, sink, &mut |n| read += n);
            let want = quantize(&rule, rows, columns, &weights).expect("even sides");
            assert!(words == bytes(&want.0), "{scope:?} {profile:?}: codes");
            assert!(scales == Ok(want.1), "{scope:?} {profile:?}: scales");
            assert_eq!(read, rows * passes(&rule));
        }
    }
}
