//! Metadata: typed values under unique keys, in file order, and the getters that check types.

use std::borrow::Cow;

use super::error::{ErrorKind, GgufError};
use super::strings::{GgufStr, StrArray};

/// A metadata value with its exact type, so that a copy is byte for byte the original.
#[allow(missing_docs, reason = "the names are GGUF's own")]
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(GgufStr),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A homogeneous array. Arrays of arrays are refused, as llama.cpp refuses them.
#[allow(missing_docs, reason = "the names are GGUF's own")]
#[derive(Clone, PartialEq, Debug)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Str(StrArray),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// A string value.
    pub fn str(s: &str) -> Value {
        Value::Str(s.into())
    }

    /// The type's name, for messages: `u32`, `array of str`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "bool",
            Value::Str(_) => "str",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
            Value::Array(a) => match a {
                Array::U8(_) => "array of u8",
                Array::I8(_) => "array of i8",
                Array::U16(_) => "array of u16",
                Array::I16(_) => "array of i16",
                Array::U32(_) => "array of u32",
                Array::I32(_) => "array of i32",
                Array::F32(_) => "array of f32",
                Array::Bool(_) => "array of bool",
                Array::Str(_) => "array of str",
                Array::U64(_) => "array of u64",
                Array::I64(_) => "array of i64",
                Array::F64(_) => "array of f64",
            },
        }
    }

    /// The integer, when the value is of any integer type.
    pub fn as_int(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Str(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i` as a value of its own.
    pub fn value(&self, i: usize) -> Option<Value> {
        Some(match self {
            Array::U8(v) => Value::U8(*v.get(i)?),
            Array::I8(v) => Value::I8(*v.get(i)?),
            Array::U16(v) => Value::U16(*v.get(i)?),
            Array::I16(v) => Value::I16(*v.get(i)?),
            Array::U32(v) => Value::U32(*v.get(i)?),
            Array::I32(v) => Value::I32(*v.get(i)?),
            Array::F32(v) => Value::F32(*v.get(i)?),
            Array::Bool(v) => Value::Bool(*v.get(i)?),
            Array::Str(v) => Value::Str(GgufStr(v.get(i)?.to_vec())),
            Array::U64(v) => Value::U64(*v.get(i)?),
            Array::I64(v) => Value::I64(*v.get(i)?),
            Array::F64(v) => Value::F64(*v.get(i)?),
        })
    }
}

/// Key-value pairs in file order; keys are unique.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
}

impl Metadata {
    pub(crate) fn with_capacity(n: usize) -> Self {
        Metadata { entries: Vec::with_capacity(n) }
    }

    /// Adds a pair whose key is known to be new.
    pub(crate) fn push_new(&mut self, key: String, value: Value) {
        self.entries.push((key, value));
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// All pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no pair.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets `key` the way ggml's `gguf_set_*` does: an existing key is removed and the new pair goes
    /// to the end.
    pub fn set(&mut self, key: &str, value: Value) {
        self.remove(key);
        self.entries.push((key.to_owned(), value));
    }

    /// Sets `key` in its place; at the end where it is new.
    pub fn put(&mut self, key: &str, value: Value) {
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key.to_owned(), value)),
        }
    }

    /// Removes `key`; says whether it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(k, _)| k != key);
        self.entries.len() != before
    }
}

/// Typed getters. `Ok(None)`: the key is absent. `Err`: it is there with another type or out of range.
impl Metadata {
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        pick: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match pick(value) {
            Some(v) => Ok(Some(v)),
            None => Err(GgufError::key(key, ErrorKind::WrongType { expected, found: value.type_name() })),
        }
    }

    fn int<T: TryFrom<i128>>(&self, key: &str, expected: &'static str) -> Result<Option<T>, GgufError> {
        match self.typed(key, expected, Value::as_int)? {
            None => Ok(None),
            Some(v) => match T::try_from(v) {
                Ok(v) => Ok(Some(v)),
                Err(_) => Err(GgufError::key(key, ErrorKind::OutOfRange { value: v, expected })),
            },
        }
    }

    /// Any integer type whose value fits.
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.int(key, "u64")
    }

    /// Any integer type whose value fits.
    pub fn get_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.int(key, "u32")
    }

    /// Any integer type whose value fits.
    pub fn get_i32(&self, key: &str) -> Result<Option<i32>, GgufError> {
        self.int(key, "i32")
    }

    /// `f32` only: llama.cpp takes no other type where it reads a float.
    pub fn get_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "f32", |v| if let Value::F32(v) = v { Some(*v) } else { None })
    }

    /// A boolean.
    pub fn get_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "bool", |v| if let Value::Bool(v) = v { Some(*v) } else { None })
    }

    /// A string that must be UTF-8.
    pub fn get_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.typed(key, "str", |v| if let Value::Str(v) = v { Some(v) } else { None })? {
            None => Ok(None),
            Some(s) => match s.as_str() {
                Some(s) => Ok(Some(s)),
                None => Err(GgufError::key(key, ErrorKind::NotUtf8)),
            },
        }
    }

    /// An array of strings.
    pub fn get_strs(&self, key: &str) -> Result<Option<&StrArray>, GgufError> {
        self.typed(key, "array of str", |v| if let Value::Array(Array::Str(v)) = v { Some(v) } else { None })
    }

    /// An array of `f32`.
    pub fn get_f32s(&self, key: &str) -> Result<Option<&[f32]>, GgufError> {
        self.typed(key, "array of f32", |v| match v {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of booleans.
    pub fn get_bools(&self, key: &str) -> Result<Option<&[bool]>, GgufError> {
        self.typed(key, "array of bool", |v| match v {
            Value::Array(Array::Bool(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of any integer type whose values fit.
    pub fn get_i32s(&self, key: &str) -> Result<Option<Cow<'_, [i32]>>, GgufError> {
        if let Some(Value::Array(Array::I32(v))) = self.get(key) {
            return Ok(Some(Cow::Borrowed(v)));
        }
        Ok(self.ints(key, "array of i32", "i32")?.map(Cow::Owned))
    }

    /// An array of any integer type whose values fit.
    pub fn get_u32s(&self, key: &str) -> Result<Option<Cow<'_, [u32]>>, GgufError> {
        if let Some(Value::Array(Array::U32(v))) = self.get(key) {
            return Ok(Some(Cow::Borrowed(v)));
        }
        Ok(self.ints(key, "array of u32", "u32")?.map(Cow::Owned))
    }

    fn ints<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
        element: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        fn all<T: TryFrom<i128>, S: Copy + Into<i128>>(v: &[S]) -> Result<Vec<T>, i128> {
            v.iter().map(|&x| T::try_from(x.into()).map_err(|_| x.into())).collect()
        }
        let converted = self.typed(key, expected, |v| {
            let Value::Array(a) = v else { return None };
            Some(match a {
                Array::U8(v) => all(v),
                Array::I8(v) => all(v),
                Array::U16(v) => all(v),
                Array::I16(v) => all(v),
                Array::U32(v) => all(v),
                Array::I32(v) => all(v),
                Array::U64(v) => all(v),
                Array::I64(v) => all(v),
                _ => return None,
            })
        })?;
        converted.transpose().map_err(|value| GgufError::key(key, ErrorKind::OutOfRange { value, expected: element }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut m = Metadata::default();
        m.set("small", Value::U8(7));
        m.set("negative", Value::I64(-1));
        m.set("text", Value::str("hello"));
        m.set("bytes", Value::Str(GgufStr(vec![0xff])));
        m.set("types", Value::Array(Array::U8(vec![1, 3])));
        m.set("wide", Value::Array(Array::U64(vec![1, 1 << 40])));
        m
    }

    #[test]
    fn any_integer_type_that_fits_is_taken() {
        let m = sample();
        assert_eq!(m.get_u64("small").unwrap(), Some(7));
        assert_eq!(m.get_i32("negative").unwrap(), Some(-1));
        assert_eq!(m.get_u32("absent").unwrap(), None);
        assert_eq!(m.get_u32("negative").unwrap_err().to_string(), "key 'negative': -1 does not fit u32");
        assert_eq!(m.get_i32s("types").unwrap().unwrap().as_ref(), [1, 3]);
        assert_eq!(m.get_i32s("wide").unwrap_err().to_string(), "key 'wide': 1099511627776 does not fit i32");
    }

    #[test]
    fn a_wrong_type_names_the_key_and_both_types() {
        let m = sample();
        assert_eq!(m.get_f32("text").unwrap_err().to_string(), "key 'text': is of type str, expected f32");
        assert_eq!(m.get_i32s("text").unwrap_err().to_string(), "key 'text': is of type str, expected array of i32");
        assert_eq!(m.get_str("bytes").unwrap_err().to_string(), "key 'bytes': is not valid UTF-8");
    }

    #[test]
    fn set_moves_a_key_to_the_end() {
        let mut m = sample();
        m.set("small", Value::U8(8));
        assert_eq!(m.iter().last(), Some(("small", &Value::U8(8))));
        assert_eq!(m.len(), 6);
    }
}
