//! Samplers that a file recommends: the keys `general.sampling.*`.

use trine_formats::gguf::{Metadata, Value};

use super::options::{SamplerKind, SamplerOption, SamplerOptions};

const PREFIX: &str = "general.sampling.";

/// The keys of numbers behind the prefix, and the options that they are.
const KEYS: [(&str, &str); 11] = [
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("xtc_probability", "xtc_probability"),
    ("xtc_threshold", "xtc_threshold"),
    ("temp", "temperature"),
    ("penalty_last_n", "repeat_last_n"),
    ("penalty_repeat", "repeat_penalty"),
    ("mirostat", "mirostat"),
    ("mirostat_tau", "mirostat_tau"),
    ("mirostat_eta", "mirostat_eta"),
];

/// The options that a file recommends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recommended {
    /// The steps in their order, where it names any.
    pub steps: Option<Vec<SamplerKind>>,
    /// Fields of [`super::OPTIONS`] and their values.
    pub values: Vec<(&'static str, f64)>,
}

/// A value as text; floats with the six decimals that llama.cpp reads them with.
fn text(value: &Value) -> Option<String> {
    Some(match value {
        Value::U8(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::F32(v) => format!("{v:.6}"),
        Value::F64(v) => format!("{v:.6}"),
        _ => return None,
    })
}

impl Recommended {
    /// Reads the keys of a file. Values that are no number or outside of an option's range say nothing, as do names of
    /// steps that nobody knows.
    pub fn of(meta: &Metadata) -> Recommended {
        let number = |(key, field): (&str, &'static str)| {
            let value = meta.get(&format!("{PREFIX}{key}"))?;
            let text = match value {
                Value::Str(text) => text.as_str()?.to_owned(),
                other => text(other)?,
            };
            let option = SamplerOption::by_field(field)?;
            Some((option.field, option.parse(text.trim()).ok()?))
        };
        let sequence = meta.get_str(&format!("{PREFIX}sequence")).ok().flatten();
        let steps =
            sequence.map(|names| names.split(';').filter_map(|name| SamplerKind::by_name(name.trim())).collect());
        Recommended { steps, values: KEYS.into_iter().filter_map(number).collect() }
    }

    /// `options` with these values, for texts in a context of `n_ctx` tokens.
    pub fn apply(&self, mut options: SamplerOptions, n_ctx: usize) -> SamplerOptions {
        if let Some(steps) = &self.steps {
            options.samplers.clone_from(steps);
        }
        for (option, value) in self.values.iter().filter_map(|(field, v)| Some((SamplerOption::by_field(field)?, *v))) {
            option.set(&mut options, value, n_ctx);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Mirostat, MirostatVersion};

    fn of(keys: &[(&str, Value)]) -> SamplerOptions {
        let mut meta = Metadata::default();
        keys.iter().for_each(|(key, value)| meta.set(&format!("{PREFIX}{key}"), value.clone()));
        Recommended::of(&meta).apply(SamplerOptions::default(), 512)
    }

    #[test]
    fn every_key_is_an_option() {
        assert_eq!(of(&[]), SamplerOptions::default());
        let all = of(&[
            ("sequence", Value::str("top_k;temp;what;TOP-P")),
            ("top_k", Value::I32(20)),
            ("top_p", Value::F32(0.9)),
            ("min_p", Value::F32(0.01)),
            ("xtc_probability", Value::F32(0.5)),
            ("xtc_threshold", Value::F32(0.2)),
            ("temp", Value::F32(0.6)),
            ("penalty_last_n", Value::I32(-1)),
            ("penalty_repeat", Value::F32(1.1)),
            ("mirostat", Value::I32(2)),
            ("mirostat_tau", Value::F32(4.0)),
            ("mirostat_eta", Value::F32(0.2)),
        ]);
        let want = SamplerOptions {
            samplers: vec![SamplerKind::TopK, SamplerKind::Temperature, SamplerKind::TopP],
            top_k: 20,
            top_p: 0.9,
            min_p: 0.01,
            xtc_probability: 0.5,
            xtc_threshold: 0.2,
            temp: 0.6,
            repeat_last_n: 512,
            repeat_penalty: 1.1,
            mirostat: Mirostat { version: MirostatVersion::V2, tau: 4.0, eta: 0.2 },
            ..SamplerOptions::default()
        };
        assert_eq!(all, want);
    }

    #[test]
    fn values_are_read_as_text_and_what_is_none_says_nothing() {
        let usual = SamplerOptions::default();
        assert_eq!(of(&[("top_k", Value::str("7"))]).top_k, 7);
        // six decimals
        assert_eq!(of(&[("min_p", Value::F32(4e-7))]).min_p, 0.0);
        for bad in [Value::str("x"), Value::Bool(true), Value::F32(f32::NAN), Value::F32(2.0)] {
            assert_eq!(of(&[("top_p", bad.clone())]), usual, "{bad:?}");
        }
        assert_eq!(of(&[("sequence", Value::U32(3))]), usual);
    }
}
