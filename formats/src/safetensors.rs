//! safetensors, the container of Hugging Face checkpoints: the header of one file and the index of many.
//!
//! ```text
//! offset 0    u64 little-endian: n, length of the header
//!        8    n bytes of JSON: { "NAME": {"dtype": "BF16", "shape": [4096, 256], "data_offsets": [0, 2097152]}, … }
//!        8+n  tensor data; data_offsets count from here, row-major, outermost extent first
//! ```
//!
//! The format says that tensors cover the data without holes or overlaps. That is checked here, as is
//! every size against the length of the file, before a single weight is read.

mod read;
mod write;

use serde_json::{Map, Value};
use thiserror::Error;

pub use read::{decode, open};
pub use write::{NewTensor, header};

/// Longest header that is read; the format's own limit.
pub const MAX_HEADER: u64 = 100_000_000;

/// Maximum number of values in a header's JSON: about nine for each of 65 536 tensors, more than any real file has.
/// JSON takes about a hundred bytes of memory for each.
const MAX_VALUES: usize = 640_000;

/// Most extents of a tensor.
const MAX_DIMS: usize = 8;

/// Type of an element.
#[allow(missing_docs, reason = "the names are the format's own")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dtype {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    F16,
    BF16,
    F32,
    F64,
}

impl Dtype {
    const ALL: [(Dtype, &'static str, u64); 16] = [
        (Dtype::Bool, "BOOL", 1),
        (Dtype::U8, "U8", 1),
        (Dtype::I8, "I8", 1),
        (Dtype::U16, "U16", 2),
        (Dtype::I16, "I16", 2),
        (Dtype::U32, "U32", 4),
        (Dtype::I32, "I32", 4),
        (Dtype::U64, "U64", 8),
        (Dtype::I64, "I64", 8),
        (Dtype::F8E4M3, "F8_E4M3", 1),
        (Dtype::F8E5M2, "F8_E5M2", 1),
        (Dtype::F8E8M0, "F8_E8M0", 1),
        (Dtype::F16, "F16", 2),
        (Dtype::BF16, "BF16", 2),
        (Dtype::F32, "F32", 4),
        (Dtype::F64, "F64", 8),
    ];

    /// The name in the header.
    pub fn name(self) -> &'static str {
        Dtype::ALL[self as usize].1
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        Dtype::ALL[self as usize].2
    }

    fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.iter().find(|(_, n, _)| *n == name).map(|(d, ..)| *d)
    }
}

/// One tensor of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Name, unique in the file.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Extents, outermost first: a matrix is `[rows, columns]`. Empty for a scalar.
    pub shape: Vec<u64>,
    /// Start of the data, from the beginning of the file.
    pub offset: u64,
    /// Size of the data.
    pub bytes: u64,
}

/// Why a file or an index was refused.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug, PartialEq, Eq)]
pub enum SafetensorsError {
    #[error("a safetensors file has at least 8 bytes, this one has {0}")]
    TooShort(u64),
    #[error(
        "the header claims {len} bytes, more than the {MAX_HEADER} that the format allows; this is no safetensors file"
    )]
    HeaderTooLong { len: u64 },
    #[error("the header needs {need} bytes and the file has {have}: it was cut off, download it again")]
    HeaderCutOff { need: u64, have: u64 },
    #[error("the header is not JSON: {0}")]
    Json(String),
    #[error("the header is not a JSON object")]
    NotAnObject,
    #[error("the header has more than the {MAX_VALUES} values that are read, which are those of 65536 tensors")]
    TooMany,
    #[error("tensor '{name}': {what}")]
    Entry { name: String, what: &'static str },
    #[error("tensor '{name}': element type '{dtype}' is not known")]
    Dtype { name: String, dtype: String },
    #[error("tensor '{name}' of shape {shape:?} needs {expected} bytes, data_offsets give it {found}")]
    Size { name: String, shape: Vec<u64>, expected: u64, found: u64 },
    #[error("tensor '{name}' starts at byte {start} of the data, where the one before it ends at {end}")]
    Gap { name: String, start: u64, end: u64 },
    #[error("the tensors need {need} bytes and the file has {have}: it was cut off, download it again")]
    DataCutOff { need: u64, have: u64 },
    #[error("the file has {0} bytes after its last tensor")]
    Trailing(u64),
    #[error("the metadata value '{0}' is not text")]
    Metadata(String),
    #[error("the index has no object 'weight_map'")]
    NoWeightMap,
    #[error("the index says that '{tensor}' lies in '{file}', which is not a plain file name")]
    BadShard { tensor: String, file: String },
}

/// Length of the header of a file that starts with `first` and is `file_len` bytes long, the 8 bytes
/// before it not counted.
///
/// # Errors
/// A length that the file or the format does not allow.
pub fn header_len(first: &[u8], file_len: u64) -> Result<u64, SafetensorsError> {
    let Some(first) = first.first_chunk::<8>() else {
        return Err(SafetensorsError::TooShort(file_len));
    };
    let len = u64::from_le_bytes(*first);
    if len > MAX_HEADER {
        return Err(SafetensorsError::HeaderTooLong { len });
    }
    if len + 8 > file_len {
        return Err(SafetensorsError::HeaderCutOff { need: len + 8, have: file_len });
    }
    Ok(len)
}

/// The tensors of a file in byte order of their names. `start` is at least the beginning of the file up
/// to the end of the header, `file_len` the length of the whole file.
///
/// # Errors
/// Anything that would make a tensor's bytes wrong or absent.
pub fn parse(start: &[u8], file_len: u64) -> Result<Vec<Tensor>, SafetensorsError> {
    let (header, data) = object(start, file_len)?;
    let mut tensors = Vec::with_capacity(header.len());
    for (name, entry) in header {
        if name != "__metadata__" {
            tensors.push(tensor(name, &entry, data)?);
        }
    }
    tensors.sort_by(|a, b| (a.offset, a.bytes, &a.name).cmp(&(b.offset, b.bytes, &b.name)));
    // A name that JSON has twice was read once: the other's bytes are a hole, which is found here.
    let mut end = data;
    for t in &tensors {
        if t.offset != end {
            return Err(SafetensorsError::Gap { name: t.name.clone(), start: t.offset - data, end: end - data });
        }
        end += t.bytes;
        if end > file_len {
            let need = tensors.iter().map(|t| t.offset.saturating_add(t.bytes)).max();
            return Err(SafetensorsError::DataCutOff { need: need.unwrap_or(end), have: file_len });
        }
    }
    if end < file_len {
        return Err(SafetensorsError::Trailing(file_len - end));
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// The texts under `__metadata__`, in the order of the file. `start` and `file_len` as for [`parse`].
///
/// # Errors
/// A header that cannot be read, or a value that is no text.
pub fn metadata(start: &[u8], file_len: u64) -> Result<Vec<(String, String)>, SafetensorsError> {
    let (mut header, _) = object(start, file_len)?;
    match header.remove("__metadata__") {
        None => Ok(Vec::new()),
        Some(Value::Object(texts)) => texts
            .into_iter()
            .map(|(key, value)| match value {
                Value::String(text) => Ok((key, text)),
                _ => Err(SafetensorsError::Metadata(key)),
            })
            .collect(),
        Some(_) => Err(SafetensorsError::Metadata("__metadata__".to_owned())),
    }
}

/// The header and where the data starts.
fn object(start: &[u8], file_len: u64) -> Result<(Map<String, Value>, u64), SafetensorsError> {
    let len = header_len(start, file_len)?;
    let data = 8 + len;
    let Some(json) = start.get(8..data as usize) else {
        return Err(SafetensorsError::HeaderCutOff { need: data, have: start.len() as u64 });
    };
    if values(json) > MAX_VALUES {
        return Err(SafetensorsError::TooMany);
    }
    match serde_json::from_slice(json) {
        Ok(Value::Object(header)) => Ok((header, data)),
        Ok(_) => Err(SafetensorsError::NotAnObject),
        Err(e) => Err(SafetensorsError::Json(e.to_string())),
    }
}

/// Approximate number of values in a JSON text, counted before it is parsed: every value in a list or an object follows
/// one of these signs. Signs within texts count too, and no real name has any.
fn values(json: &[u8]) -> usize {
    json.iter().filter(|b| matches!(b, b',' | b'[' | b'{')).count()
}

fn tensor(name: String, entry: &Value, data: u64) -> Result<Tensor, SafetensorsError> {
    let wrong = |what| SafetensorsError::Entry { name: name.clone(), what };
    let dtype = entry.get("dtype").and_then(Value::as_str).ok_or_else(|| wrong("has no dtype"))?;
    let dtype = Dtype::from_name(dtype)
        .ok_or_else(|| SafetensorsError::Dtype { name: name.clone(), dtype: dtype.to_owned() })?;
    let numbers = |key, what| {
        let list = entry.get(key).and_then(Value::as_array);
        list.and_then(|l| l.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()).ok_or_else(|| wrong(what))
    };
    let shape = numbers("shape", "has no shape of whole numbers")?;
    if shape.len() > MAX_DIMS {
        return Err(wrong("has more than 8 dimensions"));
    }
    let offsets = numbers("data_offsets", "has no data_offsets of whole numbers")?;
    let [start, end] = offsets[..] else {
        return Err(wrong("has not two data_offsets"));
    };
    let found = end.checked_sub(start).ok_or_else(|| wrong("ends before it starts"))?;
    let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let expected =
        elements.and_then(|n| n.checked_mul(dtype.bytes())).ok_or_else(|| wrong("has a shape whose size overflows"))?;
    let offset = data
        .checked_add(start)
        .filter(|o| o.checked_add(found).is_some())
        .ok_or_else(|| wrong("has data_offsets that overflow"))?;
    if expected != found {
        return Err(SafetensorsError::Size { name, shape, expected, found });
    }
    Ok(Tensor { name, dtype, shape, offset, bytes: found })
}

/// Which tensor lies in which file, from `model.safetensors.index.json`. Only plain file names are
/// accepted: an index must not lead out of its folder.
///
/// # Errors
/// Not JSON, no map, or a file name that is a path.
pub fn parse_index(json: &[u8]) -> Result<Vec<(String, String)>, SafetensorsError> {
    let index: Value = serde_json::from_slice(json).map_err(|e| SafetensorsError::Json(e.to_string()))?;
    let map = index.get("weight_map").and_then(Value::as_object).ok_or(SafetensorsError::NoWeightMap)?;
    map.iter()
        .map(|(tensor, file)| {
            let name = file.as_str().unwrap_or("");
            let plain = !name.is_empty() && !name.contains(['/', '\\', ':', '\0']) && name != "." && name != "..";
            if plain {
                Ok((tensor.clone(), name.to_owned()))
            } else {
                Err(SafetensorsError::BadShard {
                    tensor: tensor.clone(),
                    file: file.as_str().map_or(file.to_string(), str::to_owned),
                })
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &str, data: usize) -> Vec<u8> {
        let mut f = (json.len() as u64).to_le_bytes().to_vec();
        f.extend_from_slice(json.as_bytes());
        f.resize(f.len() + data, 0);
        f
    }

    fn read(f: &[u8]) -> Result<Vec<Tensor>, String> {
        parse(f, f.len() as u64).map_err(|e| e.to_string())
    }

    const TWO: &str = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
        "a":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}"#;

    #[test]
    fn tensors_come_in_order_of_their_names() {
        let f = file(TWO, 16);
        let t = read(&f).unwrap();
        let data = (f.len() - 16) as u64;
        assert_eq!(t.len(), 2);
        assert_eq!((t[0].name.as_str(), t[0].offset, t[0].bytes), ("a", data + 12, 4));
        assert_eq!((t[1].dtype, &t[1].shape[..], t[1].offset), (Dtype::BF16, &[2, 3][..], data));
    }

    #[test]
    fn the_table_of_types_is_in_the_order_of_the_enum() {
        for (i, (d, name, _)) in Dtype::ALL.iter().enumerate() {
            assert_eq!(*d as usize, i);
            assert_eq!(Dtype::from_name(name), Some(*d));
        }
    }

    #[test]
    fn every_cut_of_a_file_is_an_error() {
        let f = file(TWO, 16);
        for n in 0..f.len() {
            assert!(read(&f[..n]).is_err(), "cut at {n}");
        }
        let mut longer = f.clone();
        longer.push(0);
        assert!(read(&longer).unwrap_err().contains("1 bytes after"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let one = |entry: &str, data| read(&file(&format!("{{\"w\":{entry}}}"), data)).unwrap_err();
        let cases = [
            (r#"{"dtype":"F4","shape":[2],"data_offsets":[0,1]}"#, "element type 'F4' is not known"),
            (r#"{"shape":[2],"data_offsets":[0,1]}"#, "has no dtype"),
            (r#"{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}"#, "no shape of whole numbers"),
            (r#"{"dtype":"F32","shape":[2],"data_offsets":[8,0]}"#, "ends before it starts"),
            (r#"{"dtype":"F32","shape":[2],"data_offsets":[0]}"#, "not two data_offsets"),
            (r#"{"dtype":"F32","shape":[3],"data_offsets":[0,8]}"#, "needs 12 bytes, data_offsets give it 8"),
            (r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#, "size overflows"),
            (r#"{"dtype":"U8","shape":[8],"data_offsets":[18446744073709551607,18446744073709551615]}"#, "overflow"),
            (r#"{"dtype":"F32","shape":[2],"data_offsets":[4,12]}"#, "starts at byte 4"),
            (r#"{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}"#, "more than 8 dimensions"),
            ("3", "has no dtype"),
        ];
        for (entry, message) in cases {
            let e = one(entry, 8);
            assert!(e.contains(message) && e.contains("'w'"), "{entry}: {e}");
        }
        assert_eq!(read(&file("[]", 0)).unwrap_err(), "the header is not a JSON object");
        assert!(read(&file("{", 0)).unwrap_err().contains("not JSON"));
        assert!(read(&[0xff; 16]).unwrap_err().contains("no safetensors file"));
    }

    #[test]
    fn overlaps_and_names_given_twice_are_found() {
        let overlap = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
            "b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#;
        assert!(read(&file(overlap, 6)).unwrap_err().contains("'b' starts at byte 2"));
        let twice = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
            "a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
        assert!(read(&file(twice, 8)).is_err());
    }

    #[test]
    fn nested_json_does_not_overflow_the_stack() {
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(read(&file(&deep, 0)).unwrap_err().contains("not JSON"));
    }

    #[test]
    fn headers_of_countless_tensors_are_refused_before_they_are_parsed() {
        let entry = |i: usize| format!(r#""t{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
        let json = |n| format!("{{{}}}", (0..n).map(entry).collect::<Vec<_>>().join(","));
        assert_eq!(read(&file(&json(1000), 0)).unwrap().len(), 1000);
        assert!(read(&file(&json(200_000), 0)).unwrap_err().contains("65536 tensors"));
    }

    #[test]
    fn an_index_stays_in_its_folder() {
        let index = |file: &str| {
            parse_index(format!("{{\"weight_map\":{{\"w\":{file}}}}}").as_bytes()).map_err(|e| e.to_string())
        };
        assert_eq!(index("\"model-1.safetensors\"").unwrap(), [("w".to_owned(), "model-1.safetensors".to_owned())]);
        for bad in ["\"../x\"", "\"/etc/passwd\"", "\"a/b\"", "\"..\"", "\"\"", "7", "\"c:x\""] {
            assert!(index(bad).unwrap_err().contains("not a plain file name"), "{bad}");
        }
        assert_eq!(parse_index(b"{}").unwrap_err().to_string(), "the index has no object 'weight_map'");
    }
}
