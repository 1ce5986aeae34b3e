//! Options of texts: the keywords that `generate`, `stream`, `chat` and `stream_chat` share.
//!
//! Those of the sampler are read from the library's table, so that each has its range and its default there and nowhere
//! else. Names are llama-cpp-python's wherever it has the same option.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use trine::quant::nearest;
use trine::sample::{OPTIONS, SamplerKind, SamplerOption};
use trine::{ContextOptions, DryOptions, GenerateOptions, Grammar};

use crate::error::failed;
use crate::loaded::Loaded;
use crate::values::{Words, json};

/// Keywords beside those of the sampler's table.
const OTHERS: [&str; 11] = [
    "seed",
    "stop",
    "grammar",
    "json_schema",
    "logit_bias",
    "samplers",
    "dry_sequence_breakers",
    "ignore_eos",
    "logprobs",
    "bits",
    "n_ctx",
];

/// The name of an option of the table in Python.
fn name(option: &SamplerOption) -> &'static str {
    if option.field == "mirostat" { "mirostat_mode" } else { option.field }
}

/// All keywords, in the order of the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    OTHERS.into_iter().chain(OPTIONS.iter().map(name))
}

/// A value that is not what its option is made of.
fn wrong_type(name: &str, wanted: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let found = value.get_type().name().map_or_else(|_| "another type".to_owned(), |n| n.to_string());
    PyTypeError::new_err(format!("{name} must be {wanted}, not {found}"))
}

/// A value that is outside of its range.
fn out_of_range(name: &str, wanted: &str, value: &Bound<'_, PyAny>) -> PyErr {
    PyValueError::new_err(format!("{name} must be {wanted}, not {value}"))
}

/// A whole number from `low` to `high`.
///
/// # Errors
/// A `TypeError` or a `ValueError` that names the option.
pub fn whole(name: &str, value: &Bound<'_, PyAny>, low: i64, high: i64) -> PyResult<i64> {
    // True is an int in Python, and never what was meant.
    let number = if value.is_instance_of::<PyBool>() { None } else { value.call_method0("__index__").ok() };
    let number = number.ok_or_else(|| wrong_type(name, "an int", value))?;
    match number.extract::<i64>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(out_of_range(name, &span(low as f64, high as f64), value)),
    }
}

/// A range in words.
fn span(low: f64, high: f64) -> String {
    let has_low = low > f64::from(f32::MIN) && low != f64::from(i32::MIN);
    let has_high = high < i64::MAX as f64 && high != f64::from(i32::MAX);
    // The ends of ranges of floats are those of single precision.
    let shown = |end: f64| if end.fract() == 0.0 { end.to_string() } else { (end as f32).to_string() };
    let (low, high) = (shown(low), shown(high));
    match (has_low, has_high) {
        (true, true) => format!("from {low} to {high}"),
        (true, false) => format!("{low} or more"),
        (false, true) => format!("at most {high}"),
        (false, false) => "a finite number".to_owned(),
    }
}

/// The value of an option of the table.
fn number(option: &SamplerOption, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let (name, range) = (name(option), option.range);
    if range.whole {
        return Ok(whole(name, value, range.low as i64, range.high as i64)? as f64);
    }
    let number = if value.is_instance_of::<PyBool>() { None } else { value.extract::<f64>().ok() };
    let number = number.ok_or_else(|| wrong_type(name, "a float", value))?;
    let number = f64::from(number as f32);
    match number.is_finite() && (range.low..=range.high).contains(&number) {
        true => Ok(number),
        false => Err(out_of_range(name, &span(range.low, range.high), value)),
    }
}

/// A text, or several.
fn texts(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match value.extract::<Words>() {
        Ok(words) => Ok(words.into()),
        Err(_) => Err(wrong_type(name, "a str or a list of str", value)),
    }
}

/// A text.
fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = value.cast::<PyString>().map_err(|_| wrong_type(name, "a str", value))?;
    text.extract()
}

/// How a text is generated, and in which context.
pub struct Wanted {
    /// Options of the text.
    pub generate: GenerateOptions,
    /// Size of the context.
    pub context: ContextOptions,
}

impl Wanted {
    /// Reads `keywords` for a text of `model`; `function` is the one that was called with them.
    ///
    /// # Errors
    /// A `TypeError` or a `ValueError` that names the keyword; a grammar that cannot be followed.
    pub fn read(
        model: &Loaded,
        function: &str,
        max_tokens: Option<i64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Wanted> {
        let mut wanted = Wanted { generate: GenerateOptions::default(), context: ContextOptions::default() };
        wanted.generate.sampler.banned = model.suppressed_tokens().to_vec();
        // A number below 0 asks for no limit, as in llama.cpp.
        wanted.generate.max_tokens = max_tokens.and_then(|n| usize::try_from(n).ok());
        // Other options are counted in parts of it.
        if let Some(n_ctx) = keywords.map(|k| k.get_item("n_ctx")).transpose()?.flatten().filter(|n| !n.is_none()) {
            wanted.set(model, "n_ctx", &n_ctx)?;
        }
        let mut grammar = None;
        for (key, value) in keywords.into_iter().flatten() {
            let key: String = key.extract()?;
            if !names().any(|name| name == key) {
                let near = nearest(&key, names()).map_or(String::new(), |near| format!("; did you mean '{near}'?"));
                let what = format!("{function}() got an unexpected keyword argument '{key}'{near}");
                return Err(PyTypeError::new_err(what));
            }
            // None stands for the default.
            if value.is_none() {
                continue;
            }
            if let "grammar" | "json_schema" = key.as_str() {
                if grammar.is_some() {
                    return Err(PyValueError::new_err("grammar and json_schema exclude one another"));
                }
                grammar = Some((key, value));
                continue;
            }
            wanted.set(model, &key, &value)?;
        }
        if let Some((key, value)) = grammar {
            wanted.generate.grammar = Some(self::grammar(model, &key, &value)?);
        }
        Ok(wanted)
    }

    fn set(&mut self, model: &Loaded, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let options = &mut self.generate;
        match key {
            "seed" => options.sampler.seed = whole(key, value, 0, i64::from(u32::MAX))? as u32,
            "stop" => options.stop = texts(key, value)?,
            "ignore_eos" => {
                options.ignore_eos = value.extract().map_err(|_| wrong_type(key, "True or False", value))?;
            }
            "logprobs" => options.logprobs = Some(whole(key, value, 0, i64::from(i32::MAX))? as usize),
            "bits" => options.bits = Some(whole(key, value, 1, 8)? as u8),
            "n_ctx" => self.context.n_ctx = Some(whole(key, value, 1, i64::from(i32::MAX))? as usize),
            "logit_bias" => options.sampler.logit_bias = biases(model, value)?,
            "samplers" => options.sampler.samplers = steps(&texts(key, value)?)?,
            "dry_sequence_breakers" => {
                options.sampler.dry.breakers = model.dry_breakers(&texts(key, value)?);
            }
            _ => {
                let option = OPTIONS.iter().find(|option| name(option) == key);
                let option = option.ok_or_else(|| PyTypeError::new_err(format!("'{key}' is no option")))?;
                let n_ctx = self.context.n_ctx.unwrap_or(model.n_ctx_train());
                let number = number(option, value)?;
                if key == "repeat_penalty" && number <= 0.0 {
                    return Err(out_of_range(key, "above 0", value));
                }
                option.set(&mut options.sampler, number, n_ctx);
                if key == "dry_multiplier" && options.sampler.dry.breakers == Default::default() {
                    options.sampler.dry.breakers = model.dry_breakers(&DryOptions::BREAKERS);
                }
            }
        }
        Ok(())
    }
}

fn grammar(model: &Loaded, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Grammar> {
    let vocabulary = model.vocabulary()?;
    let grammar = match key {
        "grammar" => Grammar::gbnf(vocabulary, &text(key, value)?),
        _ if value.is_instance_of::<PyBool>() && value.is_truthy()? => Grammar::json_object(vocabulary),
        _ if value.is_instance_of::<PyDict>() => Grammar::json_schema(vocabulary, &json(value)?),
        _ => return Err(wrong_type(key, "a dict, or True for any JSON object", value)),
    };
    grammar.map_err(|e| failed(format!("{key}: {e}")))
}

fn biases(model: &Loaded, value: &Bound<'_, PyAny>) -> PyResult<Vec<(u32, f32)>> {
    let wrong = || wrong_type("logit_bias", "a dict of token ids and floats", value);
    let n_vocab = model.tokenizer().n_vocab() as i64;
    let dict = value.cast::<PyDict>().map_err(|_| wrong())?;
    let mut out = Vec::new();
    for (token, bias) in dict {
        let id = whole("a token of logit_bias", &token, 0, n_vocab - 1)? as u32;
        out.push((id, bias.extract().map_err(|_| wrong())?));
    }
    Ok(out)
}

fn steps(names: &[String]) -> PyResult<Vec<SamplerKind>> {
    let step = |name: &String| {
        SamplerKind::by_name(name).ok_or_else(|| {
            let known: Vec<&str> = SamplerKind::names().collect();
            PyValueError::new_err(format!("samplers: there is no step '{name}'; there are {}", known.join(", ")))
        })
    };
    names.iter().map(step).collect()
}
