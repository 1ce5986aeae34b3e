//! The format that the text of a request must have.

use serde_json::Value;
use trine::Grammar;

use super::Unread;
use super::fields::Fields;
use crate::error::ApiError;
use crate::service::{ResponseFormat, Service};

/// The grammar of `response_format`, `json_schema`, `grammar` or one of vLLM's fields, of which a request gives at most
/// one.
///
/// # Errors
/// Names the field: it is of a wrong type, or cannot be enforced.
pub fn grammar(f: &Fields<'_>, service: &Service) -> Result<Option<Grammar>, Unread> {
    let asked = [response_format(f)?, json_schema(f)?, gbnf(f)?, guided(f)?, structured(f)?];
    let mut asked = asked.into_iter().flatten();
    let Some((name, form)) = asked.next() else {
        return Ok(None);
    };
    if let Some((other, _)) = asked.next() {
        return Err(ApiError::field(other, format!("contradicts '{name}'")).into());
    }
    known(service, name, form).map(Some)
}

/// Returns the grammar of the format that the field `name` asks for.
///
/// # Errors
/// There is none; it must be compiled before.
pub fn known(service: &Service, name: &str, form: ResponseFormat) -> Result<Grammar, Unread> {
    match service.grammar(&form) {
        Some(grammar) => grammar.map_err(|e| ApiError::field(name, e).into()),
        None => Err(Unread::Form(form)),
    }
}

/// A field and the format that it asks for.
type Asked = Option<(&'static str, ResponseFormat)>;

fn response_format(f: &Fields<'_>) -> Result<Asked, ApiError> {
    const NAME: &str = "response_format";
    let Some(format) = f.object(NAME)? else {
        return Ok(None);
    };
    let schema = |value: Option<&Value>| value.cloned().map(ResponseFormat::Schema);
    let form = match format.text("type")? {
        Some("text") => return Ok(None),
        Some("json_object") => schema(format.get("schema")).unwrap_or(ResponseFormat::Object),
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
    Ok(schema.map(|s| ("json_schema", ResponseFormat::Schema(s.clone()))))
}

fn gbnf(f: &Fields<'_>) -> Result<Asked, ApiError> {
    let text = f.text("grammar")?.filter(|t| !t.trim().is_empty());
    Ok(text.map(|t| ("grammar", ResponseFormat::Gbnf(t.to_owned()))))
}

/// Returns the format that vLLM's older fields ask for.
fn guided(f: &Fields<'_>) -> Result<Asked, ApiError> {
    const JSON: &str = "guided_json";
    const CHOICE: &str = "guided_choice";
    let schema = f.get(JSON).map(|schema| form_of_json(JSON, schema)).transpose()?;
    let choice = f.list(CHOICE)?.map(|list| form_of_choice(CHOICE, list)).transpose()?;
    match (schema, choice) {
        (Some(_), Some(_)) => Err(ApiError::field(CHOICE, format!("contradicts '{JSON}'"))),
        (schema, choice) => Ok(schema.map(|form| (JSON, form)).or(choice.map(|form| (CHOICE, form)))),
    }
}

/// Returns the format that vLLM's newer field asks for.
fn structured(f: &Fields<'_>) -> Result<Asked, ApiError> {
    const NAME: &str = "structured_outputs";
    let Some(Value::Object(members)) = f.get(NAME) else {
        return Ok(f.object(NAME)?.map(|_| (NAME, ResponseFormat::Object)));
    };
    let mut given = members.iter().filter(|(_, value)| !value.is_null());
    let form = match (given.next(), given.next()) {
        (None, _) => return Ok(None),
        (Some((name, schema)), None) if name == "json" => form_of_json(NAME, schema)?,
        (Some((name, Value::Bool(true))), None) if name == "json_object" => ResponseFormat::Object,
        (Some((name, Value::Array(list))), None) if name == "choice" => form_of_choice(NAME, list)?,
        _ => return Err(ApiError::field(NAME, "must have one of 'json', 'json_object' and 'choice'")),
    };
    Ok(Some((NAME, form)))
}

/// Returns the format of a schema, which may stand in a text.
fn form_of_json(name: &str, schema: &Value) -> Result<ResponseFormat, ApiError> {
    match schema {
        Value::String(text) => serde_json::from_str(text)
            .map(ResponseFormat::Schema)
            .map_err(|_| ApiError::field(name, "the text is no JSON")),
        schema => Ok(ResponseFormat::Schema(schema.clone())),
    }
}

/// Returns the format of one of several texts.
fn form_of_choice(name: &str, list: &[Value]) -> Result<ResponseFormat, ApiError> {
    let texts: Option<Vec<String>> = list.iter().map(|v| v.as_str().map(|_| v.to_string())).collect();
    match texts.filter(|texts| !texts.is_empty()) {
        Some(texts) => Ok(ResponseFormat::Lark(format!("start: {}\n", texts.join(" | ")))),
        None => Err(ApiError::field(name, "must be an array of strings")),
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_str().is_some_and(str::is_empty)
}
