//! Arguments as Gemma writes them: `{name:VALUE,name:VALUE}`, where texts stand between marks and names are bare.

use serde_json::{Map, Value};
use trine::Grammar;
use trine::grammar::GrammarError;
use trine::tokenizer::pending;

use super::schema;

/// Values within values that a grammar follows, and all that it follows.
const DEEPEST: usize = 8;
const MOST: usize = 1000;

/// Reads arguments, of which the first bracket was read, as JSON.
#[derive(Clone, Debug)]
pub struct Loose {
    /// The mark around texts.
    quote: &'static str,
    brackets: usize,
    /// True in a text.
    text: bool,
    /// Letters of which it is not known yet whether they are a name.
    word: String,
}

impl Loose {
    /// The arguments behind their first bracket.
    pub fn new(quote: &'static str) -> Loose {
        Loose { quote, brackets: 1, text: false, word: String::new() }
    }

    /// Takes what is certain from the beginning of `held`; its JSON, and true when the arguments end.
    pub fn read(&mut self, held: &mut String) -> (String, bool) {
        let mut out = String::new();
        loop {
            if let Some(rest) = held.strip_prefix(self.quote) {
                *held = rest.to_owned();
                self.text = !self.text;
                out.push('"');
            } else if self.text {
                let end = held.find(self.quote).unwrap_or_else(|| pending(held, &[self.quote]));
                out += &schema::escaped(held.drain(..end).as_str());
                if !held.starts_with(self.quote) {
                    return (out, false);
                }
            } else if self.quote.starts_with(held.as_str()) {
                return (out, false);
            } else if self.sign(held.remove(0), &mut out) {
                return (out, true);
            }
        }
    }

    /// A character outside of texts; true when it ends the arguments.
    fn sign(&mut self, sign: char, out: &mut String) -> bool {
        let word = |this: &mut Loose| std::mem::take(&mut this.word).trim().to_owned();
        match sign {
            '{' | '[' => {
                self.brackets += 1;
                out.push(sign);
            }
            '}' | ']' => {
                self.brackets -= 1;
                *out += &word(self);
                out.push(sign);
            }
            ',' => {
                *out += &word(self);
                *out += ", ";
            }
            ':' => {
                let name = word(self);
                if !name.is_empty() {
                    *out += &Value::from(name).to_string();
                }
                *out += ": ";
            }
            other => self.word.push(other),
        }
        self.brackets == 0
    }
}

/// The part of a rule for arguments of the schema behind their first bracket; rules that it names are added to `rules`.
///
/// # Errors
/// A schema that cannot be enforced.
pub fn arguments(quote: &str, parameters: &Value, rules: &mut String) -> Result<String, GrammarError> {
    Rules { quote, whole: parameters, rules, depth: 0, values: 0 }.members(parameters)
}

/// Rules that come into being.
struct Rules<'a> {
    quote: &'a str,
    /// The schema that parts refer to.
    whole: &'a Value,
    rules: &'a mut String,
    /// Values in which the value is that is being described.
    depth: usize,
    /// Values so far.
    values: usize,
}

impl Rules<'_> {
    fn add(&mut self, rule: &str) -> String {
        let name = format!("g{}", self.rules.lines().count());
        *self.rules += &format!("{name}{rule}\n");
        name
    }

    /// Members of an object, and the bracket behind them.
    fn members(&mut self, object: &Value) -> Result<String, GrammarError> {
        let none = Map::new();
        let properties = object["properties"].as_object().unwrap_or(&none);
        if properties.is_empty() {
            let any = self.any();
            let pair = format!("/[A-Za-z0-9_.-]+/ \":\" {any}");
            return Ok(format!("({pair} (\",\" {pair})*)? \"}}\""));
        }
        let required = object["required"].as_array().map_or(&[][..], Vec::as_slice);
        // From the last member to the first: what may stand from there on, behind another member and behind none.
        let (mut behind, mut first) = ("\"}\"".to_owned(), "\"}\"".to_owned());
        for (name, part) in properties.iter().rev() {
            let pair = format!("{} {}", schema::literal(&format!("{name}:")), self.value(part)?);
            let optional = !required.iter().any(|one| one == name);
            let or = |without: &str| if optional { format!(" | {without}") } else { String::new() };
            let (more, begun) =
                (format!("\",\" {pair} {behind}{}", or(&behind)), format!("{pair} {behind}{}", or(&first)));
            behind = self.add(&format!(": {more}"));
            first = self.add(&format!(": {begun}"));
        }
        Ok(first)
    }

    /// A value; any where the schema says more than is read here, or refers to itself.
    fn value(&mut self, part: &Value) -> Result<String, GrammarError> {
        if self.depth == DEEPEST || self.values == MOST {
            return Ok(self.any());
        }
        self.values += 1;
        self.depth += 1;
        let rule = self.one(part);
        self.depth -= 1;
        rule
    }

    fn one(&mut self, part: &Value) -> Result<String, GrammarError> {
        if let Some(meant) = part["$ref"].as_str().and_then(|name| self.whole.pointer(name.strip_prefix('#')?)) {
            return self.value(meant);
        }
        if let Some(choices) = part["anyOf"].as_array().or(part["oneOf"].as_array()) {
            let choices = choices.iter().map(|choice| self.value(choice)).collect::<Result<Vec<_>, _>>()?;
            return Ok(format!("({})", choices.join(" | ")));
        }
        if let Some(named) = part["enum"].as_array().map(Vec::as_slice).or(part.get("const").map(std::slice::from_ref))
        {
            let quote = self.quote;
            let written = named.iter().map(|value| match value {
                Value::String(text) => schema::literal(&format!("{quote}{text}{quote}")),
                other => schema::literal(&other.to_string()),
            });
            return Ok(format!("({})", written.collect::<Vec<_>>().join(" | ")));
        }
        match part["type"].as_str() {
            Some("string") => Ok(self.text()),
            Some("integer" | "number" | "boolean" | "null") => {
                Grammar::inline(&schema::with_definitions(part, self.whole))
            }
            Some("array") => {
                let item = match part.get("items") {
                    Some(items) => self.value(items)?,
                    None => self.any(),
                };
                Ok(format!("\"[\" ({item} (\",\" {item})*)? \"]\""))
            }
            Some("object") => {
                let members = self.members(part)?;
                Ok(format!("\"{{\" {members}"))
            }
            _ => Ok(self.any()),
        }
    }

    /// A text between its marks.
    fn text(&mut self) -> String {
        let quote = schema::literal(self.quote);
        let rest = self.add(&format!("[lazy]: /(?s:.*)/ {quote}"));
        format!("({quote} {rest})")
    }

    /// The rule of any value.
    fn any(&mut self) -> String {
        if !self.rules.contains("anything:") {
            // Its name is there before its parts are.
            *self.rules +=
                "anything: simple | \"[\" (anything (\",\" anything)*)? \"]\" | \"{\" (pair (\",\" pair)*)? \"}\"\n";
            *self.rules += "pair: /[A-Za-z0-9_.-]+/ \":\" anything\n";
            let text = self.text();
            *self.rules += &format!("simple: {text} | \"true\" | \"false\" | \"null\" | /-?[0-9]+(\\.[0-9]+)?/\n");
        }
        "anything".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JSON of arguments, however they are cut, and what stands behind them.
    #[track_caller]
    fn read(text: &str) -> (String, String) {
        let by = |size: usize| {
            let (mut loose, mut held, mut out) = (Loose::new("<|\"|>"), String::new(), String::from("{"));
            let mut ended = false;
            for part in text.chars().collect::<Vec<_>>().chunks(size) {
                held.extend(part);
                if !ended {
                    let (more, end) = loose.read(&mut held);
                    out += &more;
                    ended = end;
                }
            }
            (out, held)
        };
        let whole = by(usize::MAX);
        for size in [1, 2, 3, 7] {
            assert_eq!(by(size), whole, "{text} by {size}");
        }
        whole
    }

    #[test]
    fn arguments_become_json() {
        let text = "a:<|\"|>x < \"y\"\n{<|\"|>,b:[1,-2.5,true],c:{d:null,<|\"|>e f<|\"|>:<|\"|><|\"|>}}<tool_call|>";
        let (json, rest) = read(text);
        assert_eq!(rest, "<tool_call|>");
        let value: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value, serde_json::json!({"a": "x < \"y\"\n{", "b": [1, -2.5, true], "c": {"d": null, "e f": ""}}));
        assert_eq!(read("}x"), ("{}".to_owned(), "x".to_owned()));
    }

    #[test]
    fn members_stand_in_their_order_and_some_may_be_left_out() {
        let schema = serde_json::json!({
            "properties": {"a": {"enum": ["x", 1]}, "b": {"type": "boolean"}, "c": {"const": null}}, "required": ["b"],
        });
        let mut rules = String::new();
        let first = arguments("'", &schema, &mut rules).expect("a grammar");
        let boolean = Grammar::inline(&serde_json::json!({"type": "boolean"})).expect("a grammar");
        // A rule for each member behind another one, and one for it at the beginning.
        let expected = [
            "g0: \",\" \"c:\" (\"null\") \"}\" | \"}\"".to_owned(),
            "g1: \"c:\" (\"null\") \"}\" | \"}\"".to_owned(),
            format!("g2: \",\" \"b:\" {boolean} g0"),
            format!("g3: \"b:\" {boolean} g0"),
            "g4: \",\" \"a:\" (\"'x'\" | \"1\") g2 | g2".to_owned(),
            "g5: \"a:\" (\"'x'\" | \"1\") g2 | g3".to_owned(),
        ];
        assert_eq!(rules.lines().collect::<Vec<_>>(), expected);
        assert_eq!(first, "g5");
    }

    /// A schema that refers to itself ends somewhere.
    #[test]
    fn schemas_without_an_end() {
        let node = serde_json::json!({"type": "object", "properties": {"left": {"$ref": "#/$defs/n"}, "right": {"$ref": "#/$defs/n"}}});
        let schema = serde_json::json!({"properties": {"root": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}});
        let mut rules = String::new();
        arguments("'", &schema, &mut rules).expect("a grammar");
        assert!(rules.contains("anything: ") && rules.lines().count() < 3 * MOST, "{}", rules.lines().count());
    }
}
