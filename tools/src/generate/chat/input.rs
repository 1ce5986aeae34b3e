//! Where the messages of a user come from: an editor in a terminal, or lines of standard input.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context as _, Result, ensure};

use super::super::chat_args::ChatArgs;
use super::editor::Editor;
use super::message::{self, MOST, TOO_LONG, Typed};
use crate::{interrupt, terminal};

/// Source of the messages.
pub enum Input {
    /// A terminal that can move its cursor.
    Editor(Box<Editor>),
    /// Another terminal.
    Terminal,
    /// A file or a pipe.
    Lines,
}

impl Input {
    /// The input that standard input and the options stand for.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub fn new(args: &ChatArgs) -> Result<Input> {
        if !io::stdin().is_terminal() {
            return Ok(Input::Lines);
        }
        if args.simple_io || terminal::is_dumb() {
            return Ok(Input::Terminal);
        }
        let screen = io::stdout().is_terminal();
        let colours = args.colours();
        let editor = Editor::new(colours, screen, !args.no_history)?;
        Ok(Input::Editor(Box::new(editor)))
    }

    /// The next message.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn read(&mut self) -> Result<Typed> {
        match self {
            Input::Editor(editor) => editor.read(),
            Input::Terminal => read_terminal(),
            Input::Lines => Ok(match read_line()? {
                None => Typed::End,
                Some(line) => Typed::Message(read_continued(line)?),
            }),
        }
    }
}

/// A line of standard input without its end, `None` at the end of the input.
fn read_line() -> Result<Option<String>> {
    let mut line = Vec::new();
    let read = interrupt::while_waiting(|| io::stdin().lock().take(MOST as u64 + 1).read_until(b'\n', &mut line));
    if read.context("cannot read standard input")? == 0 {
        return Ok(None);
    }
    ensure!(line.len() <= MOST, "{TOO_LONG}");
    // A bad byte costs a character of the message and not the conversation.
    let line = String::from_utf8_lossy(&line);
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}

/// A message that begins with `line`: a backslash at the end of a line continues it on the next.
fn read_continued(line: String) -> Result<String> {
    let (mut message, mut line) = (String::new(), Some(line));
    while let Some(text) = line {
        match text.strip_suffix('\\') {
            Some(part) => {
                message += part;
                message.push('\n');
                ensure!(message.len() <= MOST, "{TOO_LONG}");
                line = read_line()?;
            }
            None => return Ok(message + &text),
        }
    }
    Ok(message)
}

/// A message of a terminal that shows what is typed by itself.
fn read_terminal() -> Result<Typed> {
    let mut typed = String::new();
    loop {
        // Who cannot read the prompt can answer all the same.
        let prompt = if typed.is_empty() { "> " } else { ". " };
        let _ = write!(io::stderr(), "{prompt}");
        let Some(line) = read_line()? else {
            note!("");
            return Ok(match typed.is_empty() {
                true => Typed::End,
                false => Typed::Message(message::typed(&typed)),
            });
        };
        typed += &line;
        if !message::is_open(&typed) {
            return Ok(Typed::Message(message::typed(&typed)));
        }
        typed.push('\n');
    }
}
