//! Writing both forms, byte for byte as llama-imatrix does.

use super::{CHUNK_COUNT, CHUNK_SIZE, COUNTS, DATASETS, Entry, FileFormat, Imatrix, ImatrixError, SUMS};
use crate::gguf::write::{Layout, NewTensor, ggml_shape};
use crate::gguf::{Array, Metadata, StrArray, Value};
use crate::types::TypeId;

impl Imatrix {
    /// The bytes of a file in the given form, weights in byte order of their names.
    ///
    /// The legacy form keeps mean squares times calls, one call per begun chunk, 1 for the values of
    /// experts that saw no token; weights that saw none at all are left out, and so is every data set but
    /// the last. A matrix that was read from the legacy form has no sums: [`Imatrix::merge`] it into a
    /// new one to write it as GGUF.
    ///
    /// # Errors
    /// A matrix of the legacy form asked for as GGUF; counts that do not fit the sums; names or lengths
    /// that the form cannot hold.
    pub fn to_bytes(&self, form: FileFormat) -> Result<Vec<u8>, ImatrixError> {
        for (name, e) in &self.entries {
            let n = e.counts.len();
            if n == 0 || e.sums.is_empty() || e.sums.len() % n != 0 {
                return Err(ImatrixError::Entry {
                    name: name.clone(),
                    what: format!("{n} counts cannot belong to {} sums", e.sums.len()),
                });
            }
        }
        match form {
            FileFormat::Gguf if self.legacy => {
                Err(ImatrixError::NoData("the legacy form has no sums; merge it into a new matrix first"))
            }
            FileFormat::Gguf => self.gguf(),
            FileFormat::Legacy => self.dat(),
        }
    }

    fn gguf(&self) -> Result<Vec<u8>, ImatrixError> {
        let mut datasets = StrArray::default();
        if !self.datasets.iter().all(|d| datasets.push(d.as_bytes())) {
            return Err(ImatrixError::NoData("its data sets have too long names"));
        }
        let mut meta = Metadata::default();
        meta.set("general.type", Value::str("imatrix"));
        meta.set(DATASETS, Value::Array(Array::Str(datasets)));
        meta.set(CHUNK_COUNT, Value::U32(self.chunk_count));
        meta.set(CHUNK_SIZE, Value::U32(self.chunk_size));
        let mut tensors = Vec::with_capacity(2 * self.entries.len());
        for (name, e) in &self.entries {
            let experts = e.counts.len() as u64;
            let sums = [e.sums.len() as u64 / experts, experts];
            let counts = [1, experts];
            for (suffix, shape) in [(SUMS, sums), (COUNTS, counts)] {
                tensors.push(NewTensor::new(format!("{name}{suffix}"), ggml_shape(&shape), TypeId::F32));
            }
        }
        let layout = Layout::new(&meta, &tensors)?;
        let mut out = layout.header().to_vec();
        let alignment = 32;
        for e in self.entries.values() {
            push_floats(&mut out, e.sums.iter().copied());
            out.resize(out.len().next_multiple_of(alignment), 0);
            push_floats(&mut out, e.counts.iter().map(|&c| c as f32));
            out.resize(out.len().next_multiple_of(alignment), 0);
        }
        Ok(out)
    }

    fn dat(&self) -> Result<Vec<u8>, ImatrixError> {
        let stored = self.entries.iter().filter(|(_, e)| self.legacy || e.counts.iter().any(|&c| c != 0));
        let n_entries = stored.clone().count();
        let mut out = Vec::new();
        put(&mut out, "", "entries", n_entries as i64)?;
        for (name, e) in stored {
            put(&mut out, name, "bytes of the name", name.len() as i64)?;
            out.extend_from_slice(name.as_bytes());
            let calls = self.calls(e);
            put(&mut out, name, "calls", calls)?;
            put(&mut out, name, "values", e.sums.len() as i64)?;
            if self.legacy {
                push_floats(&mut out, e.sums.iter().copied());
                continue;
            }
            let columns = e.sums.len() / e.counts.len();
            let values = e.sums.iter().enumerate().map(|(i, &sum)| {
                let count = e.counts[i / columns] as f32;
                let mean = if count == 0.0 { 1.0 } else { sum / count };
                mean * calls as i32 as f32
            });
            push_floats(&mut out, values);
        }
        put(&mut out, "", "chunks", self.chunk_count.into())?;
        let dataset = self.datasets.last().map_or("", String::as_str);
        put(&mut out, dataset, "bytes of the data set", dataset.len() as i64)?;
        out.extend_from_slice(dataset.as_bytes());
        Ok(out)
    }

    /// Calls of the legacy form: chunks that were at least begun.
    fn calls(&self, e: &Entry) -> i64 {
        let most = e.counts.iter().copied().max().unwrap_or(0);
        if self.legacy {
            return most;
        }
        let size = i64::from(self.chunk_size.max(1));
        most / size + i64::from(most % size > 0)
    }
}

fn push_floats(out: &mut Vec<u8>, values: impl Iterator<Item = f32>) {
    values.for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
}

/// An `i32`, the legacy form's only integer.
fn put(out: &mut Vec<u8>, name: &str, what: &str, n: i64) -> Result<(), ImatrixError> {
    let n = i32::try_from(n).map_err(|_| ImatrixError::Entry {
        name: name.to_owned(),
        what: format!("{n} {what} are more than the legacy form can hold"),
    })?;
    out.extend_from_slice(&n.to_le_bytes());
    Ok(())
}
