//! Writing the header; the data follows it, tensor after tensor.

use serde_json::{Map, Value, json};

use super::{Dtype, MAX_HEADER, SafetensorsError};

/// A tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewTensor<'a> {
    /// Name, unique in the file.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: &'a [u64],
}

/// Everything before the data of a file with these tensors, in this order: the length, and JSON that is
/// padded so that the data begins at a multiple of 8.
///
/// # Errors
/// A name given twice, or that of the metadata; sizes that overflow; a header longer than the format allows.
pub fn header(metadata: &[(&str, &str)], tensors: &[NewTensor<'_>]) -> Result<Vec<u8>, SafetensorsError> {
    let mut object = Map::new();
    if !metadata.is_empty() {
        let texts = metadata.iter().map(|&(k, v)| (k.to_owned(), Value::from(v)));
        object.insert("__metadata__".to_owned(), Value::Object(texts.collect()));
    }
    let mut end = 0u64;
    for t in tensors {
        let wrong = |what| SafetensorsError::Entry { name: t.name.to_owned(), what };
        let elements = t.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let start = end;
        end = elements
            .and_then(|n| n.checked_mul(t.dtype.bytes()))
            .and_then(|n| n.checked_add(start))
            .ok_or_else(|| wrong("has a shape whose size overflows"))?;
        let entry = json!({
            "dtype": t.dtype.name(),
            "shape": t.shape,
            "data_offsets": [start, end],
        });
        if t.name == "__metadata__" || object.insert(t.name.to_owned(), entry).is_some() {
            return Err(wrong("cannot be in the file twice"));
        }
    }
    let mut json = Value::Object(object).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let len = json.len() as u64;
    if len > MAX_HEADER {
        return Err(SafetensorsError::HeaderTooLong { len });
    }
    let mut out = len.to_le_bytes().to_vec();
    out.append(&mut json);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safetensors::{metadata, parse};

    #[test]
    fn what_is_written_is_read() {
        let tensors = [("b", Dtype::F32, &[2u64, 3][..]), ("a", Dtype::F16, &[5]), ("c", Dtype::U8, &[])];
        let tensors = tensors.map(|(name, dtype, shape)| NewTensor { name, dtype, shape });
        let texts = [("made by", "a \"test\""), ("n", "3")];
        let mut file = header(&texts, &tensors).unwrap();
        assert_eq!(file.len() % 8, 0);
        let data = file.len() as u64;
        file.resize(file.len() + 24 + 10 + 1, 0);
        let read = parse(&file, file.len() as u64).unwrap();
        let places: Vec<_> = read.iter().map(|t| (t.name.as_str(), t.offset - data, t.bytes)).collect();
        assert_eq!(places, [("a", 24, 10), ("b", 0, 24), ("c", 34, 1)]);
        assert_eq!(read[1].shape, [2, 3]);
        let got = metadata(&file, file.len() as u64).unwrap();
        let got: Vec<_> = got.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(got, texts);
        let empty = header(&[], &[]).unwrap();
        assert_eq!(metadata(&empty, empty.len() as u64).unwrap(), []);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let tensor = |name, shape| NewTensor { name, dtype: Dtype::F32, shape };
        for (tensors, message) in [
            (vec![tensor("w", &[1][..]), tensor("w", &[1])], "'w': cannot be in the file twice"),
            (vec![tensor("__metadata__", &[1][..])], "twice"),
            (vec![tensor("w", &[1 << 40, 1 << 40][..])], "size overflows"),
        ] {
            let error = header(&[], &tensors).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn metadata_must_be_texts() {
        for json in [r#"{"__metadata__":3}"#, r#"{"__metadata__":{"a":[1]}}"#] {
            let mut file = (json.len() as u64).to_le_bytes().to_vec();
            file.extend(json.bytes());
            let error = metadata(&file, file.len() as u64).unwrap_err().to_string();
            assert!(error.contains("is not text"), "{error}");
        }
    }
}
