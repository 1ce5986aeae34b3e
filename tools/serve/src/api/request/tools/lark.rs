//! The grammar of answers with calls, in llguidance's Lark.

use serde_json::{Map, Value};
use trine::Grammar;
use trine::grammar::GrammarError;

use super::function::Function;
use super::head::NUMBER;
use super::loose;
use super::schema::{literal, with_definitions};
use super::syntax::{Arguments, Syntax};

/// The answers that there may be: calls of `functions` alone where they `must` come, and several of them where these may
/// be `parallel`; else calls behind a text or instead of one.
///
/// # Errors
/// A schema that cannot be enforced.
pub fn lark(syntax: &Syntax, functions: &[Function], must: bool, parallel: bool) -> Result<String, GrammarError> {
    let mut rules = Rules { syntax, out: String::new(), texts: false };
    // A call in the middle of a text has its beginning from the rule of the text.
    let begun = if must { "" } else { syntax.mark };
    let sectioned = !syntax.before.is_empty();
    for (i, function) in functions.iter().enumerate() {
        let head = syntax.head(&function.name);
        let head = if sectioned { &head } else { head.strip_prefix(begun).unwrap_or(&head) };
        let head = head.split(NUMBER).map(literal).collect::<Vec<_>>().join(" /[0-9]{1,3}/ ");
        let arguments = rules.arguments(i, &function.parameters)?;
        rules.out += &format!("f{i}: {head} {arguments} {}\n", literal(syntax.close));
    }
    let names: Vec<String> = (0..functions.len()).map(|i| format!("f{i}")).collect();
    let mut out = rules.out;
    out += &format!("call: {}\n", names.join(" | "));
    let more = match syntax.between.filter(|_| parallel) {
        Some(between) => format!("call ({} call)*", literal(between)),
        None => "call".to_owned(),
    };
    let before = syntax.before.strip_prefix(begun).unwrap_or(syntax.before);
    let section = format!("{} {more} {}", literal(before), literal(syntax.behind));
    out += &match (must, syntax.mark) {
        (true, _) => format!("start: {section}\n"),
        (false, "") => "start: call | /([^{](?s:.)*)?/\n".to_owned(),
        (false, _) if sectioned => format!("start: text | begin {section}\n"),
        (false, _) if parallel => "start: (begin call)* text\n".to_owned(),
        (false, _) => "start: text | begin call\n".to_owned(),
    };
    let lazy = !must && !syntax.mark.is_empty();
    if lazy {
        out += &format!("text: TEXT\nbegin[lazy]: TEXT {}\n", literal(syntax.mark));
    }
    if lazy || rules.texts {
        out += "TEXT: /(?s:.*)/\n";
    }
    Ok(out)
}

/// Rules that come into being.
struct Rules<'a> {
    syntax: &'a Syntax,
    out: String,
    /// True if one of them names the rule of any text.
    texts: bool,
}

impl Rules<'_> {
    /// The part of a rule for the arguments of function number `i`.
    fn arguments(&mut self, i: usize, schema: &Value) -> Result<String, GrammarError> {
        let (open, middle, close) = match self.syntax.arguments {
            Arguments::Object => return Grammar::inline(schema),
            Arguments::Loose { quote } => return loose::arguments(quote, schema, &mut self.out),
            Arguments::Tagged { open, middle, close } => (open, middle, close),
        };
        let elsewhere = ["$ref", "anyOf", "oneOf", "allOf"].iter().find(|key| schema.get(**key).is_some());
        if let Some(key) = elsewhere {
            let what = format!(
                "the model names each argument by itself, for which 'parameters' needs 'properties' and no '{key}'"
            );
            return Err(GrammarError::Refused(what));
        }
        let none = Map::new();
        let members = schema["properties"].as_object().unwrap_or(&none);
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        let mut all = String::new();
        for (j, (name, part)) in members.iter().enumerate() {
            let value = self.value(part, schema, close)?;
            self.out += &format!("f{i}p{j}: {} {value}\n", literal(&format!("{open}{name}{middle}")));
            let optional = if required.iter().any(|one| one == name) { "" } else { "?" };
            all += &format!("f{i}p{j}{optional} ");
        }
        Ok(all)
    }

    /// The part of a rule for a value of `part`, a member of the arguments whose schema is `whole`, and the text behind it.
    fn value(&mut self, part: &Value, whole: &Value, close: &str) -> Result<String, GrammarError> {
        if !is_text(part) {
            return Ok(format!("{} {}", Grammar::inline(&with_definitions(part, whole))?, literal(close)));
        }
        let named = part["enum"].as_array().map(Vec::as_slice).or(part.get("const").map(std::slice::from_ref));
        if let Some(named) = named {
            let named: Vec<String> = named.iter().filter_map(Value::as_str).map(literal).collect();
            return Ok(format!("({}) {}", named.join(" | "), literal(close)));
        }
        let rule = format!("v{}", self.out.lines().count());
        let length = |name: &str| part[name].as_u64();
        let text = match (length("minLength"), length("maxLength")) {
            (None, None) => {
                self.texts = true;
                "TEXT".to_owned()
            }
            (least, most) => {
                let most = most.map_or(String::new(), |most| most.to_string());
                format!("/(?s:.{{{},{most}}})/", least.unwrap_or(0))
            }
        };
        self.out += &format!("{rule}[lazy]: {text} {}\n", literal(close));
        Ok(rule)
    }
}

/// True if values of a schema are texts, which are written as they are.
pub fn is_text(schema: &Value) -> bool {
    let all_text = |list: &Value| list.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    schema["type"] == "string" || schema["const"].is_string() || all_text(&schema["enum"])
}
