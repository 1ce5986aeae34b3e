//! `--program`: a model's forward pass, operation by operation.

use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use trine::model::{LoadOptions, Weights};
use trine::program::{Line, Program};
use trine_formats::gguf::{ModelFile, PackingOptions};

use crate::provenance::Provenance;
use crate::shown;

/// The forward pass of a model, whose weights stay where they are.
///
/// # Errors
/// A model that cannot run.
pub fn load(file: &ModelFile, packing: &PackingOptions) -> Result<Weights> {
    let options = LoadOptions { repack: false, packing: packing.clone(), ..LoadOptions::default() };
    Weights::load(file, &options).context("the model has no forward pass")
}

/// Writes the program as JSON.
///
/// # Errors
/// Output that cannot be written.
pub fn write_json(program: &Program, file: &ModelFile, out: &mut dyn Write) -> Result<()> {
    let report = json!({
        "blocks": program.blocks().len(),
        "activation_bytes_per_token": program.plan().bytes(1),
        "operations": program.lines().iter().map(operation).collect::<Vec<_>>(),
    });
    let report = Provenance::of_files("rinspect.program/1", file).before(report);
    writeln!(out, "{}", shown::json(&report, true))?;
    Ok(())
}

fn operation(line: &Line) -> Value {
    let outputs = line.outputs.iter().map(|o| json!({ "name": o.name, "rows": o.rows, "columns": o.columns }));
    let matrices = line
        .matrices
        .iter()
        .map(|m| json!({ "tensor": m.tensor, "type": m.ty, "rows": m.rows, "columns": m.columns, "count": m.count }));
    json!({
        "block": line.block,
        "operation": line.operation,
        "detail": line.detail,
        "inputs": line.inputs,
        "outputs": outputs.collect::<Vec<_>>(),
        "matrices": matrices.collect::<Vec<_>>(),
    })
}

/// Writes one block as a graph in the DOT language.
///
/// # Errors
/// A block that is not there; output that cannot be written.
pub fn write_dot(program: &Program, block: usize, out: &mut dyn Write) -> Result<()> {
    let Some(graph) = program.dot(block) else {
        let last = program.blocks().len().saturating_sub(1);
        bail!("the model has blocks 0 to {last}: --dot {block} names none");
    };
    Ok(out.write_all(graph.as_bytes())?)
}

/// Writes the operations of all parts; a block that is like the one before it in a line.
///
/// # Errors
/// Output that cannot be written.
pub fn write_text(program: &Program, out: &mut dyn Write) -> io::Result<()> {
    let lines = program.lines();
    let bytes = program.plan().bytes(1) as f64 / 1e3;
    writeln!(
        out,
        "{} operations in {} blocks; at most {bytes:.1} kB of activations for each token of a pass",
        lines.len(),
        program.blocks().len()
    )?;
    let part = |range: std::ops::Range<usize>| -> Vec<[String; 4]> {
        lines[range].iter().map(|line| cells(line, "")).collect()
    };
    write_part("start", &part(program.start()), out)?;
    let mut same = Same::default();
    for (number, block) in program.blocks().iter().enumerate() {
        let cells = block_cells(&lines[block.clone()]);
        if same.cells != cells {
            same.end(out)?;
            write_part(&format!("block {number}"), &cells, out)?;
            same = Same { of: number, cells, last: number };
        } else {
            same.last = number;
        }
    }
    same.end(out)?;
    let behind = program.blocks().last().map_or(program.start().end, |block| block.end);
    write_part("end", &part(behind..lines.len()), out)
}

/// Blocks of the same operations.
#[derive(Default)]
struct Same {
    of: usize,
    cells: Vec<[String; 4]>,
    last: usize,
}

impl Same {
    fn end(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.last - self.of {
            0 => Ok(()),
            1 => writeln!(out, "\nblock {}: like block {}", self.last, self.of),
            _ => writeln!(out, "\nblocks {} to {}: like block {}", self.of + 1, self.last, self.of),
        }
    }
}

/// The lines of a block. Where it reads one value alone of those before it, its residual stream, that is `x`.
fn block_cells(lines: &[Line]) -> Vec<[String; 4]> {
    let made: Vec<&String> = lines.iter().flat_map(|line| &line.outputs).map(|output| &output.name).collect();
    let inputs = lines.iter().flat_map(|line| &line.inputs);
    let mut entering: Vec<&String> = inputs.filter(|input| !made.contains(input)).collect();
    entering.sort();
    entering.dedup();
    let stream = if let [only] = entering[..] { only } else { "" };
    lines.iter().map(|line| cells(line, stream)).collect()
}

/// Results, operation, operands, and matrices or constants of a line. Names lose the block that they are part of, and
/// `stream` is `x`.
fn cells(line: &Line, stream: &str) -> [String; 4] {
    let prefix = line.block.map(|block| format!("blk.{block}.")).unwrap_or_default();
    let short = |name: &str| shown::name(name.strip_prefix(&prefix).unwrap_or(name));
    let outputs = line.outputs.iter().map(|o| format!("{}[{}]", short(&o.name), o.columns));
    let matrices = line.matrices.iter().map(|m| {
        let count = if m.count > 1 { format!("{} x ", m.count) } else { String::new() };
        format!("{} {count}{} x {} {}", short(&m.tensor), m.rows, m.columns, m.ty)
    });
    let input = |name: &String| if name == stream { "x".to_owned() } else { short(name) };
    let constants: Vec<String> = matrices.chain(Some(line.detail.clone()).filter(|d| !d.is_empty())).collect();
    [
        outputs.collect::<Vec<_>>().join(", "),
        line.operation.replace('_', " "),
        line.inputs.iter().map(input).collect::<Vec<_>>().join(", "),
        constants.join("; "),
    ]
}

fn write_part(title: &str, cells: &[[String; 4]], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{title}")?;
    for [outputs, operation, inputs, constants] in cells {
        writeln!(out, "  {outputs} = {operation}({inputs})")?;
        if !constants.is_empty() {
            writeln!(out, "      {constants}")?;
        }
    }
    Ok(())
}
