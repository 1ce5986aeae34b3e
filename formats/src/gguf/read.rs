//! Reads the header of a GGUF file from memory.
//!
//! ```text
//! "GGUF"  version u32  n_tensors u64  n_kv u64
//! n_kv      x { key str, value type u32, value }          array: element type u32, n u64, elements
//! n_tensors x { name str, n_dims u32, dims u64 x n_dims, type u32, offset u64 }
//! padding to general.alignment, then the data section; offsets count from its start
//! str = length u64, bytes
//! ```
//!
//! Files that llama.cpp's reader accepts are accepted, with these exceptions, all of them damage: names that are not
//! UTF-8 or hold NUL, booleans that are neither 0 nor 1, tensors of no dimension, alignments above
//! [`Limits::alignment`]. Tensor types that trine does not know are kept, where llama.cpp stops.

use std::collections::HashSet;

use byteorder::{ByteOrder, LittleEndian};

use super::cursor::{Cursor, Limits};
use super::dialect;
use super::error::{ErrorKind, GgufError, Named, Unnamed};
use super::strings::{GgufStr, StrArray};
use super::{Array, Gguf, Metadata, TensorInfo, Value};
use crate::types::ternary::TernaryError;
use crate::types::{TypeId, tl2};

/// Most dimensions of a tensor (`GGML_MAX_DIMS`).
pub(crate) const MAX_DIMS: usize = 4;
/// Longest tensor name; ggml's buffer holds one byte more, for the NUL.
pub(crate) const MAX_NAME: u64 = 63;
/// The key that sets the alignment of the data section and of every tensor.
const KEY_ALIGNMENT: &str = "general.alignment";
/// Alignment of a file that does not say.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Bytes of the smallest pair: key of one byte, type, one byte of value.
const MIN_PAIR: u64 = 8 + 1 + 4 + 1;
/// Bytes of the smallest tensor row: name of no byte, one dimension.
const MIN_TENSOR: u64 = 8 + 4 + 8 + 4 + 8;
/// Maximum memory of one entry of a `HashSet<&[u8]>`, at its emptiest after growth, in bytes.
const SET_ENTRY: u64 = 48;
/// Overhead of an allocation, in bytes.
const HEAP: u64 = 16;

impl Gguf {
    /// Reads the header of the GGUF file that `bytes` holds whole, and checks that every tensor's data
    /// lies inside it, or with `limits.partial` that it would if the file did not end early.
    ///
    /// # Errors
    /// Any [`ErrorKind`]; nothing is allocated beyond `limits.memory` on the way.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Gguf, GgufError> {
        let mut c = Cursor::new(bytes, limits.memory);
        let version = version(&mut c)?;
        let n_tensors = c.count(MIN_TENSOR).of(|| "header: number of tensors".into())?;
        let n_kv = c.count(MIN_PAIR).of(|| "header: number of keys".into())?;
        let meta = metadata(&mut c, n_kv, limits)?;
        let alignment = alignment(&meta, limits)?;
        let (mut tensors, mut rows) = tensor_table(&mut c, n_tensors)?;
        let mut data_offset = c.pos();
        if n_tensors > 0 {
            data_offset = data_offset.next_multiple_of(alignment);
        }
        let len = bytes.len() as u64;
        let available = len.saturating_sub(data_offset);
        let dialect = dialect::assign(&meta, &mut tensors, alignment, available)?;
        for (t, row) in tensors.iter().zip(&mut rows) {
            let size = tensor_bytes(t.ty, &t.shape).map_err(|kind| Unnamed { offset: row.type_at, kind });
            row.size = size.of(|| format!("tensor '{}'", t.name))?;
        }
        if data_offset > len {
            let need = data_offset - c.pos();
            return c.err(ErrorKind::Truncated { need, left: c.left() }).of(|| "data section".into());
        }
        place(&mut tensors, &rows, alignment, data_offset, len, limits.partial)?;
        Ok(Gguf { version, alignment, meta, tensors, data_offset, partial: limits.partial, dialect })
    }
}

fn version(c: &mut Cursor<'_>) -> Result<u32, GgufError> {
    if c.left() == 0 {
        return c.err(ErrorKind::Empty).of(String::new);
    }
    let magic = c.fork().take(c.left().min(4)).of(String::new)?;
    if magic != b"GGUF" {
        if b"GGUF".starts_with(magic) {
            return c.err(ErrorKind::Truncated { need: 4, left: c.left() }).of(|| "header: magic".into());
        }
        return c.err(ErrorKind::Magic { found: format!("\"{}\"", magic.escape_ascii()) }).of(|| "header".into());
    }
    c.take(4).of(String::new)?;
    let field = || "header: version".to_owned();
    let version = c.fork().u32().of(field)?;
    match version {
        2 | 3 => {}
        // Small numbers in the other byte order: 0x0300_0000 is version 3.
        v if v != 0 && v & 0xffff == 0 => return c.err(ErrorKind::BigEndian).of(field),
        v => return c.err(ErrorKind::Version(v)).of(field),
    }
    c.u32().of(field)
}

fn name<'a>(c: &mut Cursor<'a>, max: u64) -> Result<&'a str, Unnamed> {
    let at = c.pos();
    let bytes = c.string(max)?;
    let kind = match std::str::from_utf8(bytes) {
        Ok(s) if !bytes.contains(&0) => return Ok(s),
        Ok(_) => ErrorKind::Nul,
        Err(_) => ErrorKind::NotUtf8,
    };
    Err(Unnamed { offset: at, kind })
}

fn metadata(c: &mut Cursor<'_>, n: u64, limits: &Limits) -> Result<Metadata, GgufError> {
    c.charge(n * (size_of::<(String, Value)>() as u64 + SET_ENTRY)).of(|| "header: number of keys".into())?;
    let mut meta = Metadata::with_capacity(n as usize);
    let mut seen = HashSet::with_capacity(n as usize);
    for i in 0..n {
        let nameless = || format!("key number {i}");
        let at = c.pos();
        let key = name(c, limits.key).of(nameless)?;
        let field = || format!("key '{key}'");
        let refuse = |kind| Err(GgufError { offset: Some(at), field: field(), kind });
        if key.is_empty() {
            return refuse(ErrorKind::EmptyName);
        }
        if !seen.insert(key) {
            return refuse(ErrorKind::Duplicate);
        }
        c.charge(key.len() as u64 + HEAP).of(field)?;
        let value = value(c).of(field)?;
        meta.push_new(key.to_owned(), value);
        if key == KEY_ALIGNMENT {
            alignment(&meta, limits).map_err(|e| GgufError { offset: Some(at), ..e })?;
        }
    }
    Ok(meta)
}

fn value(c: &mut Cursor<'_>) -> Result<Value, Unnamed> {
    let at = c.pos();
    Ok(match c.u32()? {
        0 => Value::U8(u8::from_le_bytes(c.array()?)),
        1 => Value::I8(i8::from_le_bytes(c.array()?)),
        2 => Value::U16(u16::from_le_bytes(c.array()?)),
        3 => Value::I16(i16::from_le_bytes(c.array()?)),
        4 => Value::U32(u32::from_le_bytes(c.array()?)),
        5 => Value::I32(i32::from_le_bytes(c.array()?)),
        6 => Value::F32(f32::from_le_bytes(c.array()?)),
        7 => Value::Bool(bools(c, 1)?[0]),
        8 => {
            let s = c.fork().string(u64::MAX)?;
            c.charge(s.len() as u64 + HEAP)?;
            Value::Str(GgufStr(c.string(u64::MAX)?.to_vec()))
        }
        9 => Value::Array(array(c)?),
        10 => Value::U64(u64::from_le_bytes(c.array()?)),
        11 => Value::I64(i64::from_le_bytes(c.array()?)),
        12 => Value::F64(f64::from_le_bytes(c.array()?)),
        other => {
            return Err(Unnamed { offset: at, kind: ErrorKind::ValueType(other) });
        }
    })
}

fn array(c: &mut Cursor<'_>) -> Result<Array, Unnamed> {
    let at = c.pos();
    Ok(match c.u32()? {
        0 => Array::U8(numbers::<1, _>(c, |b, out| out.copy_from_slice(b))?),
        1 => Array::I8(numbers::<1, _>(c, |b, out| out.iter_mut().zip(b).for_each(|(o, &b)| *o = b as i8))?),
        2 => Array::U16(numbers::<2, _>(c, LittleEndian::read_u16_into)?),
        3 => Array::I16(numbers::<2, _>(c, LittleEndian::read_i16_into)?),
        4 => Array::U32(numbers::<4, _>(c, LittleEndian::read_u32_into)?),
        5 => Array::I32(numbers::<4, _>(c, LittleEndian::read_i32_into)?),
        6 => Array::F32(numbers::<4, _>(c, LittleEndian::read_f32_into)?),
        7 => {
            let n = c.count(1)?;
            c.charge(n)?;
            Array::Bool(bools(c, n)?)
        }
        8 => Array::Str(strings(c)?),
        9 => {
            return Err(Unnamed { offset: at, kind: ErrorKind::NestedArray });
        }
        10 => Array::U64(numbers::<8, _>(c, LittleEndian::read_u64_into)?),
        11 => Array::I64(numbers::<8, _>(c, LittleEndian::read_i64_into)?),
        12 => Array::F64(numbers::<8, _>(c, LittleEndian::read_f64_into)?),
        other => {
            return Err(Unnamed { offset: at, kind: ErrorKind::ValueType(other) });
        }
    })
}

/// A counted array of numbers of `N` bytes each.
fn numbers<const N: u64, T: Copy + Default>(
    c: &mut Cursor<'_>,
    convert: fn(&[u8], &mut [T]),
) -> Result<Vec<T>, Unnamed> {
    let n = c.count(N)?;
    c.charge(n * N)?;
    let mut out = vec![T::default(); n as usize];
    convert(c.take(n * N)?, &mut out);
    Ok(out)
}

fn bools(c: &mut Cursor<'_>, n: u64) -> Result<Vec<bool>, Unnamed> {
    let at = c.pos();
    let bytes = c.take(n)?;
    if let Some(i) = bytes.iter().position(|&b| b > 1) {
        return Err(Unnamed { offset: at + i as u64, kind: ErrorKind::Bool(bytes[i]) });
    }
    Ok(bytes.iter().map(|&b| b == 1).collect())
}

/// A counted array of strings: one pass for the total length, one to copy.
fn strings(c: &mut Cursor<'_>) -> Result<StrArray, Unnamed> {
    let n = c.count(8)?;
    let mut ahead = c.fork();
    let mut total = 0;
    for _ in 0..n {
        total += ahead.string(u64::MAX)?.len() as u64;
    }
    if total > u64::from(u32::MAX) {
        return c.err(ErrorKind::TooLong { len: total, max: u32::MAX.into() });
    }
    c.charge(total + 4 * n)?;
    let mut out = StrArray::with_capacity(n as usize, total as usize);
    for _ in 0..n {
        let fits = out.push(c.string(u64::MAX)?);
        debug_assert!(fits, "the total was checked");
    }
    Ok(out)
}

pub(crate) fn alignment(meta: &Metadata, limits: &Limits) -> Result<u64, GgufError> {
    match meta.get(KEY_ALIGNMENT) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(a)) if a.is_power_of_two() && u64::from(a) <= limits.alignment => Ok(a.into()),
        Some(&Value::U32(found)) => {
            Err(GgufError::key(KEY_ALIGNMENT, ErrorKind::Alignment { found, max: limits.alignment }))
        }
        Some(v) => Err(GgufError::key(KEY_ALIGNMENT, ErrorKind::WrongType { expected: "u32", found: v.type_name() })),
    }
}

/// A row of the tensor table: its place in the file and its size, beside the tensor.
struct Row {
    /// Where the row and its type start in the file, for messages.
    at: u64,
    type_at: u64,
    /// Size in bytes, for types that trine knows.
    size: Option<u64>,
}

/// The rows of the tensor table, with types as the file has them and without sizes.
fn tensor_table(c: &mut Cursor<'_>, n: u64) -> Result<(Vec<TensorInfo>, Vec<Row>), GgufError> {
    // A tensor's two small vectors live on the heap.
    let row = (size_of::<Row>() + size_of::<TensorInfo>()) as u64 + 8 * MAX_DIMS as u64 + 2 * HEAP + SET_ENTRY;
    c.charge(n.saturating_mul(row)).of(|| "header: number of tensors".into())?;
    let mut tensors = Vec::with_capacity(n as usize);
    let mut rows = Vec::with_capacity(n as usize);
    let mut seen = HashSet::with_capacity(n as usize);
    for i in 0..n {
        let at = c.pos();
        let name = name(c, MAX_NAME).of(|| format!("tensor number {i}: name"))?;
        if !seen.insert(name) {
            let field = format!("tensor '{name}'");
            return Err(GgufError { offset: Some(at), field, kind: ErrorKind::Duplicate });
        }
        c.charge(name.len() as u64).of(|| format!("tensor '{name}'"))?;
        let (info, type_at) = tensor_row(c, name).of(|| format!("tensor '{name}'"))?;
        tensors.push(info);
        rows.push(Row { at, type_at, size: None });
    }
    Ok((tensors, rows))
}

/// One tensor, and where its type stands.
fn tensor_row(c: &mut Cursor<'_>, name: &str) -> Result<(TensorInfo, u64), Unnamed> {
    let at = c.pos();
    let n_dims = c.u32()?;
    if !(1..=MAX_DIMS as u32).contains(&n_dims) {
        return Err(Unnamed { offset: at, kind: ErrorKind::Dimensions(n_dims) });
    }
    let mut shape = Vec::with_capacity(n_dims as usize);
    for index in 0..n_dims as usize {
        let at = c.pos();
        let dim = c.u64()?;
        if dim > i64::MAX as u64 {
            let kind = ErrorKind::NegativeDimension { index, value: dim as i64 };
            return Err(Unnamed { offset: at, kind });
        }
        shape.push(dim);
    }
    let at = c.pos();
    let ty = TypeId(c.u32()?);
    if ty.0 > i32::MAX as u32 {
        return Err(Unnamed { offset: at, kind: ErrorKind::TypeId(ty.0 as i32) });
    }
    let offset = c.u64()?;
    let info = TensorInfo { name: name.to_owned(), shape, ty, offset, bytes: 0 };
    Ok((info, at))
}

/// Bytes of a tensor without padding; `None` for a type that trine does not know.
pub(crate) fn tensor_bytes(ty: TypeId, shape: &[u64]) -> Result<Option<u64>, ErrorKind> {
    let overflow = || ErrorKind::Overflow { shape: shape.to_vec() };
    let fits = |n: Option<u64>| n.filter(|&n| n <= i64::MAX as u64).ok_or_else(overflow);
    let mut elements = 1;
    for &dim in shape {
        elements = fits(u64::checked_mul(elements, dim))?;
    }
    let Some(info) = ty.info() else {
        return Ok(None);
    };
    let columns = shape.first().copied().unwrap_or(1);
    let block = info.block as u64;
    if info.is_per_tensor() {
        // Such sizes follow formulas of their own.
        let rows = shape.iter().skip(1).fold(1, |n: u64, &d| n.saturating_mul(d));
        if ty == TypeId::TL2 && columns < tl2::MIN_COLUMNS {
            return Err(TernaryError::Narrow { columns }.into());
        }
        return fits(info.tensor_bytes(columns, rows)).map(Some);
    }
    if !columns.is_multiple_of(block) {
        return Err(ErrorKind::Block { ty, block, columns });
    }
    let header = elements.checked_div(columns).unwrap_or(0);
    let header = header.checked_mul(info.head as u64);
    let blocks = (elements / block).checked_mul(info.bytes as u64);
    let size = blocks.zip(header);
    fits(size.and_then(|(blocks, header)| blocks.checked_add(header))).map(Some)
}

/// Checks that the tensors lie in the data section one after the other, as ggml demands, and gives
/// those of unknown type what lies between their start and the next. With `partial` the data of tensors
/// of known size may be missing.
fn place(
    tensors: &mut [TensorInfo],
    rows: &[Row],
    alignment: u64,
    data_offset: u64,
    len: u64,
    partial: bool,
) -> Result<(), GgufError> {
    let available = len - data_offset.min(len);
    let mut expected = 0;
    for (i, row) in rows.iter().enumerate() {
        let next = tensors.get(i + 1).map(|t| t.offset);
        let t = &mut tensors[i];
        let refuse = |kind| {
            let field = format!("tensor '{}'", t.name);
            Err(GgufError { offset: Some(row.at), field, kind })
        };
        let offset = t.offset;
        if !offset.is_multiple_of(alignment) {
            return refuse(ErrorKind::Misaligned { offset, alignment });
        }
        if offset != expected {
            return refuse(ErrorKind::Layout { found: offset, expected });
        }
        let bytes = match row.size {
            Some(size) => size,
            None => next.unwrap_or(available).saturating_sub(offset),
        };
        let end = offset.checked_add(bytes);
        let padded = end.and_then(|e| e.checked_next_multiple_of(alignment));
        let (Some(end), Some(padded)) = (end, padded) else {
            return refuse(ErrorKind::Overflow { shape: t.shape.clone() });
        };
        // The last tensor's padding may be missing, its data may not. An unknown type without any
        // byte to it lies past the end or under the tensor after it.
        let empty = t.shape.contains(&0);
        let cut_off = end > available && !(partial && row.size.is_some());
        if cut_off || (row.size.is_none() && bytes == 0 && !empty) {
            let (start, end) = (data_offset.saturating_add(offset), data_offset.saturating_add(end));
            return refuse(ErrorKind::DataTruncated { start, end, len });
        }
        t.bytes = bytes;
        expected = padded;
    }
    Ok(())
}
