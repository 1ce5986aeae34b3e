//! `config.json`: hyper-parameters by name, with the defaults of the model classes.

use serde_json::{Map, Value};

use super::error::ConvertError;

/// The values of `config.json`. In a multimodal model, `text_config` comes before the top level.
pub(super) struct HParams {
    map: Map<String, Value>,
}

/// Where the numbers of the text part of a model stand (`ModelBase.load_hparams` of the reference).
const TEXT: &[&[&str]] = &[
    &["thinker_config", "text_config"],
    &["llm_config"],
    &["language_config"],
    &["lm_config"],
    &["text_config"],
    // of drafters
    &["transformer_layer_config"],
];

fn wrong(what: String) -> ConvertError {
    ConvertError::Config(what)
}

impl HParams {
    pub fn new(config: Value) -> Result<HParams, ConvertError> {
        let Value::Object(mut map) = config else {
            return Err(wrong("is not a JSON object".into()));
        };
        for within in TEXT {
            let text = match *within {
                [outer, inner] => map.get(*outer).and_then(|o| o.get(*inner)).cloned(),
                [name, ..] => map.remove(*name),
                [] => None,
            };
            let Some(Value::Object(text)) = text else { continue };
            for (key, value) in text {
                // the class of the whole model decides, not that of its text part; and the reference looks for special
                // tokens in one such part alone
                let of_token = key.ends_with("_token_id") && *within != ["text_config"];
                if key != "architectures" && !of_token {
                    map.insert(key, value);
                }
            }
            break;
        }
        Ok(HParams { map })
    }

    /// The value; `null` counts as absent. A key with a point is within an object, or an entry of a list.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let mut parts = key.split('.');
        let outer = self.map.get(parts.next()?);
        let found = parts.fold(outer, |value, part| value.and_then(|v| entry(v, part)));
        found.filter(|v| !v.is_null())
    }

    /// All values.
    pub fn all(&self) -> &Map<String, Value> {
        &self.map
    }

    /// The class of the model, the first of `architectures`.
    pub fn class(&self) -> Result<&str, ConvertError> {
        let list = self.get("architectures").and_then(Value::as_array);
        list.and_then(|l| l.first())
            .and_then(Value::as_str)
            .ok_or_else(|| wrong("has no 'architectures', which names the class of the model".into()))
    }

    pub fn u32(&self, key: &str) -> Result<Option<u32>, ConvertError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let n = value.as_u64().and_then(|n| u32::try_from(n).ok());
        n.map(Some).ok_or_else(|| wrong(format!("'{key}' is {value}, expected a whole number below 2^32")))
    }

    /// The first of `keys` that is there.
    pub fn first<'k>(&self, keys: &[&'k str]) -> Option<&'k str> {
        keys.iter().copied().find(|k| self.get(k).is_some())
    }

    /// The number of the first of `keys` that is there.
    pub fn find(&self, keys: &[&str]) -> Result<Option<u32>, ConvertError> {
        self.first(keys).map_or(Ok(None), |k| self.u32(k))
    }

    /// The same, at least 1 and at most `max`; where `config.json` says nothing, `or` is taken.
    pub fn size(&self, keys: &[&str], or: Option<u32>, max: u32) -> Result<u32, ConvertError> {
        let stated = self.first(keys);
        let n = match (stated, or) {
            (None, Some(n)) => return Ok(n),
            (Some(key), _) => self.need(key)?,
            (None, None) => {
                let names = keys.join("' or '");
                return Err(wrong(format!("has no '{names}'")));
            }
        };
        at_most(stated.unwrap_or(keys[0]), n, max)
    }

    /// A number that must be there and above 0.
    pub fn need(&self, key: &str) -> Result<u32, ConvertError> {
        match self.u32(key)? {
            Some(0) => Err(wrong(format!("'{key}' is 0"))),
            Some(n) => Ok(n),
            None => Err(wrong(format!("has no '{key}'"))),
        }
    }

    /// A whole number, or the first of a list whose numbers are all the same.
    pub fn whole(&self, key: &str) -> Result<u32, ConvertError> {
        let Some(Value::Array(all)) = self.get(key) else {
            return self.need(key);
        };
        let first = all.first().and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        match first.filter(|_| all.iter().all(|n| n == &all[0])) {
            Some(n) => Ok(n),
            None => Err(wrong(format!("'{key}' is a list of different numbers, and the file has one for all blocks"))),
        }
    }

    /// A list of texts, one for every block; `None` where there is none.
    pub fn texts(&self, key: &str, layers: u32) -> Result<Option<Vec<&str>>, ConvertError> {
        let Some(Value::Array(all)) = self.get(key) else {
            return Ok(None);
        };
        if all.len() != layers as usize {
            return Err(wrong(format!("'{key}' has {} entries, and there are {layers} layers", all.len())));
        }
        Ok(Some(all.iter().map(|t| t.as_str().unwrap_or_default()).collect()))
    }

    /// The kinds of all blocks by letters, as a pattern has them (`M` Mamba 2, `*` attention, `E` experts, `-` a dense
    /// network), or lists that name them; `None` where nothing says them.
    pub fn kinds(&self, pattern: &str) -> Option<Vec<char>> {
        let letter = |kind: &Value| match kind.as_str().unwrap_or_default() {
            "mamba" | "linear_attention" => 'M',
            "attention" | "full_attention" => '*',
            "moe" => 'E',
            _ => ' ',
        };
        let named = |v: &Value| letter(v.get("block_type").unwrap_or(&Value::Null));
        let configs = self.get("block_configs").and_then(Value::as_array);
        let names = || Some(self.get("layers_block_type")?.as_array()?.iter().map(letter).collect());
        let letters = || Some(self.str(pattern)?.chars().collect());
        configs.map(|all| all.iter().map(named).collect()).or_else(letters).or_else(names)
    }

    /// A number of every entry of `block_configs`, 0 where one has none.
    pub fn of_blocks(&self, key: &str) -> Option<Vec<u32>> {
        let all = self.get("block_configs")?.as_array()?.iter();
        Some(all.map(|v| v.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)).collect())
    }

    pub fn f32(&self, key: &str) -> Result<Option<f32>, ConvertError> {
        self.get(key).map(|v| number(key, v)).transpose()
    }

    pub fn f64(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let finite = value.as_f64().filter(|v| v.is_finite());
        finite.map(Some).ok_or_else(|| wrong(format!("'{key}' is {value}, expected a number")))
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, ConvertError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value.as_bool().map(Some).ok_or_else(|| wrong(format!("'{key}' is {value}, expected true or false")))
    }

    pub fn str(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }

    /// How a router's scores become weights, as the number of GGUF, where the function is named.
    pub fn gating(&self) -> Result<Option<u32>, ConvertError> {
        const NAMES: [&str; 6] = [
            "score_function",
            "scoring_func",
            "score_func",
            "moe_router_activation",
            "moe_router_activation_func",
            "expert_selection_fn",
        ];
        let Some(key) = self.first(&NAMES) else {
            return Ok(None);
        };
        match self.str(key) {
            Some("softmax") => Ok(Some(1)),
            Some("sigmoid") => Ok(Some(2)),
            Some("sqrtsoftplus") => Ok(Some(4)),
            other => {
                let other = other.unwrap_or_default();
                Err(wrong(format!("'{key}' is '{other}'; known are softmax, sigmoid and sqrtsoftplus")))
            }
        }
    }
}

/// An entry of an object, or of a list by its number.
fn entry<'v>(value: &'v Value, part: &str) -> Option<&'v Value> {
    match value {
        Value::Array(all) => all.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    }
}

/// Refuses a number that no model has, before anything is made that size.
pub(super) fn at_most(key: &str, n: u32, max: u32) -> Result<u32, ConvertError> {
    if n <= max {
        return Ok(n);
    }
    Err(wrong(format!("'{key}' is {n}, more than the {max} that a model can have here")))
}

/// A finite number as the f32 that the file will hold.
pub(super) fn number(key: &str, value: &Value) -> Result<f32, ConvertError> {
    value
        .as_f64()
        .map(|v| v as f32)
        .filter(|v| v.is_finite())
        .ok_or_else(|| wrong(format!("'{key}' is {value}, expected a number")))
}
