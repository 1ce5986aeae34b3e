//! Norms that quantize their rows themselves, where products of bytes are what reads them.

use super::calls::{ELEMENTS, Pass, int, memory};
use super::memory::{Memory, Quants, Value};
use super::operation::{NormQuantize, Operation};
use super::{Operand, ProgramError};
use crate::ptx::NORM;

/// Bits of the kernels' last argument.
const ADDS: usize = 1;
const KEEPS: usize = 2;

/// A norm as an operation that quantizes too, and the value that it writes; `None` for norms of parts of rows and layer
/// norms, for which there is no kernel.
fn open(operation: &Operation, values: &[Value], memories: &[Memory]) -> Option<(NormQuantize, usize)> {
    let (x, y, gains, eps, norm) = match *operation {
        Operation::Norm { layer: false, from, gains, parts: 1, eps, to } => (from, None, gains, eps, to),
        Operation::AddNorm { x, y, gains, eps, to } => (x, Some(y), gains, eps, to),
        _ => return None,
    };
    let whole = memories[gains].bytes == 4 * values[x].columns;
    // Whoever finds the quantizer fills in what it makes, and where.
    let open = NormQuantize { x, y, gains, eps, kept: None, quants: Quants::Halves, to: norm };
    whole.then_some((open, norm))
}

/// True if there is a kernel for norms with such quants.
fn has_kernel(quants: Quants) -> bool {
    matches!(quants, Quants::Q8K | Quants::Q8_0 | Quants::Bytes { .. })
}

/// Puts norms and the quantizers of what they give together. `kept` are values that are read behind the pass. The
/// operations before `head` are a part of the pass, and stay it.
pub(super) fn fuse(
    operations: &mut Vec<Operation>,
    head: &mut usize,
    kept: &[usize],
    values: &[Value],
    memories: &[Memory],
) {
    let reads = |operation: &Operation, value: usize| {
        let mut found = false;
        operation.values(|other| found |= other == value);
        found
    };
    let mut gone = vec![false; operations.len()];
    for at in 0..operations.len() {
        let Some((mut fused, norm)) = open(&operations[at], values, memories) else {
            continue;
        };
        let end = if at < *head { *head } else { operations.len() };
        // The quantizer may come later, behind a product of the floats; behind an operation that may change them the
        // quants are those of other rows.
        let others = (at + 1..end).filter(|&other| reads(&operations[other], norm));
        let mut others = others.skip_while(
            |&other| matches!(operations[other], Operation::Product { from, to, .. } if from == norm && to != norm),
        );
        let Some(second) = others.next() else { continue };
        match operations[second] {
            Operation::Quantize { from, quants, to } if from == norm && has_kernel(quants) => {
                (fused.quants, fused.to) = (quants, to);
            }
            _ => continue,
        }
        let is_read = kept.contains(&norm)
            || (at + 1..operations.len()).any(|other| other != second && reads(&operations[other], norm));
        // A norm where the values are would be written while other warps still read them.
        if is_read && norm == fused.x {
            continue;
        }
        fused.kept = is_read.then_some(norm);
        operations[at] = Operation::NormQuantize(fused);
        gone[second] = true;
    }
    *head -= gone[..*head].iter().filter(|&&gone| gone).count();
    let mut gone = gone.into_iter();
    operations.retain(|_| !gone.next().unwrap_or(false));
}

impl Pass<'_> {
    pub(super) fn norm_quantize(&mut self, fused: &NormQuantize) -> Result<(), ProgramError> {
        let (rows, columns) = (self.rows(fused.x), self.value(fused.x).columns);
        // Nothing is read or written of what is not there.
        let place = |value: Option<usize>| self.at(value.unwrap_or(fused.x));
        let mut operands =
            vec![self.at(fused.x), place(fused.y), memory(fused.gains), place(fused.kept), Operand::F32(fused.eps)];
        operands.extend(self.quants(fused.to)?);
        let kernel = match fused.quants {
            Quants::Q8K => "norm_q8_k",
            Quants::Q8_0 => "norm_q8_0",
            Quants::Bytes { floored } => {
                operands.push(int(floored.into()));
                "norm_bytes"
            }
            Quants::Q8KChains | Quants::Q8_1 | Quants::Planes | Quants::Halves | Quants::Brains => {
                let what = format!("norms with {:?}", fused.quants);
                return Err(ProgramError::Missing(what));
            }
        };
        let adds = if fused.y.is_some() { ADDS } else { 0 };
        let keeps = if fused.kept.is_some() { KEEPS } else { 0 };
        operands.extend([columns, rows, adds + keeps].map(int));
        self.launch((NORM, kernel), [rows.next_multiple_of(8), 1], (ELEMENTS, 0), operands)
    }
}
