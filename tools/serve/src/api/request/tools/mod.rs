//! Functions that the model may call: `tools` and `tool_choice` of a chat.
//!
//! How a call is written is the model's affair and shows in its template. Two ways are known: Hermes' and Qwen's
//! `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, and Llama 3's `{"name": ..., "parameters": ...}`. Where a
//! call must come, any other model is made to write `{"name": ..., "arguments": ...}`. A grammar sees to it that a
//! call, once begun, is one of the functions with arguments by its schema, so that [`reader`] never has to guess.

pub mod reader;

use std::sync::Arc;

use serde_json::{Value, json};
use trine::Grammar;

use super::fields::{Fields, wrong};
use super::{Unread, structure};
use crate::error::ApiError;
use crate::service::{ResponseFormat, Service};

/// The field that has them.
const TOOLS: &str = "tools";
/// Most functions of a request.
const MOST: usize = 128;
/// Longest name of a function.
const NAME: usize = 64;

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
    style: Style,
    functions: Vec<Function>,
}

/// A function that may be called.
#[derive(Clone, Debug, PartialEq)]
struct Function {
    name: String,
    parameters: Value,
}

/// Syntax in which a model writes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// `<tool_call>`, a line break, an object, a line break, `</tool_call>`.
    Hermes,
    /// An object whose arguments are called parameters, and nothing else.
    Llama,
    /// An object and nothing else.
    Bare,
}

impl Style {
    fn of(template: &str) -> Style {
        if template.contains(OPEN) {
            Style::Hermes
        } else if template.contains("<|python_tag|>") || template.contains("\"parameters\": ") {
            Style::Llama
        } else {
            Style::Bare
        }
    }

    /// The texts before and after an object.
    fn around(self) -> (&'static str, &'static str) {
        match self {
            Style::Hermes => ("<tool_call>\n", "\n</tool_call>"),
            Style::Llama | Style::Bare => ("", ""),
        }
    }
}

/// Where a call of Hermes begins.
const OPEN: &str = "<tool_call>";

impl Tools {
    /// The functions of a request; `None` when it gives none.
    ///
    /// # Errors
    /// Names the field; the model's template knows no functions.
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
        let functions: Vec<Function> = list.iter().map(function).collect::<Result<_, _>>()?;
        let template = service.template()?;
        if !template.knows_tools() {
            return Err(ApiError::field("tools", "the chat template of the model does nothing with functions"));
        }
        let style = Style::of(template.source());
        let (choice, allowed) = Choice::read(f, &functions)?;
        let functions = match allowed {
            Some(names) => functions.into_iter().filter(|g| names.contains(&g.name)).collect(),
            None => functions,
        };
        let functions = match &choice {
            Choice::Named(name) => functions.into_iter().filter(|g| g.name == *name).collect(),
            _ => functions,
        };
        let calls = Calls { style, functions };
        // A model that may call and of which it is not known how it does writes what it likes.
        let may = choice != Choice::None && !(choice == Choice::Auto && style == Style::Bare);
        Ok(Some(Tools {
            described: list.to_vec(),
            calls: may.then(|| Arc::new(calls)),
            must: matches!(choice, Choice::Required | Choice::Named(_)),
            parallel: parallel && !matches!(choice, Choice::Named(_)),
        }))
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
        let lark = calls.lark(self.must, self.parallel).map_err(|e| ApiError::field(TOOLS, e))?;
        structure::known(service, TOOLS, ResponseFormat::Lark(lark)).map(Some)
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

fn function(tool: &Value) -> Result<Function, ApiError> {
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

impl Calls {
    /// The text before the arguments of a call of `function`.
    fn head(&self, function: &Function) -> String {
        let arguments = match self.style {
            Style::Llama => "parameters",
            Style::Hermes | Style::Bare => "arguments",
        };
        let open = self.style.around().0;
        format!("{open}{{\"name\": \"{}\", \"{arguments}\": ", function.name)
    }

    /// The text after them.
    fn tail(&self) -> String {
        format!("}}{}", self.style.around().1)
    }

    /// The answers that there may be, in Lark: calls, where they need not come among or instead of text.
    fn lark(&self, must: bool, parallel: bool) -> Result<String, trine::grammar::GrammarError> {
        let mut out = String::new();
        let names: Vec<String> = (0..self.functions.len()).map(|i| format!("f{i}")).collect();
        // A call in the middle of a text has its beginning from the rule of the text.
        let begun = if must { "" } else { self.begun() };
        for (function, name) in self.functions.iter().zip(&names) {
            let head = self.head(function);
            let head = json!(head.strip_prefix(begun).unwrap_or(&head));
            let (tail, schema) = (json!(self.tail()), Grammar::inline(&function.parameters)?);
            out += &format!("{name}: {head} {schema} {tail}\n");
        }
        out += &format!("call: {}\n", names.join(" | "));
        let several = parallel && self.style == Style::Hermes;
        out += match (must, self.style, several) {
            (true, _, false) => "start: call\n",
            (true, _, true) => "start: call (\"\\n\" call)*\n",
            (false, Style::Hermes, true) => "start: (begin call)* text\n",
            (false, Style::Hermes, false) => "start: text | begin call\n",
            (false, ..) => "start: call | /([^{](?s:.)*)?/\n",
        };
        if !must && self.style == Style::Hermes {
            out += "text: TEXT\nTEXT: /(?s:.)*/\nbegin[lazy]: TEXT \"<tool_call>\"\n";
        }
        Ok(out)
    }

    /// The part of a call that ends a text before it.
    fn begun(&self) -> &'static str {
        match self.style {
            Style::Hermes => OPEN,
            Style::Llama | Style::Bare => "",
        }
    }
}
