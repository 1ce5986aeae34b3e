//! Sensitivities of weights from safetensors files: squared gradients, or gradients that are squared here.
//!
//! Those of Hugging Face checkpoints have the checkpoint's names and order of rows; for architectures whose `q`
//! and `k` the converter reorders, the rows of the sensitivities are reordered with them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use trine_formats::gguf::Metadata;
use trine_formats::gguf::file::SourceFile;
use trine_formats::safetensors::{self, Dtype, Tensor};

use super::matrices::{block_matrices, is_block_matrix};
use super::sensitivity_error::{SensitivityError, check_values};
use crate::arch::{Arch, source_row};
use crate::quant::row::Row;

/// Squared gradients, or gradients to be squared, in safetensors files.
#[derive(Debug)]
pub(super) struct WeightFiles {
    files: Vec<(PathBuf, SourceFile)>,
    /// By the name of the matrix.
    stored: HashMap<String, Stored>,
    square: bool,
}

#[derive(Debug)]
struct Stored {
    file: usize,
    tensor: Tensor,
    /// Rows of a head whose halves are interleaved in the model.
    head: Option<u64>,
}

impl WeightFiles {
    /// Opens the files and finds in them the sensitivities of `matrices`, by the names of a
    /// checkpoint or by those of the model. `square` says that they are gradients. `meta` is the model's.
    ///
    /// # Errors
    /// Files that cannot be read; matrices that are missing, too many or of another shape.
    pub fn open(
        paths: &[PathBuf],
        square: bool,
        meta: &Metadata,
        matrices: &[&Row],
    ) -> Result<WeightFiles, SensitivityError> {
        let arch = meta.get_str("general.architecture")?.unwrap_or_default();
        let by_name: HashMap<&str, &Row> = matrices.iter().map(|r| (r.name.as_str(), *r)).collect();
        let mut out = WeightFiles {
            files: Vec::with_capacity(paths.len()),
            stored: HashMap::with_capacity(matrices.len()),
            square,
        };
        for path in paths {
            let (file, tensors) = open(path)?;
            let number = out.files.len();
            out.files.push((path.clone(), file));
            for tensor in tensors {
                let (name, checkpoint) = match gguf_name(&tensor.name) {
                    Some(name) => (name, true),
                    None => (tensor.name.clone(), false),
                };
                let Some(row) = by_name.get(name.as_str()) else {
                    if checkpoint || is_block_matrix(&name, &[1, 1]) {
                        let name = tensor.name;
                        return Err(SensitivityError::Extra { name });
                    }
                    continue; // norms and embeddings, which are not quantized
                };
                check_shape(&tensor, row)?;
                let head = if checkpoint { head_rows(arch, meta, row)? } else { None };
                let stored = Stored { file: number, tensor, head };
                if out.stored.insert(name.clone(), stored).is_some() {
                    return Err(SensitivityError::Twice { tensor: name });
                }
            }
        }
        let missing: Vec<&&Row> = matrices.iter().filter(|r| !out.stored.contains_key(&r.name)).collect();
        match missing.first() {
            None => Ok(out),
            Some(first) => Err(SensitivityError::Missing {
                count: missing.len(),
                all: matrices.len(),
                first: first.name.clone(),
                wanted: checkpoint_name(&first.name),
            }),
        }
    }

    /// Makes sure, when all is read, that nobody wrote to a file meanwhile.
    pub(super) fn unchanged(&self) -> Result<(), SensitivityError> {
        self.files.iter().try_for_each(|(path, file)| {
            file.unchanged().map_err(|source| SensitivityError::Io { path: path.clone(), source })
        })
    }

    /// The files.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Sensitivities of `rows` rows of a matrix from row `first` on.
    pub(super) fn rows(&mut self, row: &Row, first: u64, rows: u64) -> Result<Vec<f32>, SensitivityError> {
        let columns = row.columns() as usize;
        let mut out = vec![0.0; rows as usize * columns];
        let Some(stored) = self.stored.get(&row.name) else {
            return Ok(out); // never: all were found when the files were opened
        };
        let (path, file) = &self.files[stored.file];
        let failed = |source| SensitivityError::Io { path: path.clone(), source };
        let bytes = columns * stored.tensor.dtype.bytes() as usize;
        let mut raw = vec![0; bytes];
        let hint = if self.square { "" } else { "; if these are gradients, have them squared with --sens-is-gradient" };
        for (r, out) in (first..).zip(out.chunks_exact_mut(columns.max(1))) {
            let source = stored.source_row(r);
            let place = stored.tensor.offset + source * bytes as u64;
            file.file().read_exact_at(&mut raw, place).map_err(failed)?;
            safetensors::decode(stored.tensor.dtype, &raw, out);
            if self.square {
                out.iter_mut().for_each(|s| *s *= *s);
            }
            let index = source * columns as u64;
            check_values(&stored.tensor.name, index, out, hint)?;
        }
        Ok(out)
    }
}

impl Stored {
    /// The row of the checkpoint that is row `r` of the model.
    fn source_row(&self, r: u64) -> u64 {
        source_row(self.head, r)
    }
}

fn open(path: &Path) -> Result<(SourceFile, Vec<Tensor>), SensitivityError> {
    let failed = |source| SensitivityError::Io { path: path.to_owned(), source };
    let bad = |source| SensitivityError::Safetensors { path: path.to_owned(), source };
    safetensors::open(path, failed, bad)
}

/// `model.layers.3.mlp.up_proj.weight` as `blk.3.ffn_up.weight`.
fn gguf_name(checkpoint: &str) -> Option<String> {
    let rest = checkpoint.strip_prefix("model.layers.")?;
    let (layer, rest) = rest.split_once('.')?;
    let name = block_matrices().find(|t| t.hf == rest)?.gguf;
    let counts = !layer.is_empty() && layer.bytes().all(|b| b.is_ascii_digit());
    counts.then(|| format!("blk.{layer}.{name}"))
}

fn checkpoint_name(gguf: &str) -> String {
    let found = || {
        let (layer, rest) = gguf.strip_prefix("blk.")?.split_once('.')?;
        let hf = block_matrices().find(|t| t.gguf == rest)?.hf;
        Some(format!("model.layers.{layer}.{hf}"))
    };
    found().unwrap_or_else(|| gguf.to_owned())
}

fn check_shape(tensor: &Tensor, row: &Row) -> Result<(), SensitivityError> {
    let columns = row.columns();
    let rows = row.weights() / columns.max(1);
    let name = tensor.name.clone();
    if tensor.shape != [rows, columns] {
        return Err(SensitivityError::Shape { name, found: tensor.shape.clone(), rows, columns });
    }
    match tensor.dtype {
        Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 => Ok(()),
        other => Err(SensitivityError::Dtype { name, dtype: other.name() }),
    }
}

/// Rows of a head of `attn_q` and `attn_k` where the converter interleaves its halves.
fn head_rows(arch: &str, meta: &Metadata, row: &Row) -> Result<Option<u64>, SensitivityError> {
    let key = if row.name.ends_with(".attn_q.weight") {
        "head_count"
    } else if row.name.ends_with(".attn_k.weight") {
        "head_count_kv"
    } else {
        return Ok(None);
    };
    match Arch::find(arch) {
        None => return Err(SensitivityError::Architecture(arch.to_owned())),
        Some(arch) if !arch.interleaves_heads() => return Ok(None),
        Some(_) => {}
    }
    let read = |key: &str| meta.get_u64(&format!("{arch}.attention.{key}"));
    let heads = match read(key)? {
        None => read("head_count")?, // without grouped queries there is one number
        some => some,
    };
    let rows = row.weights() / row.columns().max(1);
    match heads {
        Some(heads) if heads > 0 && rows.is_multiple_of(2 * heads) => Ok(Some(rows / heads)),
        _ => Err(SensitivityError::Heads { arch: arch.to_owned(), key, rows, tensor: row.name.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checkpoints() {
        let pairs = [
            ("model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"),
            ("model.layers.31.mlp.down_proj.weight", "blk.31.ffn_down.weight"),
        ];
        for (hf, gguf) in pairs {
            assert_eq!(gguf_name(hf).as_deref(), Some(gguf));
            assert_eq!(checkpoint_name(gguf), hf);
        }
        for other in [
            "model.layers.0.self_attn.q_proj.bias",
            "model.layers.x.self_attn.q_proj.weight",
            "model.layers..self_attn.q_proj.weight",
            "model.layers.0.input_layernorm.weight",
            "model.embed_tokens.weight",
        ] {
            assert_eq!(gguf_name(other), None, "{other}");
        }
    }

    #[test]
    fn rows_of_heads_are_interleaved() {
        let stored = Stored {
            file: 0,
            tensor: Tensor { name: String::new(), dtype: Dtype::F32, shape: vec![8, 1], offset: 0, bytes: 32 },
            head: Some(4),
        };
        let rows: Vec<u64> = (0..8).map(|r| stored.source_row(r)).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
