//! Norms and gates that quantize their rows themselves, where products of bytes or of halves are what reads them.

use super::calls::{ELEMENTS, Pass, int, memory};
use super::memory::{Memory, Quants, Value};
use super::operation::{Gate, GateQuantize, NormQuantize, Operation};
use super::{Operand, ProgramError};
use crate::ptx::{GATE, NORM};

/// Bits of the last argument of norms.
const ADDS: usize = 1;
const KEEPS: usize = 2;
const FLOORED: usize = 4;
/// Bits of the functions of gates.
const ALONE: usize = 4;
const FLOORED_GATE: usize = 8;

/// An operation that quantizes too, all but what it makes and where, and the value that it writes as floats without the
/// quantizer.
#[derive(Clone, Copy)]
enum Open {
    Norm(NormQuantize, usize),
    Gate(GateQuantize),
}

impl Open {
    /// `None` for operations for which there is no kernel: norms of parts of rows, layer norms, gates of few models.
    fn new(operation: &Operation, values: &[Value], memories: &[Memory]) -> Option<Open> {
        // Whoever finds the quantizer fills these in.
        let (quants, to) = (Quants::Halves, usize::MAX);
        let gate = |function, gate, up, table| Open::Gate(GateQuantize { function, gate, up, table, quants, to });
        let (x, y, gains, eps, norm) = match *operation {
            Operation::Norm { layer: false, from, gains, parts: 1, eps, to } => (from, None, gains, eps, to),
            Operation::AddNorm { x, y, gains, eps, to } => (x, Some(y), gains, eps, to),
            Operation::Gate { function, gate: x, up } => return Some(gate(Some(function), x, up, None)),
            Operation::Gelu { table, gate: x, up } => return Some(gate(None, x, up, Some(table))),
            _ => return None,
        };
        let whole = memories[gains].bytes == 4 * values[x].columns;
        whole.then_some(Open::Norm(NormQuantize { x, y, gains, eps, kept: None, quants, to }, norm))
    }

    /// The value that is quantized.
    fn value(&self) -> usize {
        match self {
            Open::Norm(_, norm) => *norm,
            Open::Gate(gate) => gate.gate,
        }
    }

    /// The operation with its quantizer; `None` where the floats are read too and it cannot write them.
    fn closed(self, quants: Quants, to: usize, is_read: bool) -> Option<Operation> {
        match self {
            // A norm where the values are would be written while other warps still read them.
            Open::Norm(norm, value) if !is_read || value != norm.x => {
                let kept = is_read.then_some(value);
                Some(Operation::NormQuantize(NormQuantize { quants, to, kept, ..norm }))
            }
            Open::Gate(gate) if !is_read => Some(Operation::GateQuantize(GateQuantize { quants, to, ..gate })),
            _ => None,
        }
    }
}

/// Puts norms, gates and the quantizers of what they give together. `kept` are values that are read behind the pass. The
/// operations before `head` are a part of the pass, and stay it. Where devices share rows (`is_shared`) each gates its own
/// before the exchange, and gates stay as they are.
pub(super) fn fuse(
    is_shared: bool,
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
        let Some(open) = Open::new(&operations[at], values, memories) else {
            continue;
        };
        if is_shared && matches!(open, Open::Gate(_)) {
            continue;
        }
        let value = open.value();
        let end = if at < *head { *head } else { operations.len() };
        // The quantizer may come later, behind a product of the floats; behind an operation that may change them the
        // quants are those of other rows.
        let others = (at + 1..end).filter(|&other| reads(&operations[other], value));
        let mut others = others.skip_while(
            |&other| matches!(operations[other], Operation::Product { from, to, .. } if from == value && to != value),
        );
        let Some(second) = others.next() else { continue };
        let (quants, to) = match operations[second] {
            Operation::Quantize { from, quants, to } if from == value && quants != Quants::Planes => (quants, to),
            _ => continue,
        };
        let is_read = kept.contains(&value)
            || (at + 1..operations.len()).any(|other| other != second && reads(&operations[other], value));
        if let Some(fused) = open.closed(quants, to, is_read) {
            operations[at] = fused;
            gone[second] = true;
        }
    }
    *head -= gone[..*head].iter().filter(|&&gone| gone).count();
    let mut gone = gone.into_iter();
    operations.retain(|_| !gone.next().unwrap_or(false));
}

impl Pass<'_> {
    /// Quants, scales and sums of a value; of halves the first of them thrice.
    fn parts(&self, quants: Quants, to: usize) -> Result<[Operand; 3], ProgramError> {
        match quants {
            Quants::Halves | Quants::Brains => Ok([self.at(to); 3]),
            _ => self.quants(to),
        }
    }

    pub(super) fn norm_quantize(&mut self, fused: &NormQuantize) -> Result<(), ProgramError> {
        let (rows, columns) = (self.rows(fused.x), self.value(fused.x).columns);
        // Nothing is read or written of what is not there.
        let place = |value: Option<usize>| self.at(value.unwrap_or(fused.x));
        let mut operands =
            vec![self.at(fused.x), place(fused.y), memory(fused.gains), place(fused.kept), Operand::F32(fused.eps)];
        operands.extend(self.parts(fused.quants, fused.to)?);
        let adds = if fused.y.is_some() { ADDS } else { 0 };
        let keeps = if fused.kept.is_some() { KEEPS } else { 0 };
        let floored = if fused.quants == (Quants::Bytes { floored: true }) { FLOORED } else { 0 };
        operands.extend([columns, rows, adds + keeps + floored].map(int));
        let kernel = format!("norm_{}", name(fused.quants)?);
        let (blocks, _) = Pass::quantizer(fused.quants, [rows, columns]);
        self.launch((NORM, &kernel), [blocks[1], 1], (ELEMENTS, 0), operands)
    }

    pub(super) fn gate_quantize(&mut self, fused: &GateQuantize) -> Result<(), ProgramError> {
        let (rows, columns) = (self.rows(fused.gate), self.value(fused.gate).columns);
        let gate = self.at(fused.gate);
        let table = fused.table.map_or(gate, memory);
        let mut operands = vec![gate, fused.up.map_or(gate, |up| self.at(up)), table];
        operands.extend(self.parts(fused.quants, fused.to)?);
        let function = match fused.function {
            Some(Gate::Silu) => 0,
            Some(Gate::Relu) => 1,
            Some(Gate::SquaredRelu) => 2,
            None => 3,
        };
        let alone = if fused.up.is_none() { ALONE } else { 0 };
        let floored = if fused.quants == (Quants::Bytes { floored: true }) { FLOORED_GATE } else { 0 };
        operands.extend([function + alone + floored, columns, rows].map(int));
        let kernel = format!("gate_{}", name(fused.quants)?);
        let (blocks, threads) = Pass::quantizer(fused.quants, [rows, columns]);
        self.launch((GATE, &kernel), blocks, (threads, 0), operands)
    }
}

/// The end of the names of kernels that make such quants.
fn name(quants: Quants) -> Result<&'static str, ProgramError> {
    Ok(match quants {
        Quants::Q8K => "q8_k",
        Quants::Q8KChains => "q8_k_chains",
        Quants::Q8_0 => "q8_0",
        Quants::Q8_1 => "q8_1",
        Quants::Bytes { .. } => "bytes",
        Quants::Halves => "halves",
        Quants::Brains => "brains",
        Quants::Planes => return Err(ProgramError::Missing("quants of planes behind a norm or a gate".to_owned())),
    })
}
