//! JSON schemas as their authors mean them.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value, json};

use super::error::{GrammarError, MAX_SOURCE};

/// Highest `multipleOf`, without its decimal point: there is a state for every remainder.
const MAX_MULTIPLE: f64 = 100_000.0;
/// Most properties of an object: each may be the next one behind each.
const MAX_PROPERTIES: usize = 1024;

/// The schema with the spaces that it is written with.
pub(super) fn spaced(schema: &Value) -> Result<Value, GrammarError> {
    check_size(schema.to_string().len())?;
    check_numbers(schema)?;
    let Value::Object(map) = schema else {
        return match schema {
            Value::Bool(true) => spaced(&json!({})),
            _ => Err(GrammarError::Refused("a schema is an object".to_owned())),
        };
    };
    let mut map = map.clone();
    add_types(&mut map);
    map.iter_mut().for_each(|(keyword, value)| round_bounds(keyword, value));
    let options = json!({"whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?"});
    map.insert("x-guidance".to_owned(), options);
    Ok(map.into())
}

/// Writes the type that keywords imply where a schema names none. JSON Schema has such keywords say nothing about
/// values of other types; whoever writes `{"items": ...}` means an array.
fn add_types(schema: &mut Map<String, Value>) {
    let has = |name: &str| schema.contains_key(name);
    let free = !["type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf"].iter().any(|name| has(name));
    let closed = schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(true));
    let implied = match free {
        false => None,
        true if has("properties") || closed => Some("object"),
        true if has("items") || has("prefixItems") => Some("array"),
        true if has("pattern") => Some("string"),
        true => None,
    };
    if let Some(name) = implied {
        schema.insert("type".to_owned(), name.into());
    }
    for (keyword, value) in schema {
        // What a schema is not may be of any type.
        let inner: Vec<&mut Value> = match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(named)) => {
                named.values_mut().collect()
            }
            ("prefixItems" | "anyOf" | "oneOf" | "allOf" | "items", Value::Array(several)) => {
                several.iter_mut().collect()
            }
            ("items" | "additionalProperties", one) => vec![one],
            _ => Vec::new(),
        };
        inner.into_iter().filter_map(Value::as_object_mut).for_each(add_types);
    }
}

/// Refuses numbers of a schema that take a state each.
fn check_numbers(schema: &Value) -> Result<(), GrammarError> {
    let refused = |what: String| Err(GrammarError::Refused(what));
    let members = match schema {
        Value::Array(several) => return several.iter().try_for_each(check_numbers),
        Value::Object(members) => members,
        _ => return Ok(()),
    };
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            ("multipleOf", Value::Number(number)) => {
                let mut whole = number.as_f64().unwrap_or(f64::INFINITY);
                while whole.fract() != 0.0 && whole <= MAX_MULTIPLE {
                    whole *= 10.0;
                }
                if whole > MAX_MULTIPLE {
                    return refused(format!("'multipleOf' {number} has digits beyond {MAX_MULTIPLE}"));
                }
            }
            ("properties", Value::Object(named)) if named.len() > MAX_PROPERTIES => {
                return refused(format!("an object has more than {MAX_PROPERTIES} properties"));
            }
            ("enum" | "const", value) => {
                if let Some(number) = long_number(value) {
                    return refused(format!(
                        "'{keyword}' has {number}, which is beyond the whole numbers that are kept"
                    ));
                }
            }
            ("default" | "examples", _) => {}
            (_, inner) => check_numbers(inner)?,
        }
    }
    Ok(())
}

/// Highest whole number up to which all of them are numbers of double precision, by which the crate computes. What is
/// beyond would be written as another number.
const MAX_WHOLE: f64 = (1_u64 << 53) as f64;

/// The first number of a value, or of those in it, that would not be written as it is.
fn long_number(value: &Value) -> Option<&Number> {
    match value {
        Value::Number(number) => {
            let long = number.as_f64().is_none_or(|x| x.fract() == 0.0 && x.abs() > MAX_WHOLE);
            // The first one beyond becomes the highest of them.
            let next = number.as_i64().is_some_and(|n| n.unsigned_abs() > 1 << 53);
            Some(number).filter(|_| long || next)
        }
        Value::Array(several) => several.iter().find_map(long_number),
        Value::Object(members) => members.values().find_map(long_number),
        _ => None,
    }
}

/// Moves whole bounds that are no numbers of double precision to the next one that is, so that nothing beyond the bound
/// is allowed.
fn round_bounds(keyword: &str, value: &mut Value) {
    let up = match keyword {
        "minimum" | "exclusiveMinimum" => true,
        "maximum" | "exclusiveMaximum" => false,
        // Values, which may look like schemas.
        "enum" | "const" | "default" | "examples" => return,
        _ => {
            match value {
                Value::Array(several) => several.iter_mut().for_each(|inner| round_bounds("", inner)),
                Value::Object(members) => members.iter_mut().for_each(|(name, inner)| round_bounds(name, inner)),
                _ => {}
            }
            return;
        }
    };
    let exact = match value {
        Value::Number(number) => number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)),
        // A property of that name.
        Value::Object(members) => {
            members.iter_mut().for_each(|(name, inner)| round_bounds(name, inner));
            None
        }
        _ => None,
    };
    if let Some(exact) = exact.filter(|n| n.unsigned_abs() > 1 << 53) {
        let near = exact as f64;
        let inside = match (near as i128).cmp(&exact) {
            Ordering::Less if up => near.next_up(),
            Ordering::Greater if !up => near.next_down(),
            _ => near,
        };
        *value = json!(inside);
    }
}

/// Refuses a source that is too long.
pub(super) fn check_size(bytes: usize) -> Result<(), GrammarError> {
    if bytes > MAX_SOURCE {
        return Err(GrammarError::TooLong);
    }
    Ok(())
}
