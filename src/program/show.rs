//! Programs as text, as data for other programs, and as graphs.

use std::fmt::Write;

use super::forward::Program;
use super::op::Op;
use super::operation::Operation;
use super::value::{RowCount, Value};
use crate::ops::attention::Reach;
use crate::ops::norm::Kind;

/// One operation as people read it.
#[derive(Clone, Debug)]
pub struct Line {
    /// The block that it is part of, in the order in which blocks run; `None` before the first and behind the last.
    pub block: Option<usize>,
    /// Its name.
    pub operation: &'static str,
    /// Its constants, in words; empty where it has none.
    pub detail: String,
    /// Names of the values that it reads.
    pub inputs: Vec<String>,
    /// Values that it makes.
    pub outputs: Vec<Output>,
    /// Matrices that it multiplies by or takes rows of.
    pub matrices: Vec<Matrix>,
}

/// A value that an operation makes.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its rows: `tokens`, `wanted` or `experts`.
    pub rows: &'static str,
    /// Numbers of a row.
    pub columns: usize,
}

/// Matrices of one tensor.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// The tensor in the model's file.
    pub tensor: String,
    /// Its type.
    pub ty: String,
    /// Outputs of each.
    pub rows: usize,
    /// Inputs of each.
    pub columns: usize,
    /// How many there are: one for each expert or head.
    pub count: usize,
}

impl Program {
    /// The operations as people read them, in order.
    pub fn lines(&self) -> Vec<Line> {
        let names = self.unique_names();
        let operations = self.operations().iter().enumerate();
        operations.map(|(at, operation)| self.line(at, operation, &names)).collect()
    }

    /// The block of operation number `at`.
    fn block_of(&self, at: usize) -> Option<usize> {
        self.blocks().iter().position(|block| block.contains(&at))
    }

    /// A name for every value: its own, with a number where others have the same.
    fn unique_names(&self) -> Vec<String> {
        let mut seen = std::collections::HashMap::new();
        let mut names = vec![String::new(); self.values()];
        for output in self.operations().iter().flat_map(|operation| &operation.outputs) {
            let name = &self.shape(*output).name;
            let count = seen.entry(name).or_insert(0usize);
            *count += 1;
            names[output.0] = if *count > 1 { format!("{name}.{count}") } else { name.clone() };
        }
        names
    }

    fn line(&self, at: usize, operation: &Operation, names: &[String]) -> Line {
        let output = |value: &Value| {
            let shape = self.shape(*value);
            let rows = match shape.rows {
                RowCount::Tokens => "tokens",
                RowCount::Wanted => "wanted",
                RowCount::Experts(_) => "experts",
            };
            Output { name: names[value.0].clone(), rows, columns: shape.columns }
        };
        let mut matrices: Vec<Matrix> = Vec::new();
        // Matrices of one stack are one entry, parts of a fused tensor are not.
        let mut stack = None;
        operation.op.matrices(|id| {
            let info = self.matrix(id);
            let same = stack.replace((&info.tensor, info.first_row)) == Some((&info.tensor, info.first_row));
            match matrices.last_mut() {
                Some(last) if same => last.count += 1,
                _ => matrices.push(Matrix {
                    tensor: info.tensor.clone(),
                    ty: info.ty.to_string(),
                    rows: info.rows,
                    columns: info.columns,
                    count: 1,
                }),
            }
        });
        Line {
            block: self.block_of(at),
            operation: operation.op.name(),
            detail: detail(&operation.op),
            inputs: operation.inputs.iter().map(|value| names[value.0].clone()).collect(),
            outputs: operation.outputs.iter().map(output).collect(),
            matrices,
        }
    }

    /// One block as a graph in the DOT language: operations, and the values between them.
    ///
    /// `None` where there is no such block.
    pub fn dot(&self, block: usize) -> Option<String> {
        let range = self.blocks().get(block)?.clone();
        let lines = self.lines();
        let mut text = format!("digraph \"block {block}\" {{\n  node [shape=box, fontname=\"sans-serif\"];\n");
        let mut made = vec![None; self.values()];
        for at in range {
            let line = &lines[at];
            let mut label = line.operation.replace('_', " ");
            for matrix in &line.matrices {
                let _ = write!(label, "\\n{} {}", matrix.tensor, matrix.ty);
            }
            let _ = writeln!(text, "  o{at} [label=\"{label}\"];");
            for (input, name) in self.operations()[at].inputs.iter().zip(&line.inputs) {
                match made[input.0] {
                    Some(from) => {
                        let columns = self.shape(*input).columns;
                        let _ = writeln!(text, "  o{from} -> o{at} [label=\"{columns}\"];");
                    }
                    None => {
                        let _ = writeln!(text, "  \"{name}\" [shape=plaintext];\n  \"{name}\" -> o{at};");
                    }
                }
            }
            self.operations()[at].outputs.iter().for_each(|output| made[output.0] = Some(at));
        }
        text.push_str("}\n");
        Some(text)
    }
}

/// The constants of an operation, in words.
fn detail(op: &Op) -> String {
    match op {
        Op::Norm(norm) | Op::AddNorm(norm) => {
            let kind = match norm.kind {
                Kind::Rms => "rms",
                Kind::Layer => "layer",
            };
            format!("{kind}, rows of {}, epsilon {:e}", norm.row, norm.eps)
        }
        Op::Scale(factor) => format!("times {factor}"),
        Op::Clamp(bound) => format!("within {bound} of 0"),
        Op::SoftCap(cap) => format!("cap {cap}"),
        Op::Activate(f) | Op::Gate(f) | Op::GatedProducts(_, f) => format!("{f:?}"),
        Op::HeadGate(f) => format!("{f:?}"),
        Op::Split(widths) | Op::Join(widths) => format!("widths {widths:?}"),
        Op::Repeat { width, times } => format!("every {width} elements {times} times"),
        Op::Rotate(kind, head) => format!("{kind:?}, heads of {head}"),
        Op::Attend(attend) => {
            let (heads, scale) = (attend.heads, attend.scale);
            let mut text = format!("{} heads, {} of keys and values, scores times {scale}", heads.queries, heads.keys);
            if let Some(window) = attend.window {
                let _ = write!(text, ", window {}", window.size);
            }
            if attend.stored {
                let _ = write!(text, ", of cache layer {}", attend.cache);
            }
            match attend.reach {
                _ if attend.both_ways => text.push_str(", in both directions"),
                Reach::Own => {}
                Reach::Pass => text.push_str(", to all of the pass"),
                Reach::Before => text.push_str(", to what is before the pass"),
            }
            text
        }
        Op::Store(cache) => format!("cache layer {cache}"),
        Op::AttendSource(attend) => {
            let (heads, scale) = (attend.heads, attend.scale);
            format!("{} heads, {} of keys and values, scores times {scale}", heads.queries, heads.keys)
        }
        Op::Convolve(_, state) | Op::Delta(_, state) | Op::Scan(_, state) | Op::Lightning(_, state) => {
            format!("state of {}", state.len())
        }
        Op::Compress(rule, state) => format!("a key for {} positions, state of {}", rule.ratio, state.len()),
        Op::Choose(choosing) => format!("{} of {} experts, {:?}", choosing.used, choosing.experts, choosing.gating),
        Op::WriteStreams { count, .. } => format!("{count} streams"),
        Op::ReadStreams(streams) => format!("{} streams", streams.count),
        _ => String::new(),
    }
}
