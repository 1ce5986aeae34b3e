//! Reading GBNF: rules, alternatives, sequences.

use std::iter::Peekable;
use std::str::Chars;

use super::super::GrammarError;

/// Deepest nesting of parentheses.
const MAX_DEPTH: usize = 32;
/// Most rules.
const MAX_RULES: usize = 512;
/// Most marks of repetition behind one another.
const MAX_MARKS: usize = 4;
/// Highest number of repetitions.
const MAX_TIMES: usize = 2000;

/// A rule.
pub struct Rule {
    pub name: String,
    /// Where it begins, counted from 1.
    pub line: usize,
    pub body: Expression,
}

/// Alternatives, each a sequence.
pub struct Expression(pub Vec<Vec<Element>>);

/// A part of a sequence.
pub enum Element {
    /// The text itself.
    Text(String),
    /// One character, as a class of a regular expression.
    Class(String),
    /// A rule, by its name.
    Name(String),
    /// An expression in parentheses.
    Group(Expression),
    /// An expression so often: at least, and at most.
    Repeat(Expression, usize, Option<usize>),
}

impl Expression {
    /// The rules that it names.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for element in self.0.iter().flatten() {
            match element {
                Element::Name(name) => names.push(name.as_str()),
                Element::Group(inner) | Element::Repeat(inner, ..) => names.extend(inner.names()),
                Element::Text(_) | Element::Class(_) => {}
            }
        }
        names
    }
}

/// A character where a regular expression stands for itself.
pub fn escaped(c: char) -> String {
    if c.is_ascii_alphanumeric() {
        return c.to_string();
    }
    format!("\\x{{{:x}}}", u32::from(c))
}

/// All rules; of several with the same name the last one counts.
///
/// # Errors
/// The line that is not well formed.
pub fn rules(source: &str) -> Result<Vec<Rule>, GrammarError> {
    let mut reader = Reader { chars: source.chars().peekable(), line: 1 };
    let mut rules: Vec<Rule> = Vec::new();
    loop {
        reader.space(true);
        if reader.chars.peek().is_none() {
            return Ok(rules);
        }
        let line = reader.line;
        let name = reader.name()?;
        reader.space(false);
        for c in "::=".chars() {
            if reader.next() != Some(c) {
                return Err(reader.error("a rule has the form 'name ::= ...'"));
            }
        }
        reader.space(true);
        let body = reader.expression(0)?;
        if !matches!(reader.chars.peek(), None | Some('\n' | '\r')) {
            return Err(reader.error("a rule ends with its line"));
        }
        rules.retain(|r| r.name != name);
        if rules.len() >= MAX_RULES {
            return Err(GrammarError::Refused(format!("more than {MAX_RULES} rules")));
        }
        rules.push(Rule { name, line, body });
    }
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn error(&self, what: &str) -> GrammarError {
        GrammarError::Syntax { line: self.line, what: what.to_owned() }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.chars.next();
        self.line += usize::from(c == Some('\n'));
        c
    }

    /// Skips spaces and comments, and the ends of lines where these are no ends of rules.
    fn space(&mut self, lines: bool) {
        while let Some(&c) = self.chars.peek() {
            match c {
                '#' => while self.chars.next_if(|c| *c != '\n').is_some() {},
                ' ' | '\t' => drop(self.next()),
                '\n' | '\r' if lines => drop(self.next()),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        let mut name = String::new();
        while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '-') {
            name.push(c);
        }
        if name.is_empty() {
            return Err(self.error("a name of letters, digits and '-' is missing"));
        }
        Ok(name)
    }

    fn expression(&mut self, depth: usize) -> Result<Expression, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("more than {MAX_DEPTH} parentheses deep")));
        }
        let mut alternatives = vec![self.sequence(depth)?];
        while self.chars.next_if_eq(&'|').is_some() {
            self.space(true);
            alternatives.push(self.sequence(depth)?);
        }
        Ok(Expression(alternatives))
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Element>, GrammarError> {
        let mut elements = Vec::new();
        let mut marks = 0;
        while let Some(&c) = self.chars.peek() {
            marks = if matches!(c, '*' | '+' | '?' | '{') { marks + 1 } else { 0 };
            if marks > MAX_MARKS {
                return Err(self.error(&format!("more than {MAX_MARKS} repetitions of repetitions")));
            }
            match c {
                '"' => elements.push(Element::Text(self.text()?)),
                '[' => elements.push(Element::Class(self.class()?)),
                '.' => {
                    self.next();
                    elements.push(Element::Class("(?s:.)".to_owned()));
                }
                '(' => {
                    self.next();
                    self.space(true);
                    elements.push(Element::Group(self.expression(depth + 1)?));
                    if self.next() != Some(')') {
                        return Err(self.error("')' is missing"));
                    }
                }
                '*' | '+' | '?' | '{' => {
                    let (least, most) = self.times()?;
                    let Some(last) = elements.pop() else {
                        return Err(self.error("there is nothing to repeat"));
                    };
                    let inner = Expression(vec![vec![last]]);
                    elements.push(Element::Repeat(inner, least, most));
                }
                '<' | '!' => return Err(self.error("tokens by their names are not supported")),
                c if c.is_ascii_alphanumeric() => elements.push(Element::Name(self.name()?)),
                _ => break,
            }
            self.space(depth > 0);
        }
        Ok(elements)
    }

    fn text(&mut self) -> Result<String, GrammarError> {
        let line = self.line;
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape()?),
                Some(c) if c != '\n' => text.push(c),
                _ => {
                    self.line = line;
                    return Err(self.error("a text without its closing '\"'"));
                }
            }
        }
    }

    fn class(&mut self) -> Result<String, GrammarError> {
        self.next();
        let mut class = String::from("[");
        if self.chars.next_if_eq(&'^').is_some() {
            class.push('^');
        }
        let mut any = false;
        loop {
            let Some(low) = self.member()? else {
                class.push(']');
                return match any {
                    true => Ok(class),
                    false => Err(self.error("a class without characters")),
                };
            };
            any = true;
            class += &escaped(low);
            if self.chars.next_if_eq(&'-').is_none() {
                continue;
            }
            match self.member()? {
                // A '-' at the end is itself.
                None => {
                    class += &escaped('-');
                    class.push(']');
                    return Ok(class);
                }
                Some(high) if high >= low => {
                    class.push('-');
                    class += &escaped(high);
                }
                Some(_) => return Err(self.error("a range that ends before it begins")),
            }
        }
    }

    /// A character of a class; `None` at its end.
    fn member(&mut self) -> Result<Option<char>, GrammarError> {
        match self.next() {
            Some(']') => Ok(None),
            Some('\\') => self.escape().map(Some),
            Some(c) if c != '\n' => Ok(Some(c)),
            _ => Err(self.error("a class without its closing ']'")),
        }
    }

    fn escape(&mut self) -> Result<char, GrammarError> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return Err(self.error("an unknown character behind '\\'")),
        };
        let mut value = 0;
        for _ in 0..digits {
            let digit = self.next().and_then(|c| c.to_digit(16));
            let digit = digit.ok_or_else(|| self.error(&format!("{digits} hex digits must follow")))?;
            value = value << 4 | digit;
        }
        char::from_u32(value).ok_or_else(|| self.error("there is no such character"))
    }

    /// How often the element before comes.
    fn times(&mut self) -> Result<(usize, Option<usize>), GrammarError> {
        match self.next() {
            Some('*') => return Ok((0, None)),
            Some('+') => return Ok((1, None)),
            Some('?') => return Ok((0, Some(1))),
            _ => {}
        }
        self.space(false);
        let least = self.number()?.unwrap_or(0);
        self.space(false);
        let mut most = Some(least);
        if self.chars.next_if_eq(&',').is_some() {
            self.space(false);
            most = self.number()?;
            self.space(false);
        }
        if self.next() != Some('}') || most.is_some_and(|most| most < least) {
            return Err(self.error("repetitions have the form {2}, {2,} or {2,5}"));
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<Option<usize>, GrammarError> {
        let mut number: Option<usize> = None;
        while let Some(digit) = self.chars.peek().and_then(|c| c.to_digit(10)) {
            self.next();
            let value = number.unwrap_or(0) * 10 + digit as usize;
            if value > MAX_TIMES {
                return Err(self.error(&format!("more than {MAX_TIMES} repetitions")));
            }
            number = Some(value);
        }
        Ok(number)
    }
}
