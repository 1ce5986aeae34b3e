//! Finds the experts of a checkpoint that stand in MXFP4.

use std::collections::BTreeMap;

use serde_json::Value;
use trine_formats::safetensors::Dtype;
use trine_formats::types::TypeId;

use super::error::{ConvertError, Problems};
use super::folder::Folder;
use super::hparams::HParams;
use super::mxfp4::{BLOCK, Experts};
use super::place::Place;
use super::row::{Content, Row};
use super::source::Source;
use crate::arch::tensor::full_name;

/// `general.file_type` of files with such experts.
pub(super) const FILE_TYPE: u32 = 38;
/// Ends of the names of codes and of scales, in the form of compressed-tensors and in DeepSeek's.
const NAMED: [&str; 2] = ["_packed", "_scale"];
const PLAIN: [&str; 2] = ["weight", "scale"];

/// A stack that was found: block, name in the file, name of its first tensor.
struct Found {
    block: u32,
    gguf: &'static str,
    from: String,
    experts: Experts,
}

/// All that a folder has.
pub(super) struct Packed {
    found: Vec<Found>,
    /// True if other matrices are quantized in another way.
    pub beside: bool,
}

impl Packed {
    /// True if there are such experts.
    pub fn any(&self) -> bool {
        !self.found.is_empty()
    }

    /// Takes the tensors out of a folder whose `config.json` says that its experts are such.
    pub fn take(folder: &mut Folder, h: &HParams, source: &Source) -> Result<Packed, ConvertError> {
        let names = source.checkpoint.packed;
        let says = |key: &str| h.get("quantization_config").and_then(|q| q.get(key)).and_then(Value::as_str);
        let [codes_end, scales_end] = match (says("quant_method"), says("format")) {
            _ if names.is_empty() => return Ok(Packed { found: Vec::new(), beside: true }),
            (Some("compressed-tensors"), Some("mxfp4-pack-quantized")) => NAMED,
            (Some("fp8"), _) => PLAIN,
            _ => return Ok(Packed { found: Vec::new(), beside: true }),
        };
        let beside = codes_end == PLAIN[0];
        if beside {
            // parts that are left out have experts, too
            folder.tensors.retain(|s| !matches!(source.place(&s.tensor.name), Place::Ignored));
        }
        let bare = |name: &str| name.replace("language_model.", "");
        let all: BTreeMap<String, usize> = folder
            .tensors
            .iter()
            .enumerate()
            .filter(|(_, s)| s.tensor.name.ends_with(codes_end) || s.tensor.name.ends_with(scales_end))
            .map(|(n, s)| (bare(&s.tensor.name), n))
            .collect();
        let (mut problems, mut found, mut taken) = (Problems::default(), Vec::new(), Vec::new());
        for block in 0..source.layers {
            for (pattern, to) in names {
                let name = |n: u64| source.checkpoint.full_name(Some(block), pattern).replace('*', &n.to_string());
                let stack: Vec<String> = (0..source.sizes.experts).map(name).collect();
                if !stack.iter().any(|codes| all.contains_key(codes)) {
                    continue;
                }
                let mut experts = Experts { places: Vec::new(), rows: 0, columns: 0 };
                for codes in &stack {
                    let scales = format!("{}{scales_end}", codes.trim_end_matches(codes_end));
                    let both = [codes, &scales].map(|name| all.get(name).copied().ok_or(name));
                    let [codes_at, scales_at] = match both {
                        [Ok(a), Ok(b)] => [a, b],
                        [Err(name), _] | [_, Err(name)] => {
                            problems.push(format!("'{name}' is missing"));
                            continue;
                        }
                    };
                    let [c, s] = [codes_at, scales_at].map(|n| &folder.tensors[n]);
                    let shape = match c.tensor.shape[..] {
                        [rows, bytes] if bytes % (BLOCK / 2) == 0 => Some((rows, 2 * bytes)),
                        _ => None,
                    };
                    let fits = |(rows, columns): &(u64, u64)| {
                        let same = experts.places.is_empty() || (experts.rows, experts.columns) == (*rows, *columns);
                        let bytes = |of: Dtype, other: Dtype| of == Dtype::U8 || beside && of == other;
                        let types = bytes(c.tensor.dtype, Dtype::I8) && bytes(s.tensor.dtype, Dtype::F8E8M0);
                        same && types && s.tensor.shape == [*rows, columns / BLOCK]
                    };
                    let Some((rows, columns)) = shape.filter(fits) else {
                        problems.push(format!(
                            "'{codes}' of shape {:?} and its scales of shape {:?} are no matrix in MXFP4, or not of the shape of others",
                            c.tensor.shape, s.tensor.shape
                        ));
                        continue;
                    };
                    (experts.rows, experts.columns) = (rows, columns);
                    experts.places.push([(c.shard, c.tensor.offset), (s.shard, s.tensor.offset)]);
                    taken.extend([codes_at, scales_at]);
                }
                found.push(Found { block, gguf: to[0], from: stack[0].clone(), experts });
            }
        }
        let mut n = 0;
        folder.tensors.retain(|s| {
            n += 1;
            let stays = !taken.contains(&(n - 1));
            if stays && !beside && s.tensor.name.ends_with(codes_end) {
                problems.push(format!("'{}' is in MXFP4, and that is read of experts alone", s.tensor.name));
            }
            stays
        });
        if problems.is_empty() { Ok(Packed { found, beside }) } else { Err(ConvertError::Tensors(problems)) }
    }

    /// The rows of the file.
    pub fn rows(&self, source: &Source) -> Result<Vec<Row>, ConvertError> {
        let mut problems = Problems::default();
        let mut rows = Vec::new();
        for Found { block, gguf, from, experts } in &self.found {
            let shape = vec![experts.columns, experts.rows, experts.places.len() as u64];
            let described = source.block(*block).find(|t| t.gguf == *gguf);
            let wanted = described.map(|t| source.sizes_of(Some(*block)).gguf_shape(t));
            if wanted.as_ref() != Some(&shape) {
                let wanted = wanted.unwrap_or_default();
                problems.push(format!("'{from}' and others make {shape:?}, config.json makes it {wanted:?}"));
            }
            rows.push(Row {
                name: full_name(Some(*block as usize), gguf),
                source: from.clone(),
                from: Dtype::U8.name(),
                shape,
                ty: TypeId::MXFP4,
                content: Content::Mxfp4(experts.clone()),
            });
        }
        if problems.is_empty() { Ok(rows) } else { Err(ConvertError::Tensors(problems)) }
    }
}
