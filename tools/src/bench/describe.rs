//! Names of a model and a machine in tables.

use std::collections::HashMap;

use trine::quant::Ftype;
use trine::quant::widely::matrices;
use trine_formats::gguf::{Dialect, ModelFile};
use trine_formats::types::TypeId;
use trine_formats::widely::{Header, Part};

/// A model in one line, as llama-bench has it.
pub struct Description {
    /// `llama 0.73B TQ2_0`.
    pub kind: String,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Weights of all tensors.
    pub params: u64,
}

impl Description {
    /// From the header.
    pub fn of(file: &ModelFile) -> Description {
        let arch = file.meta().get_str("general.architecture");
        let arch = arch.ok().flatten().unwrap_or("?");
        let bytes = file.tensors().map(|t| t.bytes).sum();
        let params: u64 = match widely_linear(file) {
            Some((weights, _)) => weights,
            None => file.tensors().map(|t| t.elements()).sum(),
        };
        let kind = format!("{arch} {} {}", billions(params), file_type(file));
        Description { kind, bytes, params }
    }
}

/// A number of weights as models' names have it: `7.2B`, `729M`.
pub fn billions(n: u64) -> String {
    let n = n as f64;
    if n >= 1e9 { format!("{:.1}B", n / 1e9) } else { format!("{:.0}M", n / 1e6) }
}

/// The weights of a model with widely linear matrices, and its number of stages.
fn widely_linear(file: &ModelFile) -> Option<(u64, usize)> {
    let header = Header::is_in(file.meta()).then(|| Header::read(file.meta()).ok())??;
    let matrices = matrices(file).ok()?;
    let complex = matrices.iter().map(|(_, m)| (m.shape.rows * m.shape.columns) as u64);
    let others = file.tensors().filter(|t| Part::matrix(&t.name).is_none());
    let weights = 4 * complex.sum::<u64>() + others.map(|t| t.elements()).sum::<u64>();
    Some((weights, header.rule.stages))
}

/// The file type, or the type of most weights where the number is another program's or missing.
pub fn file_type(file: &ModelFile) -> String {
    if let Some((_, stages)) = widely_linear(file) {
        return format!("W{stages}");
    }
    let id = file.meta().get_u32("general.file_type").ok().flatten();
    let named = Ftype::ALL.iter().find(|t| Some(**t as u32) == id);
    if let (Dialect::Ggml, Some(ftype)) = (file.dialect(), named) {
        return ftype.name().to_owned();
    }
    let mut weights: HashMap<TypeId, u64> = HashMap::new();
    for t in file.tensors() {
        *weights.entry(t.ty).or_default() += t.elements();
    }
    let most = weights.into_iter().max_by_key(|&(ty, n)| (n, ty));
    most.map_or(String::new(), |(ty, _)| ty.to_string().to_uppercase())
}
