//! Functions that the model may call: `tools` and `tool_choice` of a chat.
//!
//! How a call is written is the model's affair and shows in its template (`syntax`). Where a call must come, a model of
//! which nobody knows how it calls is made to write `{"name": ..., "arguments": ...}`, and one whose template does nothing
//! with functions is told of them in words ([`told`]). A grammar (`lark`) sees to it
//! that a call, once begun, is one of the functions with arguments by its schema, so that [`reader`] never has to guess.

mod function;
mod head;
pub mod ids;
mod lark;
mod loose;
pub mod reader;
mod schema;
mod syntax;
pub mod told;

use std::sync::Arc;

use serde_json::Value;
use trine::Grammar;

use super::fields::{Fields, wrong};
use super::{Unread, structure, thoughts};
use crate::error::ApiError;
use crate::service::{ResponseFormat, Service};
use function::Function;
use syntax::{HERMES, Syntax};

/// The field that has them.
const TOOLS: &str = "tools";
/// Most functions of a request.
const MOST: usize = 128;

/// The functions of a request.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Their descriptions, as the template gets them.
    pub described: Vec<Value>,
    /// How calls are written, where the model may call.
    pub calls: Option<Arc<Calls>>,
    /// True if the model must call a function.
    must: bool,
    /// True if it may call several.
    parallel: bool,
}

/// How the calls of a request are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    syntax: &'static Syntax,
    functions: Vec<Function>,
    /// Control tokens that stand in calls, and in marks of thoughts before them.
    marks: Vec<u32>,
}

impl Tools {
    /// The functions of a request; `None` when it gives none.
    ///
    /// # Errors
    /// Names the field; the model has no template.
    pub fn read(f: &Fields<'_>, service: &Service) -> Result<Option<Tools>, ApiError> {
        let parallel = f.flag("parallel_tool_calls")?.unwrap_or(true);
        let list = f.list("tools")?.unwrap_or_default();
        if list.is_empty() {
            return match f.get("tool_choice") {
                None => Ok(None),
                Some(Value::String(s)) if s == "none" || s == "auto" => Ok(None),
                Some(_) => Err(ApiError::field("tool_choice", "needs 'tools'")),
            };
        }
        if list.len() > MOST {
            return Err(ApiError::field("tools", format!("more than {MOST} functions")));
        }
        let functions: Vec<Function> = list.iter().map(Function::read).collect::<Result<_, _>>()?;
        let template = service.template()?;
        let syntax = match template.knows_tools() {
            true => Syntax::of(template.source()),
            false => &HERMES,
        };
        // Thoughts may stand before calls, and the grammar knows no tokens but those that are shown.
        let thoughts = thoughts::marks(service);
        let shown = |name: &str| syntax.writes(name) || thoughts.is_some_and(|marks| marks.write(name));
        let marks = service.controls().iter().filter(|(_, name)| shown(name)).map(|(id, _)| *id).collect();
        let (choice, allowed) = Choice::read(f, &functions)?;
        let functions = match allowed {
            Some(names) => functions.into_iter().filter(|g| names.contains(&g.name)).collect(),
            None => functions,
        };
        let functions = match &choice {
            Choice::Named(name) => functions.into_iter().filter(|g| g.name == *name).collect(),
            _ => functions,
        };
        let calls = Calls { syntax, functions, marks };
        // A model that may call and of which it is not known how it does writes what it likes.
        let may = choice != Choice::None && (choice != Choice::Auto || syntax.is_known());
        Ok(Some(Tools {
            described: list.to_vec(),
            calls: may.then(|| Arc::new(calls)),
            must: matches!(choice, Choice::Required | Choice::Named(_)),
            parallel: parallel && !matches!(choice, Choice::Named(_)),
        }))
    }

    /// The control tokens by which calls are known; `None` if the model may not call.
    pub fn marks(&self) -> Option<&[u32]> {
        self.calls.as_ref().map(|calls| &calls.marks[..])
    }

    /// Returns true if an answer is a call and nothing else.
    pub fn must_call(&self) -> bool {
        self.must
    }

    /// The grammar of answers that may have calls.
    ///
    /// # Errors
    /// Parameters of a function that cannot be enforced.
    pub fn grammar(&self, service: &Service) -> Result<Option<Grammar>, Unread> {
        let Some(calls) = &self.calls else {
            return Ok(None);
        };
        let lark = lark::lark(calls.syntax, &calls.functions, self.must, self.parallel)
            .map_err(|e| ApiError::field(TOOLS, e))?;
        let form = match calls.marks.is_empty() {
            true => ResponseFormat::Lark(lark),
            false => ResponseFormat::Marked(lark, calls.marks.clone()),
        };
        structure::known(service, TOOLS, form).map(Some)
    }
}

/// The field of the client's choice.
const FIELD: &str = "tool_choice";

/// The client's choice among the functions.
#[derive(Debug, PartialEq)]
enum Choice {
    None,
    Auto,
    Required,
    Named(String),
}

impl Choice {
    /// Reads the choice, and the names of the functions that it leaves where it names some.
    fn read(f: &Fields<'_>, functions: &[Function]) -> Result<(Choice, Option<Vec<String>>), ApiError> {
        if let Some(choice) = f.get(FIELD).filter(|choice| choice["type"] == "allowed_tools") {
            // Responses have the members where chats have one object more.
            let of_chats = &choice["allowed_tools"];
            let choice = if of_chats.is_object() { of_chats } else { choice };
            let name = |tool: &Value| {
                let name = tool["function"]["name"].as_str().or(tool["name"].as_str())?;
                functions.iter().any(|g| g.name == name).then(|| name.to_owned())
            };
            let names = choice["tools"].as_array().map(|list| list.iter().map(name).collect::<Option<Vec<_>>>());
            return match (choice["mode"].as_str(), names) {
                (Some("auto"), Some(Some(names))) => Ok((Choice::Auto, Some(names))),
                (Some("required"), Some(Some(names))) if !names.is_empty() => Ok((Choice::Required, Some(names))),
                _ => Err(ApiError::field(FIELD, "'allowed_tools' has 'mode', auto or required, and some of 'tools'")),
            };
        }
        Choice::one(f, functions).map(|choice| (choice, None))
    }

    fn one(f: &Fields<'_>, functions: &[Function]) -> Result<Choice, ApiError> {
        const WANTED: &str = "\"none\", \"auto\", \"required\" or a function";
        match f.get(FIELD) {
            None => Ok(Choice::Auto),
            Some(Value::String(s)) => match s.as_str() {
                "none" => Ok(Choice::None),
                "auto" => Ok(Choice::Auto),
                "required" => Ok(Choice::Required),
                _ => Err(ApiError::field(FIELD, format!("must be {WANTED}"))),
            },
            Some(object @ Value::Object(_)) => match object["function"]["name"].as_str() {
                Some(name) if functions.iter().any(|g| g.name == name) => Ok(Choice::Named(name.to_owned())),
                Some(_) => Err(ApiError::field(FIELD, "names none of 'tools'")),
                None => Err(ApiError::field(FIELD, format!("must be {WANTED}"))),
            },
            Some(other) => Err(wrong(FIELD, WANTED, other)),
        }
    }
}
