//! Runs a template within limits.
//!
//! Instructions, recursion and output are counted by the interpreter. One thing it cannot count is
//! memory: a few dozen instructions double a string past any size. So the template runs in a thread of
//! its own, and time and the growth of the process are watched from outside.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{ChatError, json, strftime};

/// Instructions: a template of a real model takes some thousands.
const FUEL: u64 = 2_000_000;
/// Nesting of macros and loops.
const RECURSION: usize = 100;
/// Stack of the thread, enough for `RECURSION` levels.
const STACK: usize = 64 << 20;
/// Longest rendered conversation.
const OUTPUT: usize = 16 << 20;
/// Longest run.
const TIME: Duration = Duration::from_secs(5);
/// Most memory the process may gain while the template runs.
const MEMORY: u64 = 256 << 20;
/// How often time and memory are looked at.
const TICK: Duration = Duration::from_millis(4);

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

/// Whether `source` is a template at all.
pub fn check(source: &str) -> Result<(), ChatError> {
    let source = source.to_owned();
    watched(move || {
        let env = environment();
        env.template_from_named_str("chat_template", &source)
            .map(|_| String::new())
            .map_err(|e| ChatError::Syntax(message(&e)))
    })
    .map(|_| ())
}

/// Renders `source` with `context`.
pub fn render(source: &str, context: Value) -> Result<String, ChatError> {
    let source = source.to_owned();
    watched(move || {
        let env = environment();
        let template = env
            .template_from_named_str("chat_template", &source)
            .map_err(|e| ChatError::Syntax(message(&e)))?;
        let mut out = Limited::default();
        let done = template.render_captured_to(context, &mut out).map(drop);
        if out.full {
            return Err(ChatError::TooLong(OUTPUT));
        }
        done.map_err(|e| ChatError::Failed(message(&e)))?;
        String::from_utf8(out.bytes).map_err(|e| ChatError::Failed(e.to_string()))
    })
}

/// What Jinja means to a model's template: the settings of Hugging Face's chat templates.
fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    if let Ok(syntax) = syntax.trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(unknown_method_callback);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(RECURSION);
    env.add_filter("tojson", |value: Value, options: Kwargs| {
        json::to_json(&value, &options)
    });
    // What is undefined has no length here, but 0 in Jinja2.
    for name in ["length", "count"] {
        env.add_filter(name, |value: Value| match value.len() {
            None if !value.is_undefined() => Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a {} has no length", value.kind()),
            )),
            length => Ok(length.unwrap_or(0)),
        });
    }
    env.add_function("raise_exception", |text: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, text))
    });
    env.add_function("strftime_now", |format: String| -> Result<String, Error> {
        strftime::now(&format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
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

/// Runs `work` in a thread, and gives up on it when it takes too long or too much.
fn watched(
    work: impl FnOnce() -> Result<String, ChatError> + Send + 'static,
) -> Result<String, ChatError> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("template".to_owned())
        .stack_size(STACK)
        // Nobody listens any more when the watcher has given up.
        .spawn(move || drop(sender.send(work())))
        .map_err(|e| ChatError::Failed(e.to_string()))?;
    let (start, memory) = (Instant::now(), resident());
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ChatError::Failed("it broke off".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {
                if start.elapsed() > TIME {
                    return Err(ChatError::Runaway("5 seconds"));
                }
                if resident().saturating_sub(memory) > MEMORY {
                    return Err(ChatError::Runaway("256 MiB"));
                }
            }
        }
    }
}

/// Resident bytes of this process; 0 where the system does not tell.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|p| p.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
