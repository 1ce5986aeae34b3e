//! The form that the text of a request must have.

use serde_json::Value;
use trine::Grammar;

use super::fields::Fields;
use crate::error::ApiError;
use crate::service::{Form, Service};

/// The grammar of `response_format`, `json_schema` or `grammar`, of which a request gives at most one.
///
/// # Errors
/// Names the field: it is of a wrong type, or cannot be enforced.
pub fn grammar(f: &Fields<'_>, service: &Service) -> Result<Option<Grammar>, ApiError> {
    let asked = [response_format(f)?, json_schema(f)?, gbnf(f)?];
    let mut asked = asked.into_iter().flatten();
    let Some((name, form)) = asked.next() else {
        return Ok(None);
    };
    if let Some((other, _)) = asked.next() {
        return Err(ApiError::field(other, format!("contradicts '{name}'")));
    }
    let grammar = service.grammar(&form);
    grammar.map(Some).map_err(|e| ApiError::field(name, e))
}

/// A field and the form that it asks for.
type Asked = Option<(&'static str, Form)>;

fn response_format(f: &Fields<'_>) -> Result<Asked, ApiError> {
    const NAME: &str = "response_format";
    let Some(format) = f.object(NAME)? else {
        return Ok(None);
    };
    let schema = |value: Option<&Value>| value.cloned().map(Form::Schema);
    let form = match format.text("type")? {
        Some("text") => return Ok(None),
        Some("json_object") => schema(format.get("schema")).unwrap_or(Form::Object),
        Some("json_schema") => {
            // OpenAI puts the schema one object deeper.
            let inner = format.object("json_schema")?;
            let found = inner.and_then(|inner| inner.get("schema"));
            schema(found.or(format.get("schema")))
                .ok_or_else(|| ApiError::field(NAME, "'json_schema' needs a 'schema', which is an object"))?
        }
        _ => {
            return Err(ApiError::field(NAME, "'type' must be \"text\", \"json_object\" or \"json_schema\""));
        }
    };
    Ok(Some((NAME, form)))
}

fn json_schema(f: &Fields<'_>) -> Result<Asked, ApiError> {
    let schema = f.get("json_schema").filter(|s| !is_empty(s));
    Ok(schema.map(|s| ("json_schema", Form::Schema(s.clone()))))
}

fn gbnf(f: &Fields<'_>) -> Result<Asked, ApiError> {
    let text = f.text("grammar")?.filter(|t| !t.trim().is_empty());
    Ok(text.map(|t| ("grammar", Form::Gbnf(t.to_owned()))))
}

fn is_empty(value: &Value) -> bool {
    value.as_str().is_some_and(str::is_empty)
}
