//! Synthetic models with widely linear matrices.

use trine::arch::Role;
use trine_formats::gguf::Metadata;
use trine_formats::gguf::write::NewTensor;
use trine_formats::types::TypeId;
use trine_formats::widely::{self, BaseArch, Header, OutputForm, Profile, Rule, Scope, TieRule};

use super::content::{Content, Part};
use super::data;
use super::shape::Shape;

/// The stages that a TYPE asks for.
pub fn stages(ty: &str) -> Result<usize, String> {
    let digits = ty.strip_prefix(['W', 'w']);
    let stages = digits.and_then(|n| n.parse().ok()).filter(|n| (1..=4).contains(n));
    stages.ok_or_else(|| format!("'{ty}' is no number of stages; write fairy2i:7b:W2 for two, W1 to W4 are known"))
}

/// Keys and tensors of a model whose matrices all have `stages` stages.
pub(super) fn plan(shape: &Shape, stages: usize) -> (Metadata, Vec<(NewTensor, Content)>) {
    let rule = Rule { stages, scope: Scope::Tensor, profile: Profile::F32, tie: TieRule::Phase };
    let header = Header { base: BaseArch::Llama, rule, output: OutputForm::Widely };
    let mut meta = shape.metadata();
    header.write(&mut meta);
    let mut out = Vec::new();
    for (tensor, role) in shape.described() {
        let (columns, rows) = (tensor.shape[0], tensor.shape.get(1).copied().unwrap_or(1));
        let is_matrix = matches!(role, Role::ByRows | Role::ByColumns | Role::Output);
        let base = tensor.name.strip_suffix(".weight").filter(|_| is_matrix);
        let found = base.and_then(|base| Some((base, rule.shape(rows as usize, columns as usize)?)));
        let Some((base, shape)) = found else {
            let kind = match role {
                Role::Norm => data::Kind::Norm,
                _ => data::Kind::Normal,
            };
            let row = data::row(&tensor);
            out.push((tensor, Content::Weights(row, kind)));
            continue;
        };
        for part in widely::Part::ALL {
            let name = part.name(base);
            let (extents, ty): (Vec<u64>, TypeId) = match part {
                widely::Part::Codes => (shape.codes_extents().to_vec(), part.ty()),
                widely::Part::Scale => (shape.scale_extents().to_vec(), part.ty()),
            };
            let content = Content::Widely(Part { part, shape, name: name.clone() });
            out.push((NewTensor::new(name, extents, ty), content));
        }
    }
    (meta, out)
}
