//! A source file's neighbours: the modules it declares and the paths it names.
//!
//! This is no parser of Rust. It knows comments, literals, attributes and `use` trees, which is all that
//! the question "who uses whom" needs. Code under `#[cfg(test)]` is left out: tests may use what they like.

use std::collections::BTreeSet;

/// A path as the file writes it.
#[derive(Debug)]
pub struct Named {
    /// Its segments; a macro call ends in `!`, a glob import in `*`.
    pub path: Vec<String>,
    /// The name that a `use` gives it here; `None` for a path in an expression, a type or a glob import.
    pub alias: Option<String>,
    /// True if it stands in a `use` that passes the name on (`pub use`, `pub(crate) use`).
    pub passed_on: bool,
    /// Modules written inside the file that it stands in, outermost first.
    pub within: Vec<String>,
    /// Counted from 1.
    pub line: usize,
}

impl Named {
    /// True if the path is `start` or continues from there.
    pub fn starts_with(&self, start: &str) -> bool {
        let mut path = self.path.iter().map(String::as_str);
        start.split("::").all(|segment| path.next() == Some(segment))
    }
}

/// Declarations and paths of a file.
#[derive(Debug, Default)]
pub struct Source {
    /// `mod name;`, but for test modules.
    pub modules: Vec<String>,
    /// All paths, those of `use` trees written out.
    pub named: Vec<Named>,
    /// Names that stand alone, outside of `use` trees and not behind a dot.
    pub bare: BTreeSet<String>,
    /// The file does more than to declare modules and to pass names on.
    pub logic: bool,
    /// Lines of `unsafe`.
    pub unsafe_lines: Vec<usize>,
    /// Lines of unsafe functions, but for those whose trait says what it asks of the caller.
    pub unsafe_functions: Vec<usize>,
    /// Lines of the file, without those of constants that go over several lines.
    pub lines: usize,
}

#[derive(Debug)]
struct Token {
    text: String,
    line: usize,
}

/// Reads a file.
pub fn read(text: &str) -> Source {
    let mut reader = Reader { tokens: tokens(text), ..Reader::default() };
    while reader.at < reader.tokens.len() {
        reader.step();
    }
    reader.out.lines = text.lines().count() - reader.out.lines;
    reader.out
}

#[derive(Default)]
struct Reader {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// Modules written inside the file, with the depth of braces they stand at.
    within: Vec<(String, usize)>,
    /// The depth of braces that an implementation of a trait stands at.
    of_trait: Option<usize>,
    out: Source,
}

impl Reader {
    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |t| t.text.as_str())
    }

    fn is_name(&self, ahead: usize) -> bool {
        self.text(ahead).starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    /// True if the current name may be that of an item: one in lower case is only where it is called.
    fn names_an_item(&self) -> bool {
        self.text(0).starts_with(char::is_uppercase) || self.text(1) == "("
    }

    /// True if the token before the current one is one of `texts`.
    fn follows(&self, texts: &[&str]) -> bool {
        self.at > 0 && texts.contains(&self.tokens[self.at - 1].text.as_str())
    }

    /// True if the current token stands behind `pub` or `pub(…)`.
    fn stands_behind_pub(&self) -> bool {
        let before = &self.tokens[..self.at];
        match before.last().map(|t| t.text.as_str()) {
            Some("pub") => true,
            Some(")") => {
                before.iter().rev().find(|t| matches!(&*t.text, "pub" | ";" | "}")).is_some_and(|t| t.text == "pub")
            }
            _ => false,
        }
    }

    fn step(&mut self) {
        match self.text(0) {
            "#" if self.text(1) == "[" => {
                if self.attribute_leaves_out() {
                    self.skip_item();
                }
                return;
            }
            "{" => self.depth += 1,
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                if self.within.last().is_some_and(|(_, d)| *d == self.depth) {
                    self.within.pop();
                }
                self.of_trait.take_if(|depth| *depth == self.depth);
            }
            "mod" if self.is_name(1) => {
                let name = self.text(1).to_owned();
                match self.text(2) {
                    ";" => self.out.modules.push(name),
                    "{" => self.within.push((name, self.depth)),
                    _ => {}
                }
                self.at += 2;
                return;
            }
            "mod" if self.text(1) == "$" && self.text(3) == "{" => {
                let name = self.text(2).to_owned();
                self.within.push((name, self.depth));
                self.at += 3;
                return;
            }
            "pub" if self.text(1) == "(" => {
                self.at += 1;
                return self.skip_group();
            }
            "use" if self.text(1) != "<" => {
                let (first, passes_on) = (self.out.named.len(), self.stands_behind_pub());
                self.at += 1;
                self.tree(Vec::new());
                return self.out.named[first..].iter_mut().for_each(|named| named.passed_on = passes_on);
            }
            "unsafe" => {
                let line = self.tokens[self.at].line;
                self.out.unsafe_lines.push(line);
                let ahead = 1 + usize::from(self.text(1) == "extern");
                if self.of_trait.is_none() && self.text(ahead) == "fn" && self.text(ahead + 1) != "(" {
                    self.out.unsafe_functions.push(line);
                }
            }
            "impl" if self.is_of_trait() => {
                self.out.logic = true;
                self.of_trait = Some(self.depth);
            }
            "const" | "static" if self.is_name(1) && self.text(2) == ":" && !self.follows(&["<", ","]) => {
                self.out.logic = true;
                self.out.lines += self.lines_to_the_end() - 1;
            }
            "fn" | "struct" | "enum" | "union" | "trait" | "impl" | "const" | "static" | "type" | "macro_rules" => {
                self.out.logic = true;
            }
            _ if self.is_name(0) && matches!(self.text(1), "::" | "!") => return self.path(),
            _ if self.is_name(0) && !self.follows(&["."]) && self.names_an_item() => {
                let name = self.text(0).to_owned();
                self.out.bare.insert(name);
            }
            _ => {}
        }
        self.at += 1;
    }

    /// True if the current `impl` is that of a trait for a type.
    fn is_of_trait(&self) -> bool {
        let head = self.tokens[self.at..].iter().take_while(|t| !matches!(&*t.text, "{" | ";"));
        let next = head.clone().skip(1).map(|t| t.text.as_str());
        head.zip(next).any(|(t, next)| t.text == "for" && next != "<")
    }

    /// Lines from the current token to the semicolon that ends its item.
    fn lines_to_the_end(&self) -> usize {
        let mut depth = 0;
        let rest = &self.tokens[self.at..];
        let end = rest.iter().find(|t| {
            match &*t.text {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            depth == 0 && t.text == ";"
        });
        end.map_or(1, |end| end.line - rest[0].line + 1)
    }

    /// Steps over `#[…]`; whether what follows is left out: code that only tests meet, and a module whose file belongs
    /// to another place.
    fn attribute_leaves_out(&mut self) -> bool {
        let start = self.at;
        self.at += 1;
        self.skip_group();
        let inside = &self.tokens[start..self.at];
        let has = |word: &str| inside.iter().any(|t| t.text == word);
        (has("cfg") && has("test") && !has("not")) || inside.get(2).is_some_and(|t| t.text == "path")
    }

    /// Steps over a group that opens at the current token, to behind its end.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Steps over an item, which ends with a semicolon or with its braces.
    fn skip_item(&mut self) {
        loop {
            match self.text(0) {
                "" => return,
                ";" => return self.at += 1,
                "{" => return self.skip_group(),
                "(" | "[" => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }

    fn push(&mut self, path: Vec<String>, alias: Option<String>, line: usize) {
        let within = self.within.iter().map(|(name, _)| name.clone()).collect();
        self.out.named.push(Named { path, alias, within, line, passed_on: false });
    }

    /// A path outside of `use`.
    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let mut path = vec![self.text(0).to_owned()];
        while self.text(1) == "::" && self.is_name(2) {
            path.push(self.text(2).to_owned());
            self.at += 2;
        }
        if self.text(1) == "!"
            && let Some(last) = path.last_mut()
        {
            last.push('!');
        }
        self.at += 1;
        if self.text(0) == "::" {
            self.at += 1; // generic arguments follow
        }
        self.push(path, None, line);
    }

    /// A `use` tree behind `prefix`, to the comma, brace or semicolon that ends it.
    fn tree(&mut self, prefix: Vec<String>) {
        let mut path = prefix;
        loop {
            let line = self.tokens.get(self.at).map_or(0, |t| t.line);
            match self.text(0) {
                "" => return,
                ";" => return self.at += 1,
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !matches!(self.text(0), "}" | "") {
                        if self.text(0) == "," {
                            self.at += 1;
                        } else {
                            self.tree(path.clone());
                        }
                    }
                    self.at += 1;
                    return;
                }
                "," | "}" => return,
                "*" => {
                    path.push("*".to_owned());
                    self.at += 1;
                    return self.push(path, None, line);
                }
                name => {
                    if name != "self" || path.is_empty() {
                        path.push(name.to_owned());
                    }
                    self.at += 1;
                    if self.text(0) != "::" {
                        let mut alias = path.last().cloned();
                        if self.text(0) == "as" {
                            alias = Some(self.text(1).to_owned());
                            self.at += 2;
                        }
                        return self.push(path, alias, line);
                    }
                }
            }
        }
    }
}

/// Names, `::` and single signs; comments, literals and lifetimes are left out.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let (mut i, mut line) = (0, 1);
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    while i < chars.len() {
        let start = i;
        let c = chars[i];
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            i = end_of_comment(&chars, i);
        } else if c == '"' {
            i = end_of_string(&chars, i);
        } else if c == '\'' {
            i = end_of_quote(&chars, i);
        } else if c.is_alphabetic() || c == '_' {
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
            let word: String = chars[start..i].iter().collect();
            let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
            if matches!(&*word, "r" | "br" | "cr") && at(i + hashes) == '"' {
                i = end_of_raw_string(&chars, i + hashes + 1, hashes);
            } else if matches!(&*word, "b" | "c") && matches!(at(i), '"' | '\'') {
                // The quote is the next token.
            } else {
                out.push(Token { text: word, line });
            }
        } else if c.is_ascii_digit() {
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
        } else if c == ':' && at(i + 1) == ':' {
            i += 2;
            let text = "::".to_owned();
            out.push(Token { text, line });
        } else {
            i += 1;
            if !c.is_whitespace() {
                let text = c.to_string();
                out.push(Token { text, line });
            }
        }
        line += chars[start..i].iter().filter(|c| **c == '\n').count();
    }
    out
}

fn end_of_comment(chars: &[char], start: usize) -> usize {
    let (mut i, mut depth) = (start, 0);
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn end_of_raw_string(chars: &[char], start: usize, hashes: usize) -> usize {
    let mut i = start;
    while i < chars.len() {
        i += 1;
        if chars[i - 1] == '"' && chars[i..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return i + hashes;
        }
    }
    chars.len()
}

/// The end of a character or a lifetime.
fn end_of_quote(chars: &[char], start: usize) -> usize {
    if chars.get(start + 1) == Some(&'\\') {
        let rest = chars.iter().enumerate().skip(start + 3);
        return rest.into_iter().find(|(_, c)| **c == '\'').map_or(chars.len(), |(i, _)| i + 1);
    }
    if chars.get(start + 2) == Some(&'\'') {
        return start + 3;
    }
    start + 1
}
