//! The plan of a model whose matrices become widely linear.

use trine_formats::gguf::{Metadata, TensorInfo};
use trine_formats::types::TypeId;
use trine_formats::widely::{ARCHITECTURE, BaseArch, Header, OutputForm, Part, Profile, Rule, Shape};

use super::content::{Content, Contents, copied, made};
use super::error::WidelyQuantError;
use crate::arch::{Arch, Role};
use crate::quant::codec::is_quantized;
use crate::quant::metadata;
use crate::quant::plan::Draft;
use crate::quant::row::{Row, StoredTensor};
use crate::widely::{Options, described, passes};

/// Plans the widely linear form of a model.
///
/// # Errors
/// A model of another kind, or one that is quantized already.
pub(super) fn plan(draft: &Draft<'_>, options: &Options) -> Result<Contents, WidelyQuantError> {
    let meta = draft.meta;
    if Header::is_in(meta) {
        return Err(WidelyQuantError::Already);
    }
    let name = meta.get_str("general.architecture")?.unwrap_or_default();
    let refused = || WidelyQuantError::Architecture(name.to_owned());
    let base = BaseArch::of_architecture(name).ok_or_else(refused)?;
    let arch = Arch::find(name).ok_or_else(refused)?;
    let experts = meta.get_u32(&format!("{name}.expert_count"))?;
    if experts.is_some_and(|n| n > 0) {
        return Err(refused());
    }
    let wanted = |t: &TensorInfo| match described(arch, &t.name).map(|d| d.role) {
        Some(Role::ByRows | Role::ByColumns) => true,
        Some(Role::Output) => options.output == OutputForm::Widely,
        _ => false,
    };
    let matrices: Vec<&TensorInfo> = draft.sources.iter().map(|s| s.2).filter(|t| wanted(t)).collect();
    let quantized: Vec<&TensorInfo> = matrices.iter().copied().filter(|t| is_quantized(t.ty)).collect();
    if let (Some(first), false) = (quantized.first(), draft.asked.allow_requantize) {
        let (count, first, ty) = (quantized.len(), first.name.clone(), first.ty);
        return Err(WidelyQuantError::Requantize { count, first, ty });
    }
    let mut notes = Vec::new();
    let all_bf16 = matrices.iter().all(|t| t.ty == TypeId::BF16);
    let profile = options.profile.unwrap_or(match all_bf16 {
        true => Profile::ScriptBf16,
        false => Profile::F32,
    });
    let rule = Rule { stages: options.stages, scope: options.scope, profile, tie: options.tie };
    let head_dim = head_dim(meta, name)?;
    let mut rows = Vec::new();
    for &place in &draft.sources {
        let t = place.2;
        let interleaved = described(arch, &t.name).is_some_and(|d| d.rope_rows);
        let head = head_dim.filter(|_| interleaved && arch.interleaves_heads());
        let (height, width) = (t.rows() as usize, t.columns() as usize);
        match rule.shape(height, width).filter(|_| wanted(t)) {
            Some(shape) => rows.extend(coded(place, shape, head, passes(&rule))),
            None => {
                if wanted(t) {
                    let name = &t.name;
                    notes.push(format!("{name} stays dense: {height} rows and {width} columns cannot be halved"));
                }
                rows.push(copied(place, head));
            }
        }
    }
    if !rows.iter().any(|(_, content)| *content == Content::Scales) {
        return Err(WidelyQuantError::NoMatrices);
    }
    let output = output_form(&rows);
    if output != options.output {
        notes.push("the output matrix stays dense: the embeddings serve as output, or it cannot be halved".into());
    }
    let header = Header { base, rule, output };
    let mut meta = Header::rename(&metadata::of_one_file(meta), name, ARCHITECTURE);
    meta.remove("general.file_type");
    Header::complete(&mut meta);
    header.write(&mut meta);
    metadata::set(&mut meta, draft.asked.overrides);
    Ok(Contents { header, meta, rows, notes })
}

/// The form of the output matrix.
pub(super) fn output_form(rows: &[(Row, Content)]) -> OutputForm {
    let output = Part::Codes.name("output");
    match rows.iter().any(|(row, _)| row.name == output) {
        true => OutputForm::Widely,
        false => OutputForm::Dense,
    }
}

/// Elements of a head.
pub(super) fn head_dim(meta: &Metadata, arch: &str) -> Result<Option<u64>, WidelyQuantError> {
    let number = |key: &str| meta.get_u64(&format!("{arch}.{key}"));
    if let Some(n) = number("attention.key_length")? {
        return Ok(Some(n));
    }
    let (embd, heads) = (number("embedding_length")?, number("attention.head_count")?);
    Ok(embd.and_then(|embd| embd.checked_div(heads?)))
}

/// The two tensors of a matrix.
fn coded(place: StoredTensor<'_>, shape: Shape, head: Option<u64>, passes: usize) -> [(Row, Content); 2] {
    let t = place.2;
    let base = t.name.strip_suffix(".weight").unwrap_or(&t.name);
    let part = |part: Part, extents: &[u64]| (part.name(base), part.ty(), extents.to_vec());
    let (codes, scales) = (part(Part::Codes, &shape.codes_extents()), part(Part::Scale, &shape.scale_extents()));
    [
        made(place, codes, t.bytes * passes as u64, Content::Codes { shape, head }),
        made(place, scales, 0, Content::Scales),
    ]
}
