//! Descriptions of functions.

use serde_json::{Value, json};

use crate::error::ApiError;

/// Longest name of a function.
const NAME: usize = 64;

/// A function that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    /// The schema of its arguments.
    pub parameters: Value,
}

impl Function {
    /// Reads the description of a function.
    ///
    /// # Errors
    /// It is none.
    pub fn read(tool: &Value) -> Result<Function, ApiError> {
        let wanted = |what: &str| ApiError::field("tools", what);
        if tool["type"] != "function" {
            return Err(wanted("only tools with \"type\": \"function\""));
        }
        let described = &tool["function"];
        let plain = |name: &&str| {
            let letters = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
            (1..=NAME).contains(&name.len()) && name.bytes().all(letters)
        };
        let Some(name) = described["name"].as_str().filter(plain) else {
            return Err(wanted("every function needs a name of at most 64 letters, digits, '_', '-' and '.'"));
        };
        let parameters = match &described["parameters"] {
            Value::Null => json!({"type": "object", "properties": {}}),
            schema @ Value::Object(_) => schema.clone(),
            _ => return Err(wanted("'parameters' must be an object, a JSON schema")),
        };
        Ok(Function { name: name.to_owned(), parameters })
    }
}
