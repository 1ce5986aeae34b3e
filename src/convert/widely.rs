//! Checkpoints whose matrices become widely linear.

use std::ops::Range;

use trine_formats::gguf::Metadata;
use trine_formats::gguf::write::Writer;
use trine_formats::safetensors::Dtype;
use trine_formats::widely::{ARCHITECTURE, BaseArch, Header, OutputForm, Part, Profile, Rule, Shape};

use super::error::ConvertError;
use super::folder::Files;
use super::row::{Content, Row};
use super::values::{Rule as ValueRule, Stored};
use crate::arch::{Arch, Role};
use crate::widely::{Masters, Options, described, encode, passes};

/// Replaces matrices by codes and scales; returns the values of the keys.
pub(super) fn replace(
    rows: &mut Vec<Row>,
    arch: &Arch,
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<Header, ConvertError> {
    let base = BaseArch::of_architecture(arch.name).ok_or_else(|| {
        ConvertError::Config(format!(
            "models of architecture '{}' cannot be made widely linear: llama, qwen2 and qwen3 can",
            arch.name
        ))
    })?;
    let wanted = |row: &Row| match described(arch, &row.name).map(|d| d.role) {
        Some(Role::ByRows | Role::ByColumns) => true,
        Some(Role::Output) => options.output == OutputForm::Widely,
        _ => false,
    };
    let is_bf16 = |row: &Row| matches!(&row.content, Content::Stored(s) if s.dtype == Dtype::BF16);
    let all_bf16 = rows.iter().filter(|r| wanted(r)).all(is_bf16);
    let profile = options.profile.unwrap_or(match all_bf16 {
        true => Profile::ScriptBf16,
        false => Profile::F32,
    });
    let rule = Rule { stages: options.stages, scope: options.scope, profile, tie: options.tie };
    let mut out = Vec::with_capacity(2 * rows.len());
    for row in rows.drain(..) {
        let Content::Stored(stored) = &row.content else {
            out.push(row);
            continue;
        };
        if !wanted(&row) || stored.rule != ValueRule::Plain {
            out.push(row);
            continue;
        }
        match rule.shape(stored.rows as usize, stored.columns as usize) {
            Some(shape) => out.extend(parts(&row, stored, rule, shape)),
            None => {
                notes.push(format!(
                    "{} stays dense: {} rows and {} columns cannot be halved",
                    row.name, stored.rows, stored.columns
                ));
                out.push(row);
            }
        }
    }
    *rows = out;
    let codes = Part::Codes.name("output");
    let output = match rows.iter().any(|r| r.name == codes) {
        true => OutputForm::Widely,
        false => OutputForm::Dense,
    };
    notes.push(format!(
        "matrices are made widely linear: {} stage(s), scales of each {}, profile {}, ties by {}, output matrix {}",
        rule.stages,
        rule.scope.name(),
        rule.profile.name(),
        rule.tie.name(),
        output.name(),
    ));
    Ok(Header { base, rule, output })
}

/// The two tensors of a matrix.
fn parts(row: &Row, stored: &Stored, rule: Rule, shape: Shape) -> [Row; 2] {
    let base = row.name.strip_suffix(".weight").unwrap_or(&row.name);
    let part = |part: Part, extents: &[u64], content| Row {
        name: part.name(base),
        source: row.source.clone(),
        from: row.from,
        shape: extents.to_vec(),
        ty: part.ty(),
        content,
    };
    let codes = Content::Codes { stored: stored.clone(), rule, shape };
    [part(Part::Codes, &shape.codes_extents(), codes), part(Part::Scale, &shape.scale_extents(), Content::Scales)]
}

/// The keys of the file.
pub(super) fn metadata(meta: &Metadata, arch: &Arch, header: &Header) -> Metadata {
    let mut meta = Header::rename(meta, arch.name, ARCHITECTURE);
    meta.remove("general.file_type");
    Header::complete(&mut meta);
    header.write(&mut meta);
    meta
}

/// Bytes of the checkpoint that are read for a matrix.
pub(super) fn work(stored: &Stored, rule: &Rule) -> u64 {
    stored.read_bytes(stored.rows) * passes(rule) as u64
}

/// Rows of a checkpoint.
struct Rows<'a> {
    stored: &'a Stored,
    files: &'a Files,
    raw: Vec<u8>,
}

impl Masters for Rows<'_> {
    type Error = ConvertError;

    fn read(&mut self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), ConvertError> {
        let rows = rows.start as u64..rows.end as u64;
        let fetched = self.stored.fetch(self.files, rows, &mut self.raw, out);
        fetched.map_err(|fault| fault.blame(self.stored))
    }
}

/// Writes the words of a matrix and returns its scales; `done` is told the bytes that were read.
pub(super) fn write(
    (stored, rule, shape): (&Stored, &Rule, &Shape),
    files: &Files,
    writer: &mut Writer,
    done: &mut dyn FnMut(u64),
) -> Result<Vec<f32>, ConvertError> {
    let mut rows = Rows { stored, files, raw: Vec::new() };
    let sink = &mut |words: &[u8]| Ok(writer.write(words)?);
    let done = &mut |rows| done(stored.read_bytes(rows as u64));
    encode(rule, shape, &mut rows, sink, done)
}
