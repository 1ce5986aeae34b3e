//! Metadata that the user sets: `--override-kv`.

use thiserror::Error;
use trine_formats::gguf::{GgufStr, Value};

/// A part of a request that cannot be read.
#[derive(Error, Debug, PartialEq, Eq)]
#[error("{0}")]
pub struct RecipeError(String);

pub(super) fn bad<T>(message: String) -> Result<T, RecipeError> {
    Err(RecipeError(message))
}

/// A value of `--override-kv`.
#[derive(Clone, PartialEq, Debug)]
pub enum KvValue {
    /// Stored as `u32`.
    Int(i64),
    /// Stored as `f32`.
    Float(f64),
    /// Stored as `bool`.
    Bool(bool),
    /// Stored as a string.
    Str(String),
}

/// `KEY=TYPE:VALUE`.
#[derive(Clone, PartialEq, Debug)]
pub struct KvOverride {
    /// Metadata key.
    pub key: String,
    /// Its new value.
    pub value: KvValue,
}

/// Longest key and longest string value of an override, in bytes: llama.cpp's buffers hold 128.
pub const OVERRIDE_MAX: usize = 127;

impl KvOverride {
    /// Reads `KEY=int:N`, `KEY=float:X`, `KEY=bool:true|false` or `KEY=str:TEXT`.
    pub fn parse(text: &str) -> Result<KvOverride, RecipeError> {
        let form = "write KEY=int:N, KEY=float:X, KEY=bool:true|false or KEY=str:TEXT";
        let Some((key, typed)) = text.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return bad(format!("override '{text}' has no key: {form}"));
        };
        if key.len() > OVERRIDE_MAX {
            return bad(format!("override '{text}': the key is longer than {OVERRIDE_MAX} bytes"));
        }
        if key.starts_with("split.") {
            return bad(format!(
                "override '{text}': split.* says how the file is split and is written by the tool; use --keep-split"
            ));
        }
        let Some((kind, value)) = typed.split_once(':') else {
            return bad(format!("override '{text}' has no type: {form}"));
        };
        let not = |what: &str| RecipeError(format!("override '{text}': '{value}' is not {what}"));
        let value = match kind {
            "int" => {
                let n: i64 = value.parse().map_err(|_| not("an integer"))?;
                let magnitude = n.unsigned_abs();
                if u32::try_from(magnitude).is_err() {
                    return Err(not("within 32 bits, as which it would be stored"));
                }
                if key == "general.alignment" && !magnitude.is_power_of_two() {
                    return Err(not("a power of two"));
                }
                KvValue::Int(n)
            }
            "float" => KvValue::Float(value.parse().map_err(|_| not("a number"))?),
            "bool" => KvValue::Bool(value.parse().map_err(|_| not("true or false"))?),
            "str" if value.len() > OVERRIDE_MAX => {
                return bad(format!("override '{text}': the text is longer than {OVERRIDE_MAX} bytes"));
            }
            "str" => KvValue::Str(value.to_owned()),
            _ => return bad(format!("override '{text}': unknown type '{kind}': {form}")),
        };
        if key == "general.alignment" && !matches!(value, KvValue::Int(_)) {
            return bad(format!("override '{text}': general.alignment is an integer"));
        }
        Ok(KvOverride { key: key.to_owned(), value })
    }

    /// The value as it goes into the file. llama-quantize stores the magnitude of an integer.
    pub fn to_value(&self) -> Value {
        match &self.value {
            KvValue::Int(n) => Value::U32(n.unsigned_abs() as u32),
            KvValue::Float(x) => Value::F32(*x as f32),
            KvValue::Bool(b) => Value::Bool(*b),
            KvValue::Str(s) => Value::Str(GgufStr(s.as_bytes().to_vec())),
        }
    }

    /// A remark where the file will not hold what was written.
    pub fn warning(&self) -> Option<String> {
        match self.value {
            KvValue::Int(n) if n < 0 => Some(format!(
                "override of {}: {n} is stored without its sign, as llama-quantize does: {}",
                self.key,
                n.unsigned_abs()
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides() {
        let value = |text: &str| KvOverride::parse(text).map(|o| o.to_value());
        assert_eq!(value("a.b=int:7"), Ok(Value::U32(7)));
        assert_eq!(value("a.b=int:-7"), Ok(Value::U32(7)));
        assert_eq!(value("a.b=float:1e-5"), Ok(Value::F32(1e-5)));
        assert_eq!(value("a.b=bool:false"), Ok(Value::Bool(false)));
        assert_eq!(value("a.b=str:x=y:z"), Ok(Value::Str(GgufStr(b"x=y:z".to_vec()))));
        let long = format!("a=str:{}", "x".repeat(128));
        for wrong in [
            "a",
            "=int:1",
            "a=1",
            "a=int:x",
            "a=int:4294967296",
            "a=bool:1",
            "a=u8:1",
            "general.alignment=int:48",
            "general.alignment=str:64",
            &long,
        ] {
            assert!(value(wrong).is_err(), "{wrong}");
        }
    }
}
