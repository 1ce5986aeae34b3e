//! The values of one tensor of the output, row by row, from what the checkpoint stores.

use std::ops::Range;

use half::f16;
use rayon::prelude::*;
use trine_formats::safetensors::{Dtype, decode};
use trine_formats::types::{TypeId, exact};

use super::error::ConvertError;
use super::folder::Files;
use super::mean::AbsMean;
use super::slices::Slices;
use crate::arch::{Role, source_row};
use crate::math;

/// Approximate number of values that are in memory at once.
const CHUNK_VALUES: u64 = 1 << 20;

/// How stored values become values of the model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Rule {
    /// As they are.
    Plain,
    /// Gains stored less this number.
    Plus(f32),
    /// Logarithms of rates: their exponents, negative. The nearest f32; PyTorch's differ in the last bit for one value
    /// in a hundred or so, and from processor to processor.
    Decay,
    /// The same, positive.
    Rate,
    /// Latent weights of BitNet b1.58: `s = 1 / max(mean|W|, 1e-5)`, `clamp(round(W s), -1, 1) / s`.
    Bitnet,
    /// Latent weights of TriLM: `g = 1e-5 + mean|W|`, `round(clip(W / g, -1, 1)) g`, where a matrix
    /// split over ranks has one `g` per part.
    Trilm { parts: u64, by_columns: bool },
    /// Four digits a byte; `unit` is the value of digit +1.
    Packed { unit: f32 },
}

impl Rule {
    /// True if the values have to be read once for their scales alone.
    fn measures(self) -> bool {
        matches!(self, Rule::Bitnet | Rule::Trilm { .. })
    }
}

/// Heads that stand by key and are put in turns: all first ones, then all second ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turns {
    /// Keys.
    pub keys: u64,
    /// Heads of a key.
    pub of_key: u64,
    /// Elements of a head.
    pub unit: u64,
}

impl Turns {
    /// The first element of every head, in the new order.
    pub fn firsts(self) -> impl Iterator<Item = u64> {
        let Turns { keys, of_key, unit } = self;
        (0..of_key).flat_map(move |n| (0..keys).map(move |k| (k * of_key + n) * unit))
    }
}

/// Where a tensor of the output comes from.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub slices: Slices,
    pub dtype: Dtype,
    /// Rows of the values, after unpacking.
    pub rows: u64,
    pub columns: u64,
    /// Rows of a head whose two halves are to be interleaved.
    pub pair_heads: Option<u64>,
    /// Columns that are put in turns.
    pub turns: Option<Turns>,
    pub rule: Rule,
    /// Factors of rows of the checkpoint, applied one after the other.
    pub factors: Vec<(Range<u64>, f32)>,
    /// A vector of the same length whose values are factors of these.
    pub times: Option<Box<Stored>>,
    /// Extents of 1 that the file's tensor has more.
    pub ones: usize,
    /// True if the file's tensor has no extents of 1.
    pub flat: bool,
    /// The role that decides its type in the file.
    pub role: Role,
    /// That type, where the checkpoint's decides it; values are rounded to it.
    pub ty: Option<TypeId>,
}

/// A value that cannot be used.
pub(super) enum Fault {
    NotFinite { row: u64, column: u64, value: f32 },
    Code { row: u64, column: u64 },
    Read(ConvertError),
}

impl Fault {
    /// The error that names the tensor of the checkpoint and the place in it.
    pub fn blame(self, stored: &Stored) -> ConvertError {
        match self {
            Fault::Read(e) => e,
            Fault::NotFinite { row, column, value } => {
                let (tensor, row, column) = stored.slices.origin(row, column);
                ConvertError::NotFinite { tensor: tensor.to_owned(), row, column, value }
            }
            Fault::Code { row, column } => {
                ConvertError::PackedCode { tensor: stored.slices.origin(0, 0).0.to_owned(), row, column }
            }
        }
    }
}

impl Stored {
    /// Bytes that all passes over the tensor read together.
    pub fn work(&self) -> u64 {
        self.read_bytes(self.rows) * self.passes()
    }

    /// How often the values are read: once more where scales come first.
    fn passes(&self) -> u64 {
        if self.rule.measures() { 2 } else { 1 }
    }

    /// Bytes read for `rows` rows. A packed row is read for each of its four digits.
    pub fn read_bytes(&self, rows: u64) -> u64 {
        let other = self.times.as_ref().map_or(0, |other| other.read_bytes(rows));
        rows * self.columns * self.dtype.bytes() + other
    }

    /// Consecutive rows that are converted together: whole heads where their rows change places.
    pub fn chunks(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let unit = self.pair_heads.unwrap_or(1);
        let step = (CHUNK_VALUES / self.columns.max(1)).max(1).next_multiple_of(unit);
        let rows = self.rows;
        (0..rows).step_by(step as usize).map(move |first| first..(first + step).min(rows))
    }

    /// The row of the checkpoint that becomes row `r`.
    pub fn source_row(&self, r: u64) -> u64 {
        source_row(self.pair_heads, r)
    }

    /// Reads rows as f32, unpacked but before any rule for latent weights. `raw` is scratch.
    pub fn fetch(&self, files: &Files, rows: Range<u64>, raw: &mut Vec<u8>, out: &mut Vec<f32>) -> Result<(), Fault> {
        let columns = self.columns as usize;
        out.clear();
        out.resize((rows.end - rows.start) as usize * columns, 0.0);
        if let Rule::Packed { unit } = self.rule {
            self.fetch_packed(files, rows.clone(), unit, raw, out)?;
        } else {
            let size = self.dtype.bytes() as usize;
            raw.resize(out.len() * size, 0);
            let element = (self.columns, self.dtype.bytes());
            let read = self.slices.read(files, rows.clone(), element, raw);
            read.map_err(Fault::Read)?;
            let chunk = 1 << 14;
            out.par_chunks_mut(chunk)
                .zip(raw.par_chunks(chunk * size))
                .for_each(|(out, raw)| decode(self.dtype, raw, out));
        }
        if let Some(other) = &self.times {
            let mut factors = Vec::new();
            other.fetch(files, rows.clone(), raw, &mut factors)?;
            out.iter_mut().zip(factors).for_each(|(v, factor)| *v *= factor);
        }
        match out.iter().position(|v| !v.is_finite()) {
            None => Ok(()),
            Some(i) => Err(Fault::NotFinite {
                row: rows.start + (i / columns) as u64,
                column: (i % columns) as u64,
                value: out[i],
            }),
        }
    }

    /// Bits 2i and 2i+1 of byte (j, k) hold digit + 1 of row i·⌈M/4⌉ + j, column k.
    fn fetch_packed(
        &self,
        files: &Files,
        rows: Range<u64>,
        unit: f32,
        raw: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), Fault> {
        let columns = self.columns as usize;
        let quarter = self.rows.div_ceil(4);
        let (shard, start) = self.slices.start();
        let mut row = rows.start;
        while row < rows.end {
            let (i, j) = (row / quarter, row % quarter);
            let n = (rows.end - row).min(quarter - j);
            raw.resize(n as usize * columns, 0);
            let offset = start + j * self.columns;
            files.read(shard, offset, raw).map_err(Fault::Read)?;
            let at = (row - rows.start) as usize * columns;
            let values = [-unit, 0.0, unit, f32::NAN];
            for (k, (v, byte)) in out[at..].iter_mut().zip(raw.iter()).enumerate() {
                let code = byte >> (2 * i) & 3;
                if code == 3 {
                    return Err(Fault::Code { row: row + (k / columns) as u64, column: (k % columns) as u64 });
                }
                *v = values[usize::from(code)];
            }
            row += n;
        }
        Ok(())
    }

    /// The scales of a matrix of latent weights; none for other rules. `done` is told the bytes read.
    pub fn scales(&self, files: &Files, done: &mut dyn FnMut(u64)) -> Result<Vec<f32>, Fault> {
        let (parts, by_columns) = match self.rule {
            Rule::Bitnet => (1, false),
            Rule::Trilm { parts, by_columns } => (parts, by_columns),
            _ => return Ok(Vec::new()),
        };
        let per_part = self.rows * self.columns / parts;
        let mut means: Vec<AbsMean> = (0..parts).map(|_| AbsMean::new(per_part)).collect();
        let width = if by_columns { self.columns / parts } else { self.columns };
        let (mut raw, mut values) = (Vec::new(), Vec::new());
        for rows in self.chunks() {
            self.fetch(files, rows.clone(), &mut raw, &mut values)?;
            for (row, values) in rows.clone().zip(values.chunks(self.columns as usize)) {
                if by_columns {
                    let groups = values.chunks(width as usize);
                    means.iter_mut().zip(groups).for_each(|(m, v)| m.push(v));
                } else {
                    means[(row * parts / self.rows) as usize].push(values);
                }
            }
            done(self.read_bytes(rows.end - rows.start));
        }
        let scale = |m: AbsMean| match self.rule {
            Rule::Bitnet => 1.0 / m.mean().max(1e-5),
            _ => 1e-5 + m.mean(),
        };
        Ok(means.into_iter().map(scale).collect())
    }

    /// Applies the rule to row `row` of the checkpoint, with what [`Stored::scales`] returned.
    pub fn apply(&self, row: u64, scales: &[f32], values: &mut [f32]) {
        for (_, factor) in self.factors.iter().filter(|(rows, _)| rows.contains(&row)) {
            values.iter_mut().for_each(|v| *v = self.stored_precision(*v * factor));
        }
        match self.rule {
            Rule::Plain | Rule::Packed { .. } => {}
            Rule::Plus(part) => {
                values.iter_mut().for_each(|v| *v = self.stored_precision(*v + part));
            }
            Rule::Rate => values.iter_mut().for_each(|v| *v = self.stored_precision(exp(*v))),
            Rule::Decay => values.iter_mut().for_each(|v| *v = -self.stored_precision(exp(*v))),
            Rule::Bitnet => {
                let s = scales[0];
                for v in values {
                    // + 0.0: no negative zeros
                    let digit = (*v * s).round_ties_even().clamp(-1.0, 1.0) + 0.0;
                    *v = self.stored_precision(digit / s);
                }
            }
            Rule::Trilm { parts, by_columns } => {
                let width = if by_columns { self.columns / parts } else { self.columns };
                for (i, values) in values.chunks_mut(width as usize).enumerate() {
                    let part = if by_columns { i as u64 } else { row * parts / self.rows };
                    let g = scales[part as usize];
                    for v in values {
                        *v = ((*v / g).clamp(-1.0, 1.0).round_ties_even() + 0.0) * g;
                    }
                }
            }
        }
    }

    /// Puts the columns of a row in their order.
    pub fn order(&self, row: &mut [f32]) {
        if let Some(turns) = self.turns {
            let unit = turns.unit as usize;
            let old = row.to_vec();
            let firsts = turns.firsts().map(|first| first as usize);
            for (to, first) in row.chunks_mut(unit).zip(firsts) {
                to.copy_from_slice(&old[first..first + unit]);
            }
        }
    }

    /// The reference computes in the type of an F16 checkpoint, and in f32 otherwise.
    fn stored_precision(&self, v: f32) -> f32 {
        if self.dtype == Dtype::F16 { f16::from_f32(v).to_f32() } else { v }
    }

    /// The first block of so many columns that is not all `-a`, `0`, `a` with one `a` that is an f16, as row and column;
    /// without zeros where a type has none.
    pub fn not_ternary(&self, files: &Files, block: usize, zeros: bool) -> Result<Option<(u64, u64)>, Fault> {
        self.first(files, &[], |row| {
            let wrong = row.chunks(block).position(|b| !is_ternary(b) || !zeros && b.contains(&0.0))?;
            Some(wrong * block)
        })
    }

    /// The first block that a type of scales and codes cannot hold without rounding.
    pub fn not_held(&self, files: &Files, ty: TypeId) -> Result<Option<(u64, u64)>, Fault> {
        let scales = self.scales(files, &mut |_| {})?;
        let bytes = ty.info().and_then(|t| t.row_bytes(self.columns)).unwrap_or(0);
        self.first(files, &scales, |row| exact::encode(ty, row, &mut vec![0; bytes as usize]).err())
    }

    /// The first row in which something is found, and the column.
    fn first(
        &self,
        files: &Files,
        scales: &[f32],
        find: impl Fn(&[f32]) -> Option<usize> + Sync,
    ) -> Result<Option<(u64, u64)>, Fault> {
        let (mut raw, mut values) = (Vec::new(), Vec::new());
        for rows in self.chunks() {
            self.fetch(files, rows.clone(), &mut raw, &mut values)?;
            let found = values.par_chunks_mut(self.columns as usize).enumerate().find_map_first(|(i, row)| {
                let r = rows.start + i as u64;
                self.apply(r, scales, row);
                self.order(row);
                Some((r, find(row)? as u64))
            });
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// True if a block is all `-a`, `0`, `+a` with an `a` that is an f16, so that nothing is lost.
fn is_ternary(block: &[f32]) -> bool {
    let a = block.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    f16::from_f32(a).to_f32() == a && block.iter().all(|v| *v == 0.0 || v.abs() == a)
}

/// The f32 nearest to the exponential.
fn exp(x: f32) -> f32 {
    math::exp(f64::from(x)) as f32
}

/// True if weights of this type can be read.
pub(super) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64)
}

#[cfg(test)]
mod tests {
    use super::super::slices::Slice;
    use super::*;

    fn stored(rows: u64, columns: u64, rule: Rule) -> Stored {
        let slice = Slice { tensor: "w".into(), shard: 0, offset: 0, first: 0, rows, every: 1, transposed: None };
        let slices = Slices::new(vec![slice]);
        Stored {
            slices,
            dtype: Dtype::F32,
            rows,
            columns,
            pair_heads: None,
            turns: None,
            rule,
            factors: Vec::new(),
            times: None,
            ones: 0,
            flat: false,
            role: Role::ByRows,
            ty: None,
        }
    }

    #[test]
    fn halves_of_a_head_are_interleaved() {
        let s = Stored { pair_heads: Some(6), ..stored(12, 1, Rule::Plain) };
        let order: Vec<u64> = (0..12).map(|r| s.source_row(r)).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }

    #[test]
    fn heads_of_a_key_are_put_in_turns() {
        let turns = Turns { keys: 2, of_key: 3, unit: 2 };
        assert_eq!(turns.firsts().collect::<Vec<_>>(), [0, 6, 2, 8, 4, 10]);
        let s = Stored { turns: Some(turns), ..stored(1, 12, Rule::Plain) };
        let mut row: Vec<f32> = (0..12u8).map(f32::from).collect();
        s.order(&mut row);
        assert_eq!(row, [0.0, 1.0, 6.0, 7.0, 2.0, 3.0, 8.0, 9.0, 4.0, 5.0, 10.0, 11.0]);
    }

    #[test]
    fn chunks_hold_whole_heads_and_cover_all_rows() {
        let s = Stored { pair_heads: Some(96), ..stored(96 * 40, 4096, Rule::Plain) };
        let mut next = 0;
        for c in s.chunks() {
            assert_eq!((c.start, c.start % 96), (next, 0));
            next = c.end;
        }
        assert_eq!(next, 96 * 40);
    }

    #[test]
    fn digits_round_half_to_even_and_zeros_have_no_sign() {
        let b = stored(1, 6, Rule::Bitnet);
        let mut v = [0.25, -0.25, 0.75, -0.1, 9.0, -0.76];
        b.apply(0, &[2.0], &mut v); // 0.5, -0.5, 1.5, -0.2 …
        let bits: Vec<u32> = v.iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, [0.0f32, 0.0, 0.5, 0.0, 0.5, -0.5].map(f32::to_bits));
        let t = stored(1, 4, Rule::Trilm { parts: 2, by_columns: true });
        let mut v = [0.3, -5.0, 0.3, -0.1];
        t.apply(0, &[0.5, 4.0], &mut v);
        assert_eq!(v.map(f32::to_bits), [0.5f32, -0.5, 0.0, 0.0].map(f32::to_bits));
    }

    #[test]
    fn a_block_is_ternary_only_with_one_f16_scale() {
        assert!(is_ternary(&[0.5, 0.0, -0.5]) && is_ternary(&[0.0; 4]));
        assert!(!is_ternary(&[0.5, 0.25]) && !is_ternary(&[0.1, -0.1]));
    }
}
