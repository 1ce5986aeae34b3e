//! Parts of JSON and of its schemas, for calls and their grammars.

use serde_json::Value;

/// Members of a schema that its parts refer to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// `part` of the schema `whole`, with what it may refer to.
pub fn with_definitions(part: &Value, whole: &Value) -> Value {
    let mut part = part.clone();
    if let Value::Object(members) = &mut part {
        for name in DEFINITIONS.iter().filter(|name| whole.get(**name).is_some()) {
            members.entry(*name).or_insert_with(|| whole[*name].clone());
        }
    }
    part
}

/// A part of a text as it stands between the quotation marks of JSON.
pub fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// A text as Lark writes it; nothing for an empty one.
pub fn literal(text: &str) -> String {
    if text.is_empty() { String::new() } else { Value::from(text).to_string() }
}
