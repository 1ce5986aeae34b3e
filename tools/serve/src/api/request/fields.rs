//! Reading the members of a JSON object by their types.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::ApiError;

type Read<T> = Result<Option<T>, ApiError>;

/// The members of an object. `null` counts as absent.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The members of the body of a request.
    ///
    /// # Errors
    /// The body is no object.
    pub fn of(body: &'a Value) -> Result<Fields<'a>, ApiError> {
        match body {
            Value::Object(map) => Ok(Fields { map }),
            other => Err(ApiError::invalid(format!("the body must be a JSON object, not {}", kind(other)))),
        }
    }

    /// The members of `map`.
    pub fn members(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { map }
    }

    /// A value of any type.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    /// # Errors
    /// It is neither true nor false.
    pub fn flag(&self, name: &str) -> Read<bool> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// A flag that is off where it is absent.
    ///
    /// # Errors
    /// It is neither true nor false.
    pub fn is_set(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    /// # Errors
    /// It is no whole number, or outside of `range`.
    pub fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Read<i64> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        if !value.is_i64() && !value.is_u64() {
            return Err(wrong(name, "a whole number", value));
        }
        let (low, high) = (range.start(), range.end());
        match value.as_i64().filter(|n| range.contains(n)) {
            Some(n) => Ok(Some(n)),
            None if *high == i64::MAX => Err(ApiError::field(name, format!("must be at least {low}"))),
            None => Err(ApiError::field(name, format!("must be from {low} to {high}"))),
        }
    }

    /// A number as the engine computes with it.
    ///
    /// # Errors
    /// It is no number, or too large.
    pub fn number(&self, name: &str) -> Read<f32> {
        let number = self.read(name, "a number", Value::as_f64)?;
        let number = number.map(|n| n as f32);
        match number.filter(|n| !n.is_finite()) {
            Some(_) => Err(ApiError::field(name, "the number is too large")),
            None => Ok(number),
        }
    }

    /// A number, and for one outside of `range` the end of it that is nearer.
    ///
    /// # Errors
    /// As [`Fields::number`].
    pub fn clamped(&self, name: &str, range: RangeInclusive<f32>) -> Read<f32> {
        let number = self.number(name)?;
        Ok(number.map(|n| n.clamp(*range.start(), *range.end())))
    }

    /// # Errors
    /// The field is no text.
    pub fn text(&self, name: &str) -> Read<&'a str> {
        self.read(name, "a string", Value::as_str)
    }

    /// A text of at most `most` bytes.
    ///
    /// # Errors
    /// It is no text, or a longer one.
    pub fn short_text(&self, name: &str, most: usize) -> Read<&'a str> {
        match self.text(name)? {
            Some(text) if text.len() > most => Err(ApiError::field(name, format!("more than {most} bytes"))),
            text => Ok(text),
        }
    }

    /// # Errors
    /// The field is no array.
    pub fn list(&self, name: &str) -> Read<&'a [Value]> {
        self.read(name, "an array", |v| v.as_array().map(Vec::as_slice))
    }

    /// # Errors
    /// The field is no object.
    pub fn object(&self, name: &str) -> Read<Fields<'a>> {
        self.read(name, "an object", |v| v.as_object().map(Fields::members))
    }

    /// An array of texts of at most `most` bytes each.
    ///
    /// # Errors
    /// The field is something else.
    pub fn texts(&self, name: &str, most: usize) -> Read<Vec<String>> {
        let Some(list) = self.list(name)? else {
            return Ok(None);
        };
        let text = |v: &Value| match v.as_str() {
            None => Err(wrong(name, "an array of strings", v)),
            Some(text) if text.len() > most => {
                Err(ApiError::field(name, format!("a string of more than {most} bytes")))
            }
            Some(text) => Ok(text.to_owned()),
        };
        list.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// An array of token ids.
    ///
    /// # Errors
    /// The field is something else.
    pub fn ids(&self, name: &str) -> Read<Vec<u32>> {
        let Some(list) = self.list(name)? else {
            return Ok(None);
        };
        let ids = list.iter().map(|v| id(v).ok_or_else(|| wrong(name, "an array of token ids", v)));
        ids.collect::<Result<_, _>>().map(Some)
    }

    fn read<T>(&self, name: &str, wanted: &str, as_type: impl Fn(&'a Value) -> Option<T>) -> Read<T> {
        let value = self.get(name);
        let read = value.map(|v| as_type(v).ok_or_else(|| wrong(name, wanted, v)));
        read.transpose()
    }
}

/// A token id.
pub fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}

/// The error of a value that is of a wrong type.
pub fn wrong(name: &str, wanted: &str, found: &Value) -> ApiError {
    ApiError::field(name, format!("must be {wanted}, not {}", kind(found)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(n) if n.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_and_ranges() {
        let body = json!({"n": 3, "x": 1.5, "f": true, "s": "t", "null": null, "big": u64::MAX, "huge": 1e300});
        let f = Fields::of(&body).unwrap();
        assert_eq!(f.integer("n", 0..=3), Ok(Some(3)));
        assert_eq!(f.integer("null", 0..=3), Ok(None));
        assert_eq!(f.integer("absent", 0..=3), Ok(None));
        assert_eq!(f.number("n"), Ok(Some(3.0)));
        for (name, message) in [
            ("x", "Field 'x': must be a whole number, not a number with a fraction"),
            ("f", "Field 'f': must be a whole number, not true or false"),
            ("s", "Field 's': must be a whole number, not a string"),
            ("big", "Field 'big': must be from 0 to 3"),
        ] {
            assert_eq!(f.integer(name, 0..=3).unwrap_err().message, message);
        }
        assert!(f.number("huge").is_err());
        assert_eq!(f.clamped("x", 0.0..=1.0), Ok(Some(1.0)));
        assert!(f.clamped("s", 0.0..=1.0).is_err() && f.texts("n", 9).is_err());
        assert!(f.short_text("s", 0).is_err());
        assert!(f.flag("n").is_err() && f.list("s").is_err() && f.object("s").is_err());
    }
}
