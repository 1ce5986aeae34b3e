//! The keys of a quantized file, in the order in which llama-quantize leaves them.

use trine_formats::gguf::{Array, GgufStr, Metadata, StrArray, Value, split};

use super::imatrix::Importance;
use super::overrides::{KvOverride, OVERRIDE_MAX};

/// `GGML_QNT_VERSION`.
const QUANTIZATION_VERSION: u32 = 2;

/// Keys that are added to the source's own.
pub struct Additions<'a> {
    /// `general.file_type`.
    pub file_type: u32,
    /// The user's overrides, in order.
    pub overrides: &'a [KvOverride],
    /// Adds `quantize.imatrix.*`.
    pub importance: Option<&'a Importance>,
    /// The keys that tell how the methods made their tensors.
    pub method: Vec<(&'static str, Value)>,
    /// The key and value of the number of layers, when layers were pruned.
    pub block_count: Option<(String, u32)>,
}

/// The keys of the first (or only) output file: the source's in order without `split.*`, then the
/// version and the file type, overrides, the importance matrix's record, and the new layer count.
pub fn output(source: &Metadata, add: &Additions) -> Metadata {
    let mut out = Metadata::default();
    for (key, value) in source.iter() {
        out.set(key, c_strings(value));
    }
    out.set("general.quantization_version", Value::U32(QUANTIZATION_VERSION));
    out.set("general.file_type", Value::U32(add.file_type));
    let mut out = of_one_file(&out);
    set(&mut out, add.overrides);
    if let Some(importance) = add.importance {
        let text = |s: &[u8]| {
            let s = until_nul(s);
            Value::Str(GgufStr(s[..s.len().min(OVERRIDE_MAX)].to_vec()))
        };
        out.set("quantize.imatrix.file", text(importance.file.as_bytes()));
        if let Some(dataset) = &importance.dataset {
            out.set("quantize.imatrix.dataset", text(dataset));
        }
        out.set("quantize.imatrix.entries_count", Value::U32(importance.len() as u32));
        if importance.chunks > 0 {
            out.set("quantize.imatrix.chunks_count", Value::U32(importance.chunks));
        }
    }
    for (key, value) in &add.method {
        out.set(key, value.clone());
    }
    if let Some((key, n)) = &add.block_count {
        out.set(key, Value::U32(*n));
    }
    out
}

/// The keys of a model that is written into one file.
pub fn of_one_file(source: &Metadata) -> Metadata {
    let mut meta = source.clone();
    for key in [split::KEY_NO, split::KEY_COUNT, split::KEY_TENSORS] {
        meta.remove(key);
    }
    meta
}

/// Sets what the user asked for.
pub fn set(meta: &mut Metadata, overrides: &[KvOverride]) {
    for o in overrides {
        meta.set(&o.key, o.to_value());
    }
}

/// Adds the keys of shard `no` of `count`.
pub fn add_split(meta: &mut Metadata, no: u16, count: u16, tensors: usize) {
    meta.set(split::KEY_NO, Value::U16(no));
    meta.set(split::KEY_COUNT, Value::U16(count));
    meta.set(split::KEY_TENSORS, Value::I32(tensors as i32));
}

/// llama.cpp copies strings as C strings: what follows a zero byte is lost.
pub fn c_strings(value: &Value) -> Value {
    match value {
        Value::Str(s) => Value::Str(GgufStr(until_nul(&s.0).to_vec())),
        Value::Array(Array::Str(strings)) if strings.iter().any(|s| s.contains(&0)) => {
            let mut out = StrArray::default();
            for s in strings.iter() {
                // shorter than what was there, so that it always fits
                let _ = out.push(until_nul(s));
            }
            Value::Array(Array::Str(out))
        }
        other => other.clone(),
    }
}

fn until_nul(s: &[u8]) -> &[u8] {
    s.split(|&b| b == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_keys() {
        let mut source = Metadata::default();
        source.set("general.file_type", Value::U32(1));
        source.set("a", Value::Str(GgufStr(b"x\0y".to_vec())));
        source.set("split.count", Value::U16(2));
        source.set("b", Value::U8(1));
        let overrides = [KvOverride::parse("a=int:-3").unwrap()];
        let add = Additions {
            file_type: 37,
            overrides: &overrides,
            importance: None,
            method: Vec::new(),
            block_count: Some(("llama.block_count".into(), 5)),
        };
        let got: Vec<(String, Value)> = output(&source, &add).iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        let want = [
            ("b", Value::U8(1)),
            ("general.quantization_version", Value::U32(2)),
            ("general.file_type", Value::U32(37)),
            ("a", Value::U32(3)),
            ("llama.block_count", Value::U32(5)),
        ];
        assert_eq!(got, want.map(|(k, v)| (k.to_owned(), v)));
    }

    #[test]
    fn strings_end_at_nul() {
        let mut strings = StrArray::default();
        assert!(strings.push(b"a\0b") && strings.push(b"c"));
        let got = c_strings(&Value::Array(Array::Str(strings)));
        let Value::Array(Array::Str(got)) = got else { panic!("{got:?}") };
        assert_eq!(got.iter().collect::<Vec<_>>(), [b"a", b"c"]);
    }
}
