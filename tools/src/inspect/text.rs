//! The report for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use trine::arch::{Arch, Missing};
use trine::sample::Recommended;
use trine::{SamplerKind, SamplerOption};
use trine_formats::gguf::{Dialect, Value, type_note};

use super::heads::heads;
use super::{Reach, Report, TensorReport, Total, line};
use crate::shown;
use crate::table::{self, Cell, Form};

/// Parts of the text beside metadata and totals.
#[derive(Clone, Copy, Default)]
pub struct TextOptions {
    /// The tensor table.
    pub tensors: bool,
    /// A column of hashes in it.
    pub hash: bool,
}

/// Longest text and most array elements of a metadata value that are shown.
const MAX_CHARS: usize = 72;
const MAX_ELEMENTS: usize = 6;

/// Writes the report.
///
/// # Errors
/// Those of `out`.
pub fn write_text(report: &Report<'_>, options: TextOptions, out: &mut dyn Write) -> io::Result<()> {
    for shard in report.model.shards() {
        let g = &shard.gguf;
        let size = megabytes((*shard.bytes).as_ref().len() as u64);
        let path = shard.path.display();
        line(out, &format!("{path}: GGUF version {}, {size}, alignment {}", g.version, g.alignment))?;
        if g.dialect != Dialect::Ggml {
            line(out, &format!("  {}", g.dialect.describe()))?;
        }
    }
    metadata(report, out)?;
    architecture(report, out)?;
    if let Some(heads) = heads(report.model) {
        line(out, &heads)?;
    }
    recommended(report, out)?;
    rotated(report, out)?;
    if options.tensors {
        tensor_table(report, options, out)?;
    }
    totals(report, out)?;
    if let Ok(Some(any_precision)) = &report.any_precision {
        any_precision.write(out)?;
    }
    if let Ok(Some(widely)) = &report.widely {
        widely.write(out)?;
    }
    ternary(report, out)?;
    if report.sound && report.damage().next().is_none() {
        line(out, "\nchecked: all floats and scales are numbers")?;
    }
    Ok(())
}

/// The line that says which parts of this architecture trine runs, if any.
fn architecture(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Ok(Some(name)) = report.model.meta().get_str("general.architecture") else {
        return Ok(());
    };
    let state = match (Arch::find(name), Missing::find(name)) {
        (Some(arch), _) => {
            let converted = if arch.checkpoints.is_empty() { "" } else { ", rconvert reads its checkpoints" };
            format!(" {}: trine runs it ({}){converted}", arch.name, arch.models)
        }
        (None, Some(missing)) => {
            let Missing { name, what } = missing;
            format!(" {name}: trine does not run it yet, it needs {what}")
        }
        (None, None) => ": trine does not know it".to_owned(),
    };
    line(out, &format!("\narchitecture{state}"))
}

/// The line of the sampler's options that the file recommends, if any.
fn recommended(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Recommended { steps, values } = Recommended::of(report.model.meta());
    let numbers = values.iter().filter_map(|(field, value)| {
        let option = SamplerOption::by_field(field)?;
        Some(format!("{field} {}", option.range.show(*value)))
    });
    let steps = steps.map(|steps| {
        let names: Vec<&str> = steps.into_iter().map(SamplerKind::name).collect();
        format!("samplers {}", names.join(";"))
    });
    let all: Vec<String> = steps.into_iter().chain(numbers).collect();
    match all.is_empty() {
        true => Ok(()),
        false => line(out, &format!("sampling where nothing else is asked for: {}", all.join(", "))),
    }
}

/// The line that says how matrices are rotated, if any are.
fn rotated(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let meta = report.model.meta();
    let of = |key: &str| meta.get(&format!("prism.hadamard.{key}"));
    let (Some(version), Some(block)) = (of("version"), of("block_size")) else {
        return Ok(());
    };
    let explicit = meta.get_str("prism.hadamard.sign_mode") == Ok(Some("explicit"));
    let signs = if explicit { "with signs" } else { "without signs" };
    let count = |key: &str| match of(key) {
        Some(Value::Array(names)) => names.len(),
        _ => 0,
    };
    let tied = matches!(of("tied_output"), Some(Value::Bool(true)));
    let table = match (count("inverse_weight_names"), tied) {
        (0, _) => "",
        (_, false) => ", and the embeddings",
        (_, true) => ", and the embeddings, which are the output matrix too",
    };
    let (version, block, names) = (described(version), described(block), count("weight_names"));
    line(out, &format!("rotated (version {version}): {names} matrices in blocks of {block} {signs}{table}"))
}

fn metadata(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let meta = report.model.meta();
    line(out, &format!("\nmetadata: {} keys", meta.len()))?;
    let columns = table::columns();
    let key_width = meta.iter().map(|(k, _)| k.chars().count()).max().unwrap_or(0).min(48);
    let type_width = meta.iter().map(|(_, v)| type_name(v).len()).max().unwrap_or(0);
    for (key, value) in meta.iter() {
        let key = shown::name(key);
        let (key, value) = (format!("  {key:key_width$}  {:type_width$}", type_name(value)), described(value));
        // A value that has no room behind its key has the next line.
        match key.chars().count() + 2 + value.chars().count() <= columns {
            true => line(out, &format!("{key}  {value}"))?,
            false => line(out, &format!("{key}\n    {value}"))?,
        }
    }
    Ok(())
}

/// The type of a value, of an array with its length.
pub(super) fn type_name(value: &Value) -> String {
    match value {
        Value::Array(a) => format!("{}[{}]", value.type_name().trim_start_matches("array of "), a.len()),
        _ => value.type_name().to_owned(),
    }
}

/// A value, the beginning of it where it is long.
pub(super) fn described(value: &Value) -> String {
    match value {
        Value::U8(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::F32(v) => format!("{v:?}"),
        Value::F64(v) => format!("{v:?}"),
        Value::Bool(v) => v.to_string(),
        Value::Str(s) => {
            let text = s.lossy();
            let head: String = text.chars().take(MAX_CHARS).collect();
            let more = if head.len() < text.len() { "…" } else { "" };
            format!("\"{}\"{more}", shown::escape(&head))
        }
        Value::Array(a) => {
            let mut shown = 0;
            let mut text = String::new();
            for element in (0..MAX_ELEMENTS).filter_map(|i| a.value(i)) {
                let element = described(&element);
                if shown > 0 && text.chars().count() + element.chars().count() > MAX_CHARS {
                    break;
                }
                text += if shown > 0 { ", " } else { "" };
                text += &element;
                shown += 1;
            }
            if a.len() > shown { text + ", …" } else { text }
        }
    }
}

fn tensor_table(report: &Report<'_>, options: TextOptions, out: &mut dyn Write) -> io::Result<()> {
    line(out, &format!("\ntensors: {}", report.tensors.len()))?;
    let rows = report.tensors.iter().map(|t| {
        let mut row = cells(t);
        if options.hash {
            row.push(Cell::left("sha256", 64, t.sha256.clone().unwrap_or_default()).below());
        }
        row
    });
    table::write(Form::Spaces(2), rows.collect(), out)
}

fn cells(t: &TensorReport) -> Vec<Cell> {
    let mut one = Total::default();
    one.add(&t.info);
    let shape: Vec<String> = t.info.shape.iter().map(u64::to_string).collect();
    let ternary = match t.ternary {
        _ if t.damage.is_some() => "damaged".to_owned(),
        None => String::new(),
        Some(None) => "no".to_owned(),
        Some(Some(ternary)) => ternary.reach.to_string(),
    };
    vec![
        Cell::left("name", 4, shown::name(&t.info.name)).key().cut_to(20),
        Cell::left("shape", 5, shape.join(" x ")),
        Cell::left("type", 4, t.info.ty.to_string()),
        Cell::right("bytes", 5, t.info.bytes.to_string()),
        Cell::right("offset", 6, t.file_offset.to_string()).wide_only(),
        Cell::right("bits", 4, format!("{:.4}", one.bits_per_weight())),
        Cell::left("ternary by", 10, ternary),
    ]
}

fn totals(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let total = &report.total;
    line(
        out,
        &format!(
            "\ntotal: {} tensors, {} weights, {}, {:.4} bits per weight",
            total.tensors,
            total.weights,
            megabytes(total.bytes),
            total.bits_per_weight()
        ),
    )?;
    let rows = report.types.iter().map(|(ty, t)| {
        vec![
            Cell::left("type", 4, ty.to_string()).key(),
            Cell::right("tensors", 7, t.tensors.to_string()),
            Cell::right("weights", 7, t.weights.to_string()),
            Cell::right("bytes", 5, t.bytes.to_string()),
            Cell::right("bits", 4, format!("{:.4}", t.bits_per_weight())),
        ]
    });
    table::write(Form::Spaces(2), rows.collect(), out)?;
    for ty in report.types.keys() {
        if let Some(note) = type_note(*ty) {
            line(out, &format!("  note: {ty} is {note}; its size is taken from the offsets"))?;
        }
    }
    Ok(())
}

fn ternary(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let judged: Vec<_> = report.tensors.iter().filter_map(|t| t.ternary).collect();
    let ternary: Vec<_> = judged.iter().flatten().collect();
    if judged.is_empty() {
        return Ok(());
    }
    let mut by_reach: BTreeMap<Reach, usize> = BTreeMap::new();
    ternary.iter().for_each(|t| *by_reach.entry(t.reach).or_default() += 1);
    let parts: Vec<String> = by_reach.iter().map(|(reach, n)| format!("{n} with a scale per {reach}")).collect();
    let detail = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    line(out, &format!("\nternary: {} of {} matrices{detail}", ternary.len(), judged.len()))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
