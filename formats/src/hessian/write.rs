//! Writing a file of Hessians.

use std::io::{self, Write};

use super::{
    CHUNK_COUNT, CHUNK_SIZE, COLUMNS, DATASET, DATASET_SHA256, EXPERTS, FIRST_CHUNK, Hessians, INPUTS, Input, KIND,
    MODEL_SHA256, SPECIAL, TOKENS, TYPE, VERSION, WEIGHTS,
};
use crate::gguf::write::{Layout, NewTensor};
use crate::gguf::{Array, GgufError, Metadata, StrArray, Value};
use crate::types::TypeId;

/// Sums that are turned into bytes together.
const PART: usize = 1 << 16;

impl Hessians {
    /// The header of the file.
    ///
    /// # Errors
    /// Names that GGUF cannot hold.
    pub fn layout(&self) -> Result<Layout, GgufError> {
        let origin = &self.origin;
        let mut names = StrArray::default();
        for name in self.weights.keys() {
            // A name that is too long for an array is too long for a tensor, which the layout refuses.
            let _ = names.push(name.as_bytes());
        }
        let mut meta = Metadata::default();
        meta.set(TYPE, Value::str(KIND));
        let has_experts = self.has_experts();
        meta.set(VERSION, Value::U32(if has_experts { 2 } else { 1 }));
        meta.set(WEIGHTS, Value::Array(Array::Str(names)));
        let inputs = self.weights.values().map(|reads| reads.first as i32).collect();
        meta.set(INPUTS, Value::Array(Array::I32(inputs)));
        if has_experts {
            let experts = self.weights.values().map(|reads| reads.experts as i32).collect();
            meta.set(EXPERTS, Value::Array(Array::I32(experts)));
            let tokens = (0..self.inputs.len()).map(|input| u32::try_from(self.tokens_of(input)).unwrap_or(u32::MAX));
            meta.set(TOKENS, Value::Array(Array::U32(tokens.collect())));
        }
        let columns = self.inputs.iter().map(|i| i.columns as i32).collect();
        meta.set(COLUMNS, Value::Array(Array::I32(columns)));
        meta.set(CHUNK_COUNT, Value::U32(self.chunks));
        meta.set(CHUNK_SIZE, Value::U32(origin.chunk_size));
        meta.set(FIRST_CHUNK, Value::U32(origin.first_chunk));
        meta.set(SPECIAL, Value::Bool(origin.special));
        meta.set(DATASET, Value::str(&origin.dataset));
        meta.set(DATASET_SHA256, Value::str(&origin.dataset_sha256));
        meta.set(MODEL_SHA256, Value::str(&origin.model_sha256));
        let tensor = |input: &Input| {
            let elements = input.elements().unwrap_or(u64::MAX);
            NewTensor::new(input.tensor(), [elements], TypeId::F64)
        };
        let tensors: Vec<NewTensor> = self.inputs.iter().map(tensor).collect();
        Layout::new(&meta, &tensors)
    }

    /// Writes the whole file: `layout` is [`Hessians::layout`]'s, `sums` the lower triangle of every input.
    ///
    /// # Errors
    /// The error of `out`.
    ///
    /// # Panics
    /// When a triangle has another size than its tensor.
    pub fn write(&self, layout: &Layout, sums: &[Vec<f64>], out: &mut impl Write) -> io::Result<()> {
        assert_eq!(sums.len(), layout.tensors().len(), "a triangle for each input");
        out.write_all(layout.header())?;
        write_sums(layout, 0, sums, out)
    }
}

/// Writes the triangles of some inputs, from number `first` on, behind those before them.
///
/// # Errors
/// The error of `out`.
///
/// # Panics
/// When a triangle has another size than its tensor.
pub fn write_sums(layout: &Layout, first: usize, sums: &[Vec<f64>], out: &mut impl Write) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(8 * PART);
    for (tensor, sums) in layout.tensors()[first..].iter().zip(sums) {
        assert_eq!(tensor.bytes, 8 * sums.len() as u64, "{}", tensor.name);
        for part in sums.chunks(PART) {
            bytes.clear();
            bytes.extend(part.iter().flat_map(|sum| sum.to_le_bytes()));
            out.write_all(&bytes)?;
        }
        let padding = layout.padding(tensor.bytes) as usize;
        out.write_all(&vec![0; padding])?;
    }
    Ok(())
}
