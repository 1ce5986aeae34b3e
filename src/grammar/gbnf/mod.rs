//! llama.cpp's GBNF in the Lark dialect of `llguidance`.
//!
//! GBNF describes texts character by character, Lark in two floors: terminals, which are regular expressions, and rules
//! over them. A GBNF rule that does not contain itself, directly or through others, becomes a terminal; the others
//! become rules, in which neighbours that are regular are put together to one terminal each.

mod parse;

use std::collections::HashMap;

use super::GrammarError;
use parse::{Element, Expression, Rule};

/// Most parts behind one another in a terminal: each may be the next one behind each.
const MAX_PARTS: usize = 2048;

/// The grammar in Lark.
///
/// # Errors
/// The line that is not well formed; a rule that is not there.
pub(super) fn to_lark(source: &str) -> Result<String, GrammarError> {
    let rules = parse::rules(source)?;
    let names: HashMap<&str, usize> = rules.iter().zip(0..).map(|(r, i)| (&*r.name, i)).collect();
    let Some(&root) = names.get("root") else {
        return Err(GrammarError::Refused("there is no rule 'root'".to_owned()));
    };
    let mut uses = Vec::new();
    for rule in &rules {
        let mut used = Vec::new();
        for name in rule.body.names() {
            let Some(index) = names.get(name) else {
                let what = format!("there is no rule '{name}'");
                return Err(GrammarError::Syntax { line: rule.line, what });
            };
            used.push(*index);
        }
        uses.push(used);
    }
    let mut writer = Writer { regular: regular(&uses), names, out: String::new(), hoisted: 0 };
    writer.check(&rules)?;
    let start = writer.name(root);
    writer.out = format!("start: {start}\n");
    for (i, rule) in rules.iter().enumerate() {
        writer.rule(i, rule);
    }
    Ok(writer.out)
}

/// True for every rule that leads back neither to itself nor to one that leads back to itself.
fn regular(uses: &[Vec<usize>]) -> Vec<bool> {
    // A rule is regular once all rules that it uses are; those in a circle never are.
    let mut regular = vec![false; uses.len()];
    loop {
        let mut changed = false;
        for (i, used) in uses.iter().enumerate() {
            if !regular[i] && used.iter().all(|&u| regular[u]) {
                regular[i] = true;
                changed = true;
            }
        }
        if !changed {
            return regular;
        }
    }
}

struct Writer<'a> {
    regular: Vec<bool>,
    names: HashMap<&'a str, usize>,
    out: String,
    /// Terminals that are parts of rules.
    hoisted: usize,
}

impl Writer<'_> {
    /// Lark tells terminals from rules by their letters.
    fn name(&self, rule: usize) -> String {
        let kind = if self.regular[rule] { 'T' } else { 'r' };
        format!("{kind}{rule}")
    }

    /// Fails if a rule has too many parts behind one another, those of the regular rules that it names counted.
    fn check(&self, rules: &[Rule]) -> Result<(), GrammarError> {
        let mut lengths = vec![None; rules.len()];
        for (i, rule) in rules.iter().enumerate() {
            if self.length(rules, i, &mut lengths) > MAX_PARTS {
                let what = format!("'{}' has more than {MAX_PARTS} parts behind one another", rule.name);
                return Err(GrammarError::Syntax { line: rule.line, what });
            }
        }
        Ok(())
    }

    /// Returns the most parts behind one another in a rule. `known` has those of rules that were looked at.
    fn length(&self, rules: &[Rule], index: usize, known: &mut [Option<usize>]) -> usize {
        if let Some(length) = known[index] {
            return length;
        }
        let length = self.longest(rules, &rules[index].body, known);
        known[index] = Some(length);
        length
    }

    fn longest(&self, rules: &[Rule], expression: &Expression, known: &mut [Option<usize>]) -> usize {
        let sequences = expression.0.iter().map(|sequence| {
            sequence.iter().fold(0, |sum: usize, element| {
                sum.saturating_add(match element {
                    Element::Text(_) | Element::Class(_) => 1,
                    Element::Group(inner) | Element::Repeat(inner, ..) => self.longest(rules, inner, known).max(1),
                    Element::Name(name) => match self.names[name.as_str()] {
                        rule if self.regular[rule] => self.length(rules, rule, known),
                        _ => 1,
                    },
                })
            })
        });
        sequences.max().unwrap_or(0)
    }

    fn rule(&mut self, index: usize, rule: &Rule) {
        let body = if self.regular[index] { self.terminal(&rule.body) } else { self.body(&rule.body) };
        self.out += &format!("{}: {body}\n", self.name(index));
    }

    fn is_regular(&self, element: &Element) -> bool {
        match element {
            Element::Text(_) | Element::Class(_) => true,
            Element::Name(name) => self.regular[self.names[name.as_str()]],
            Element::Group(inner) | Element::Repeat(inner, ..) => {
                let mut all = inner.0.iter().flatten();
                all.all(|e| self.is_regular(e))
            }
        }
    }

    /// An expression all of which is regular.
    fn terminal(&self, expression: &Expression) -> String {
        let alternatives = expression.0.iter().map(|sequence| self.regulars(sequence));
        alternatives.collect::<Vec<_>>().join(" | ")
    }

    fn regulars(&self, elements: &[Element]) -> String {
        if elements.is_empty() {
            return "\"\"".to_owned();
        }
        let parts = elements.iter().map(|element| match element {
            Element::Text(text) => regex(text),
            Element::Class(class) => format!("/{class}/"),
            Element::Name(name) => self.name(self.names[name.as_str()]),
            Element::Group(inner) => format!("({})", self.terminal(inner)),
            Element::Repeat(inner, least, most) => {
                format!("({}){}", self.terminal(inner), times(*least, *most))
            }
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    /// An expression of a rule: what is regular in it is hoisted.
    fn body(&mut self, expression: &Expression) -> String {
        let alternatives = expression.0.iter().map(|sequence| self.sequence(sequence));
        alternatives.collect::<Vec<_>>().join(" | ")
    }

    fn sequence(&mut self, elements: &[Element]) -> String {
        if elements.is_empty() {
            return "\"\"".to_owned();
        }
        let mut parts = Vec::new();
        let mut rest = elements;
        while !rest.is_empty() {
            let run = rest.iter().take_while(|e| self.is_regular(e)).count();
            let (regular, after) = rest.split_at(run);
            if !regular.is_empty() {
                parts.push(self.hoist(regular));
            }
            rest = after;
            let Some((first, after)) = rest.split_first() else {
                break;
            };
            parts.push(match first {
                Element::Name(name) => self.name(self.names[name.as_str()]),
                Element::Group(inner) => format!("({})", self.body(inner)),
                Element::Repeat(inner, least, most) => {
                    format!("({}){}", self.body(inner), times(*least, *most))
                }
                Element::Text(_) | Element::Class(_) => self.hoist(std::slice::from_ref(first)),
            });
            rest = after;
        }
        parts.join(" ")
    }

    fn hoist(&mut self, elements: &[Element]) -> String {
        let name = format!("H{}", self.hoisted);
        self.hoisted += 1;
        let line = format!("{name}: {}\n", self.regulars(elements));
        self.out += &line;
        name
    }
}

/// How often something comes, as Lark writes it.
fn times(least: usize, most: Option<usize>) -> String {
    match (least, most) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// A text as a regular expression.
fn regex(text: &str) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    format!("/{}/", text.chars().map(parse::escaped).collect::<String>())
}
