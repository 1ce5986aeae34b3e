//! The losses of a few rows of a tensor in types, rounded with error feedback.

use rayon::prelude::*;
use trine_formats::hessian::Reads;
use trine_formats::types::TypeId;

use super::experts::{InputSums, Inputs};
use super::factor::Factor;
use super::fault::HessianFault;
use super::feedback::{factor, side_by_side, takes};
use super::options::Gptq;
use super::tensor::round;
use crate::kernels::{self, Isa};
use crate::linalg::triangle;
use crate::quant::codec::bytes_of;
use crate::quant::plan::Fault;
use crate::quant::row::Row;

/// An input, and what rounding the matrices that read it needs; of stacked matrices the first.
pub struct Sample<'a> {
    gptq: &'a Gptq,
    input: InputSums,
    columns: usize,
    isa: Isa,
    /// Factors by how many columns are chosen together.
    factors: Vec<(usize, Factor)>,
}

impl<'a> Sample<'a> {
    /// The inputs that a row reads, where it is rounded with error feedback.
    pub fn reads(gptq: &Gptq, row: &Row) -> Option<Reads> {
        gptq.hessians.header().weights.get(&row.source.name).copied().filter(|_| row.method == super::NAME)
    }

    /// Reads an input.
    ///
    /// # Errors
    /// Hessians that are measured while matrices are rounded; a file that became shorter; experts none of which saw a
    /// token.
    pub fn new(gptq: &'a Gptq, reads: Reads, isa: Isa) -> Result<Sample<'a>, HessianFault> {
        let columns = gptq.hessians.header().inputs[reads.first].columns as usize;
        let source = (gptq.hessians.file()?, reads);
        let input = Inputs::new(&source, reads, columns)?.of(0)?;
        Ok(Sample { gptq, input, columns, isa, factors: Vec::new() })
    }

    /// Factors the input for types, on the current rayon pool.
    ///
    /// # Errors
    /// Sums that no text can have.
    fn factor_for(&mut self, types: &[TypeId]) -> Result<(), HessianFault> {
        for together in types.iter().filter(|ty| takes(**ty)).map(|&ty| side_by_side(ty)) {
            if !self.factors.iter().any(|(of, _)| *of == together) {
                let (options, sums) = (self.gptq.options.together(together), (&self.input.sums[..], self.input.tokens));
                self.factors.push((together, factor(sums, self.columns, &options, together, self.isa)?));
            }
        }
        Ok(())
    }

    /// For each type the squared error of products relative to them, `sum r H r^T / sum w H w^T` over the rows `data` with
    /// weights `w` and `r` what they err by; zero for the type that they have. In parallel.
    ///
    /// # Errors
    /// Sums that no text can have; values that are not finite.
    pub fn losses(&mut self, row: &Row, types: &[TypeId], data: &[u8]) -> Result<Vec<f64>, Fault> {
        self.factor_for(types)?;
        let sample: &Sample<'_> = self;
        let (weights, rows) = sample.decoded(row.from, data);
        let energy = sample.cost(&weights, None);
        let loss = |&ty: &TypeId| {
            let factor = sample.factors.iter().find(|(of, _)| *of == side_by_side(ty) && takes(ty));
            let rounded = match factor {
                _ if ty == row.from => data.to_vec(),
                Some((together, factor)) => {
                    let shape = vec![sample.columns as u64, rows];
                    let bytes = (data.len() as u64, bytes_of(ty, &shape));
                    let to = Row { to: ty, bytes_from: bytes.0, bytes: bytes.1, shape, ..row.clone() };
                    let options = sample.gptq.options.together(*together);
                    round(&to, 0, data, factor, &options, sample.isa).map_err(|fault| fault.of(row))?
                }
                None => sample.encoded(ty, &weights),
            };
            let (back, _) = sample.decoded(ty, &rounded);
            Ok(if energy > 0.0 { sample.cost(&weights, Some(&back)) / energy } else { 0.0 })
        };
        types.par_iter().map(loss).collect()
    }

    /// The weights of whole rows, and how many rows they are.
    fn decoded(&self, ty: TypeId, data: &[u8]) -> (Vec<f32>, u64) {
        let bytes = bytes_of(ty, &[self.columns as u64]).max(1) as usize;
        let mut weights = vec![0f32; data.len() / bytes * self.columns];
        if let Some(decode) = kernels::decode_rows(ty, self.isa) {
            let rows = data.chunks_exact(bytes).zip(weights.chunks_exact_mut(self.columns));
            rows.for_each(|(data, weights)| decode(data, weights));
        }
        (weights, (data.len() / bytes) as u64)
    }

    /// Rows in a type that takes no feedback.
    fn encoded(&self, ty: TypeId, weights: &[f32]) -> Vec<u8> {
        let bytes = bytes_of(ty, &[self.columns as u64]).max(1) as usize;
        let mut data = vec![0; weights.len() / self.columns * bytes];
        if let Some(encode) = kernels::encode_rows(ty, self.isa) {
            let rows = weights.chunks_exact(self.columns).zip(data.chunks_exact_mut(bytes));
            rows.for_each(|(weights, data)| encode(weights, None, data));
        }
        data
    }

    /// `sum r H r^T` over rows `a - b`.
    fn cost(&self, a: &[f32], b: Option<&[f32]>) -> f64 {
        let mut sum = 0.0;
        let mut off = vec![0f64; self.columns];
        for (r, a) in a.chunks_exact(self.columns).enumerate() {
            for (j, off) in off.iter_mut().enumerate() {
                *off = f64::from(a[j]) - b.map_or(0.0, |b| f64::from(b[r * self.columns + j]));
            }
            for i in 0..self.columns {
                let row = &self.input.sums[triangle(i)..][..=i];
                let below: f64 = row[..i].iter().zip(&off).map(|(h, off)| h * off).sum();
                sum += off[i] * (2.0 * below + row[i] * off[i]);
            }
        }
        sum
    }
}
