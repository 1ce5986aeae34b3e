//! The plan of a GGUF file: the whole header as bytes, and where every tensor will lie.
//!
//! The byte layout is that of ggml's writer: keys in order, tensors in order, everything little-endian,
//! zeros up to the alignment after the header and after every tensor, the last one included. A file
//! without tensors ends with its last key, as gguf-py writes it.

use std::collections::HashSet;

use super::dialect;
use super::read::{MAX_DIMS, MAX_NAME, tensor_bytes};
use super::{Array, Dialect, ErrorKind, Gguf, GgufError, Limits, Metadata, TensorInfo, Value};
use crate::types::TypeId;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTensor {
    /// Name, at most 63 bytes.
    pub name: String,
    /// Extents, fastest first; written as they are (see [`ggml_shape`]).
    pub shape: Vec<u64>,
    /// Tensor type.
    pub ty: TypeId,
    /// Size of the data; needed for types that trine does not know, checked for the others.
    pub bytes: Option<u64>,
}

impl NewTensor {
    /// A tensor whose type says its size.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<u64>>, ty: TypeId) -> NewTensor {
        NewTensor { name: name.into(), shape: shape.into(), ty, bytes: None }
    }
}

impl From<&TensorInfo> for NewTensor {
    /// The same tensor in a copy.
    fn from(t: &TensorInfo) -> NewTensor {
        NewTensor { name: t.name.clone(), shape: t.shape.clone(), ty: t.ty, bytes: Some(t.bytes) }
    }
}

/// The shape as ggml's writer stores it: without outer dimensions of 1, but at least one dimension.
pub fn ggml_shape(shape: &[u64]) -> &[u64] {
    let n = shape.iter().rposition(|&d| d != 1).map_or(1, |i| i + 1);
    &shape[..n.min(shape.len())]
}

/// A planned file: header bytes and the place of each tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    header: Vec<u8>,
    tensors: Vec<TensorInfo>,
    alignment: u64,
    file_bytes: u64,
}

impl Layout {
    /// Plans a version 3 file with these keys and tensors, aligned as `general.alignment` says (32 when absent).
    ///
    /// # Errors
    /// Everything that [`Gguf::parse`] would refuse to read: names, shapes, sizes, alignment.
    pub fn new(meta: &Metadata, tensors: &[NewTensor]) -> Result<Layout, GgufError> {
        Layout::versioned(3, meta, tensors)
    }

    /// Plans a copy of a file, in the version it has.
    ///
    /// # Errors
    /// None for what [`Gguf::parse`] returned, otherwise those of [`Layout::new`].
    pub fn copy_of(gguf: &Gguf) -> Result<Layout, GgufError> {
        let tensors: Vec<NewTensor> = gguf.tensors.iter().map(NewTensor::from).collect();
        Layout::versioned(gguf.version, &gguf.meta, &tensors)
    }

    fn versioned(version: u32, meta: &Metadata, tensors: &[NewTensor]) -> Result<Layout, GgufError> {
        if !(2..=3).contains(&version) {
            return Err(GgufError::new("version", ErrorKind::Version(version)));
        }
        let alignment = alignment_of(meta)?;
        let (tensors, data_bytes) = place(tensors, alignment)?;
        check_types(meta, &tensors, alignment, data_bytes)?;
        let mut header = Vec::new();
        header.extend_from_slice(b"GGUF");
        header.extend_from_slice(&version.to_le_bytes());
        header.extend_from_slice(&(tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&(meta.len() as u64).to_le_bytes());
        for (key, value) in meta.iter() {
            check_key(key)?;
            put_str(&mut header, key.as_bytes());
            put_value(&mut header, value);
        }
        for t in &tensors {
            put_str(&mut header, t.name.as_bytes());
            header.extend_from_slice(&(t.shape.len() as u32).to_le_bytes());
            t.shape.iter().for_each(|d| header.extend_from_slice(&d.to_le_bytes()));
            header.extend_from_slice(&t.ty.file_id().to_le_bytes());
            header.extend_from_slice(&t.offset.to_le_bytes());
        }
        if !tensors.is_empty() {
            header.resize(header.len().next_multiple_of(alignment as usize), 0);
        }
        let file_bytes = (header.len() as u64)
            .checked_add(data_bytes)
            .ok_or_else(|| GgufError::new("tensors", ErrorKind::Overflow { shape: vec![data_bytes] }))?;
        Ok(Layout { header, tensors, alignment, file_bytes })
    }

    /// The same with zeros up to the alignment after a header without tensors, as ggml's writer leaves them.
    pub fn padded(mut self) -> Layout {
        if self.tensors.is_empty() {
            let end = self.header.len().next_multiple_of(self.alignment as usize);
            self.header.resize(end, 0);
            self.file_bytes = end as u64;
        }
        self
    }

    /// Everything before the data section, padding included.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The tensor table, with offsets.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Size of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Zero bytes after a tensor of this size.
    pub(crate) fn padding(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.alignment) - bytes
    }
}

fn alignment_of(meta: &Metadata) -> Result<u64, GgufError> {
    super::read::alignment(meta, &Limits::default())
}

fn check_key(key: &str) -> Result<(), GgufError> {
    let max = Limits::default().key;
    let kind = match key.len() as u64 {
        0 => ErrorKind::EmptyName,
        len if len > max => ErrorKind::TooLong { len, max },
        _ if key.contains('\0') => ErrorKind::Nul,
        _ => return Ok(()),
    };
    Err(GgufError::key(key, kind))
}

/// Gives every tensor its offset; the second value is the size of the data section.
fn place(tensors: &[NewTensor], alignment: u64) -> Result<(Vec<TensorInfo>, u64), GgufError> {
    let mut names = HashSet::with_capacity(tensors.len());
    let mut offset = 0u64;
    let mut placed = Vec::with_capacity(tensors.len());
    for t in tensors {
        let refuse = |kind| Err(GgufError::new(format!("tensor '{}'", t.name), kind));
        if t.name.len() as u64 > MAX_NAME {
            return refuse(ErrorKind::TooLong { len: t.name.len() as u64, max: MAX_NAME });
        }
        if t.name.contains('\0') {
            return refuse(ErrorKind::Nul);
        }
        if !names.insert(t.name.as_str()) {
            return refuse(ErrorKind::Duplicate);
        }
        if t.shape.is_empty() || t.shape.len() > MAX_DIMS {
            return refuse(ErrorKind::Dimensions(t.shape.len() as u32));
        }
        let bytes = match (tensor_bytes(t.ty, &t.shape), t.bytes) {
            (Err(kind), _) => return refuse(kind),
            (Ok(Some(known)), Some(given)) if known != given => {
                return refuse(ErrorKind::DataLength { found: given, expected: known });
            }
            (Ok(Some(bytes)), _) | (Ok(None), Some(bytes)) => bytes,
            (Ok(None), None) => return refuse(ErrorKind::UnknownSize { ty: t.ty }),
        };
        let next = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(alignment));
        let Some(next) = next else {
            return refuse(ErrorKind::Overflow { shape: t.shape.clone() });
        };
        placed.push(TensorInfo { name: t.name.clone(), shape: t.shape.clone(), ty: t.ty, offset, bytes });
        offset = next;
    }
    Ok((placed, offset))
}

/// Checks that a reader will take the type numbers for what they are.
fn check_types(meta: &Metadata, tensors: &[TensorInfo], alignment: u64, data_bytes: u64) -> Result<(), GgufError> {
    let mut read = tensors.to_vec();
    for t in &mut read {
        t.ty = TypeId(t.ty.file_id());
    }
    dialect::assign(meta, &mut read, alignment, data_bytes)?;
    match tensors.iter().zip(&read).find(|(t, read)| t.ty != read.ty) {
        None => Ok(()),
        Some((t, read)) => Err(GgufError::tensor(
            &t.name,
            ErrorKind::Misread { ty: t.ty, read: read.ty, dialect: Dialect::of(t.ty).name() },
        )),
    }
}

fn put_str(out: &mut Vec<u8>, s: &[u8]) {
    out.extend_from_slice(&(s.len() as u64).to_le_bytes());
    out.extend_from_slice(s);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! number {
        ($id:expr, $v:expr) => {{
            out.extend_from_slice(&u32::to_le_bytes($id));
            out.extend_from_slice(&$v.to_le_bytes());
        }};
    }
    match value {
        Value::U8(v) => number!(0, v),
        Value::I8(v) => number!(1, v),
        Value::U16(v) => number!(2, v),
        Value::I16(v) => number!(3, v),
        Value::U32(v) => number!(4, v),
        Value::I32(v) => number!(5, v),
        Value::F32(v) => number!(6, v),
        Value::Bool(v) => number!(7, u8::from(*v)),
        Value::Str(v) => {
            out.extend_from_slice(&8u32.to_le_bytes());
            put_str(out, &v.0);
        }
        Value::Array(v) => {
            out.extend_from_slice(&9u32.to_le_bytes());
            put_array(out, v);
        }
        Value::U64(v) => number!(10, v),
        Value::I64(v) => number!(11, v),
        Value::F64(v) => number!(12, v),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    let mut head = |id: u32| {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(array.len() as u64).to_le_bytes());
    };
    macro_rules! numbers {
        ($id:expr, $v:expr) => {{
            head($id);
            $v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        }};
    }
    match array {
        Array::U8(v) => numbers!(0, v),
        Array::I8(v) => numbers!(1, v),
        Array::U16(v) => numbers!(2, v),
        Array::I16(v) => numbers!(3, v),
        Array::U32(v) => numbers!(4, v),
        Array::I32(v) => numbers!(5, v),
        Array::F32(v) => numbers!(6, v),
        Array::Bool(v) => {
            head(7);
            out.extend(v.iter().map(|&b| u8::from(b)));
        }
        Array::Str(v) => {
            head(8);
            v.iter().for_each(|s| put_str(out, s));
        }
        Array::U64(v) => numbers!(10, v),
        Array::I64(v) => numbers!(11, v),
        Array::F64(v) => numbers!(12, v),
    }
}
