//! Reading both forms.

use std::collections::BTreeMap;

use super::{CHUNK_COUNT, CHUNK_SIZE, COUNTS, DATASETS, Entry, Imatrix, ImatrixError, SUMS};
use crate::gguf::{Gguf, GgufError, Limits, TensorInfo};
use crate::types::TypeId;

impl Imatrix {
    /// Reads either form.
    ///
    /// # Errors
    /// Whatever llama-quantize refuses, and what it would read out of bounds or divide by zero for:
    /// counts that do not divide the sums, lengths beyond the file.
    pub fn parse(bytes: &[u8]) -> Result<Imatrix, ImatrixError> {
        if bytes.is_empty() {
            return Err(ImatrixError::NoData("it is empty"));
        }
        if bytes.starts_with(b"GGUF") { gguf(bytes) } else { legacy(bytes) }
    }
}

pub fn gguf(bytes: &[u8]) -> Result<Imatrix, ImatrixError> {
    let gguf = Gguf::parse(bytes, &Limits::default())?;
    if gguf.tensors.is_empty() {
        return Err(ImatrixError::NoData("it has no tensors"));
    }
    let meta = &gguf.meta;
    let datasets = GgufError::required(DATASETS, meta.get_strs(DATASETS)?)?;
    let mut out = Imatrix {
        datasets: datasets.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect(),
        chunk_count: GgufError::required(CHUNK_COUNT, meta.get_u32(CHUNK_COUNT)?)?,
        chunk_size: GgufError::required(CHUNK_SIZE, meta.get_u32(CHUNK_SIZE)?)?,
        ..Imatrix::default()
    };
    let mut pairs: BTreeMap<&str, [Option<&TensorInfo>; 2]> = BTreeMap::new();
    for t in &gguf.tensors {
        if let Some(name) = t.name.strip_suffix(SUMS) {
            pairs.entry(name).or_default()[0] = Some(t);
        } else if let Some(name) = t.name.strip_suffix(COUNTS) {
            pairs.entry(name).or_default()[1] = Some(t);
        }
    }
    for (name, pair) in pairs {
        let refuse = |what: &str| Err(ImatrixError::Entry { name: name.to_owned(), what: what.to_owned() });
        let [Some(sums), Some(counts)] = pair else {
            return refuse("only one of .in_sum2 and .counts is there");
        };
        let (Some(sums), Some(counts)) = (floats(&gguf, bytes, sums), floats(&gguf, bytes, counts)) else {
            return refuse("sums and counts must be of type f32");
        };
        if counts.is_empty() || sums.is_empty() || sums.len() % counts.len() != 0 {
            return refuse(&format!("{} counts cannot belong to {} sums", counts.len(), sums.len()));
        }
        let counts = counts.into_iter().map(round).collect();
        out.entries.insert(name.to_owned(), Entry { sums, counts });
    }
    if out.entries.is_empty() {
        return Err(ImatrixError::NoData("it has no tensor named *.in_sum2; is it a model?"));
    }
    Ok(out)
}

/// C's `lround`: to the nearest integer, ties away from zero; saturating where C leaves it open.
fn round(count: f32) -> i64 {
    count.round() as i64
}

fn floats(gguf: &Gguf, bytes: &[u8], t: &TensorInfo) -> Option<Vec<f32>> {
    if t.ty != TypeId::F32 {
        return None;
    }
    let start = usize::try_from(gguf.data_offset + t.offset).ok()?;
    let data = bytes.get(start..)?.get(..usize::try_from(t.bytes).ok()?)?;
    Some(to_floats(data))
}

fn to_floats(data: &[u8]) -> Vec<f32> {
    data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The unread part of a legacy file.
struct Rest<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8], ImatrixError> {
        let left = &self.bytes[self.pos..];
        match usize::try_from(n).ok().and_then(|n| left.get(..n)) {
            Some(taken) => {
                self.pos += taken.len();
                Ok(taken)
            }
            None => self.refuse(format!("{what} needs {n} bytes where {} are left", left.len())),
        }
    }

    fn i32(&mut self, what: &str) -> Result<i32, ImatrixError> {
        let mut b = [0; 4];
        b.copy_from_slice(self.take(4, what)?);
        Ok(i32::from_le_bytes(b))
    }

    /// A length, which must not be negative.
    fn len(&mut self, what: &str) -> Result<u64, ImatrixError> {
        let n = self.i32(what)?;
        match u64::try_from(n) {
            Ok(n) => Ok(n),
            Err(_) => self.refuse(format!("{what} is {n}")),
        }
    }

    fn refuse<T>(&self, what: String) -> Result<T, ImatrixError> {
        Err(ImatrixError::Legacy { what, offset: self.pos as u64 })
    }
}

/// Text up to the first NUL, as C takes it.
fn c_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub fn legacy(bytes: &[u8]) -> Result<Imatrix, ImatrixError> {
    let mut rest = Rest { bytes, pos: 0 };
    let n_entries = rest.i32("the number of entries")?;
    if n_entries < 1 {
        return rest.refuse(format!("the number of entries is {n_entries}"));
    }
    let mut out = Imatrix { legacy: true, ..Imatrix::default() };
    for i in 1..=n_entries {
        let len = rest.len(&format!("entry {i}: the length of the name"))?;
        let name = c_text(rest.take(len, &format!("entry {i}: the name"))?);
        let calls = rest.i32(&format!("entry {i}: the number of calls"))?;
        let n = rest.len(&format!("entry {i}: the number of values"))?;
        if n == 0 {
            return rest.refuse(format!("entry {i} has no values"));
        }
        let values = rest.take(4 * n, &format!("entry {i}: {n} values"))?;
        // A name that comes twice keeps its last values.
        out.entries.insert(name, Entry { sums: to_floats(values), counts: vec![calls.into()] });
    }
    // Old files end here; what follows is taken as far as it goes.
    if let Ok(chunks) = rest.i32("the number of chunks") {
        out.chunk_count = chunks.max(0) as u32;
        if let Ok(name) = rest.len("the data set").and_then(|n| rest.take(n, "the data set"))
            && !name.is_empty()
        {
            out.datasets.push(c_text(name));
        }
    }
    Ok(out)
}
