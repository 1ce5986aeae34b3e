//! The facts about a model that mixtures need beside its tensors: a handful of hyper-parameters.

use trine_formats::gguf::{Array, Metadata, Value};

use super::overrides::{KvOverride, KvValue};

/// Hyper-parameters as llama.cpp's loader reads them, `--override-kv` included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// `general.architecture`.
    pub arch: String,
    /// Number of layers, multi-token prediction layers included.
    pub n_layer: i64,
    /// `{arch}.expert_count`, 0 when absent.
    pub n_expert: u32,
    /// Query heads per key-value head in the first layer; 0 when unknown.
    pub n_gqa: u32,
    /// True if llama.cpp classes the model as "70B", where 8 heads share one `attn_v`.
    pub is_70b: bool,
}

impl Facts {
    /// Reads them from the metadata of the first shard.
    pub fn new(meta: &Metadata, overrides: &[KvOverride]) -> Facts {
        let arch = overridden(overrides, "general.architecture")
            .and_then(|v| if let KvValue::Str(s) = v { Some(s.clone()) } else { None })
            .or_else(|| match meta.get("general.architecture") {
                Some(Value::Str(s)) => Some(String::from_utf8_lossy(&s.0).into_owned()),
                _ => None,
            })
            .unwrap_or_default();
        let read = |key: &str| {
            let key = format!("{arch}.{key}");
            match overridden(overrides, &key) {
                Some(KvValue::Int(i)) => Some(*i as u32),
                _ => meta.get(&key).and_then(first_u32),
            }
        };
        // Keys that may be arrays are only overridden when the file has them, and as single values.
        let read_or_array = |key: &str| {
            let value = meta.get(&format!("{arch}.{key}"))?;
            if matches!(value, Value::Array(_)) { first_u32(value) } else { read(key) }
        };

        let blocks = i64::from(read("block_count").unwrap_or(0));
        let n_nextn = i64::from(read("nextn_predict_layers").unwrap_or(0));
        let n_layer = match arch.as_str() {
            // its loops over the same layers count as layers
            "nanbeige" => match i64::from(read("num_loops").unwrap_or(1)) {
                loops if loops > 1 => (blocks - n_nextn).saturating_mul(loops),
                _ => blocks,
            },
            // plus the layer that routes between adapters
            "graniteswitch" => blocks - n_nextn + 1,
            _ => blocks,
        };
        let n_expert = read("expert_count").unwrap_or(0);
        let n_head = read_or_array("attention.head_count").unwrap_or(0);
        let n_head_kv = read_or_array("attention.head_count_kv").unwrap_or(n_head);
        let is_70b = match (arch.as_str(), blocks - n_nextn) {
            ("llama" | "llama-embed", 80) => n_expert != 8 && n_head != n_head_kv,
            ("qwen2" | "deci" | "olmo", 80) | ("jais2", 68) => true,
            _ => false,
        };
        Facts { arch, n_layer, n_expert, n_gqa: n_head.checked_div(n_head_kv).unwrap_or(0), is_70b }
    }
}

/// The override of `key` that llama.cpp's loader uses: the first.
pub fn overridden<'a>(overrides: &'a [KvOverride], key: &str) -> Option<&'a KvValue> {
    overrides.iter().find(|o| o.key == key).map(|o| &o.value)
}

/// An integer, or the first of an array of them.
fn first_u32(value: &Value) -> Option<u32> {
    match value {
        Value::U8(v) => Some(u32::from(*v)),
        Value::I8(v) => u32::try_from(*v).ok(),
        Value::U16(v) => Some(u32::from(*v)),
        Value::I16(v) => u32::try_from(*v).ok(),
        Value::U32(v) => Some(*v),
        Value::I32(v) => u32::try_from(*v).ok(),
        Value::U64(v) => u32::try_from(*v).ok(),
        Value::I64(v) => u32::try_from(*v).ok(),
        Value::Array(Array::U32(v)) => v.first().copied(),
        Value::Array(Array::I32(v)) => v.first().and_then(|&v| u32::try_from(v).ok()),
        Value::Array(Array::Bool(v)) => v.first().map(|&v| u32::from(v)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_formats::gguf::GgufStr;

    fn meta(arch: &str, pairs: &[(&str, u32)]) -> Metadata {
        let mut meta = Metadata::default();
        meta.set("general.architecture", Value::Str(GgufStr(arch.as_bytes().to_vec())));
        for (key, value) in pairs {
            meta.set(&format!("{arch}.{key}"), Value::U32(*value));
        }
        meta
    }

    #[test]
    fn seventy_billion() {
        let base = [("block_count", 80), ("attention.head_count", 64)];
        let mha = Facts::new(&meta("llama", &base), &[]);
        assert!(!mha.is_70b && mha.n_gqa == 1);
        let pairs = [base[0], base[1], ("attention.head_count_kv", 8)];
        let gqa = Facts::new(&meta("llama", &pairs), &[]);
        assert!(gqa.is_70b && gqa.n_gqa == 8);
        assert!(Facts::new(&meta("qwen2", &base), &[]).is_70b);
        assert!(!Facts::new(&meta("qwen3", &base), &[]).is_70b);
    }

    #[test]
    fn overrides_reach_the_facts() {
        let pairs = [("block_count", 6), ("attention.head_count", 4), ("attention.head_count_kv", 2)];
        let int = |key: &str, v| KvOverride { key: key.into(), value: KvValue::Int(v) };
        let facts = Facts::new(&meta("llama", &pairs), &[int("llama.expert_count", 8)]);
        assert_eq!((facts.n_expert, facts.n_gqa, facts.n_layer), (8, 2, 6));
        // a key of heads that the file lacks is not invented
        let facts = Facts::new(&meta("llama", &pairs[..2]), &[int("llama.attention.head_count_kv", 1)]);
        assert_eq!(facts.n_gqa, 1);
    }

    #[test]
    fn heads_per_layer() {
        let mut m = meta("deci", &[("block_count", 2)]);
        m.set("deci.attention.head_count", Value::Array(Array::I32(vec![32, 16])));
        m.set("deci.attention.head_count_kv", Value::Array(Array::I32(vec![0, 8])));
        assert_eq!(Facts::new(&m, &[]).n_gqa, 0);
    }
}
