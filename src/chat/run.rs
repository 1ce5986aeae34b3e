//! Runs a template within limits.
//!
//! Instructions, recursion and output are counted by the interpreter. Two things it cannot count: memory, because a few
//! dozen instructions double a string past any size, and the depth to which expressions and values are nested. So the
//! template runs [within limits](crate::isolate) of its own, where the stack has room for what [`MAX_WORDS`] can nest.

use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::error::ChatError;
use super::{json, strftime};
use crate::isolate::{Limits, within};

/// Instructions: a template of a real model takes some thousands.
const FUEL: u64 = 2_000_000;
/// Nesting of macros and loops.
const RECURSION: usize = 100;
/// Longest rendered conversation.
const OUTPUT: usize = 16 << 20;
/// Longest template; those of real models have some ten thousand bytes.
const MAX_SOURCE: usize = 1 << 20;
/// Most words and signs of a template. Each can nest an expression once more, and the parser and the compiler take up
/// to some hundred bytes of stack for it.
const MAX_WORDS: usize = 40_000;

/// The template without the tags that mark the assistant's text for training, which change no output.
pub fn without_generation_tags(source: &str) -> String {
    let tag = |name: &str| format!(r"\{{%(?P<l>[-+]?)\s*{name}\s*(?P<r>[-+]?)%\}}");
    let mut out = source.to_owned();
    for (name, instead) in [("generation", "if true"), ("endgeneration", "endif")] {
        if out.contains(name)
            && let Ok(tag) = regex::Regex::new(&tag(name))
        {
            let with = format!("{{%${{l}} {instead} ${{r}}%}}");
            out = tag.replace_all(&out, with.as_str()).into_owned();
        }
    }
    out
}

/// Refuses templates that are too large to be compiled safely.
fn check_size(source: &str) -> Result<(), ChatError> {
    let too_large = |what: String| Err(ChatError::Syntax(format!("it has more than {what}")));
    if source.len() > MAX_SOURCE {
        return too_large(format!("{MAX_SOURCE} bytes"));
    }
    let mut words = 0;
    let mut in_word = false;
    for c in source.chars() {
        let letter = c.is_alphanumeric() || c == '_';
        words += usize::from(!(c.is_whitespace() || letter && in_word));
        in_word = letter;
    }
    if words > MAX_WORDS {
        return too_large(format!("{MAX_WORDS} words and signs"));
    }
    Ok(())
}

/// Fails if `source` is no template.
pub fn check(source: &str) -> Result<(), ChatError> {
    check_size(source)?;
    let source = source.to_owned();
    within(Limits::of(source.len()), move || {
        let env = environment(0);
        env.template_from_named_str("chat_template", &source).map(|_| ()).map_err(|e| ChatError::Syntax(message(&e)))
    })?
}

/// Renders `source` with `context` at `time`, seconds since 1970; `size` bytes of text are in the context.
pub fn render(source: &str, size: usize, time: u64, context: Value) -> Result<String, ChatError> {
    check_size(source)?;
    let source = source.to_owned();
    within(Limits::of(source.len() + size), move || {
        let env = environment(time);
        let template =
            env.template_from_named_str("chat_template", &source).map_err(|e| ChatError::Syntax(message(&e)))?;
        let mut out = Limited::default();
        let done = template.render_captured_to(context, &mut out).map(drop);
        if out.full {
            return Err(ChatError::TooLong(OUTPUT));
        }
        done.map_err(|e| ChatError::Failed(message(&e)))?;
        String::from_utf8(out.bytes).map_err(|e| ChatError::Failed(e.to_string()))
    })?
}

/// The Jinja environment of a model's template at `time`: the settings of Hugging Face's chat templates.
fn environment(time: u64) -> Environment<'static> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    if let Ok(syntax) = syntax.trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(unknown_method_callback);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(RECURSION);
    env.add_filter("tojson", |value: Value, options: Kwargs| json::to_json(&value, &options));
    // What is undefined has no length here, but 0 in Jinja2.
    for name in ["length", "count"] {
        env.add_filter(name, |value: Value| match value.len() {
            None if !value.is_undefined() => {
                Err(Error::new(ErrorKind::InvalidOperation, format!("a {} has no length", value.kind())))
            }
            length => Ok(length.unwrap_or(0)),
        });
    }
    env.add_function("raise_exception", |text: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, text))
    });
    env.add_function("strftime_now", move |format: String| -> Result<String, Error> {
        strftime::at(time, &format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
    });
    env
}

/// The error and what caused it, in one line.
fn message(e: &Error) -> String {
    let mut text = e.to_string();
    let mut source = std::error::Error::source(e);
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}

/// Output up to a limit.
#[derive(Default)]
struct Limited {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Limited {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > OUTPUT {
            self.full = true;
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
