//! The line of a terminal that a user writes messages in: editing, history, pasted texts of several lines, completion
//! of commands.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Config, Context, Editor as LineEditor, Event, EventHandler, Helper};
use trine_formats::limited::read_regular;

use super::commands;
use super::folds::{Folds, Told};
use super::message::{self, TOO_LONG, Typed};
use super::saved;
use super::say;
use crate::{interrupt, shown, terminal};

/// Most messages that are kept in the history.
const MOST: usize = 1000;

/// Most bytes of the history's file, and of a message in it: the editor draws all of one again and again.
const MAX_HISTORY: u64 = 32 << 20;
const MAX_KEPT: usize = 16 << 10;

/// Stands before what is typed.
const PROMPT: &str = "> ";

/// The editor's helper for the text in it.
struct Help {
    colours: bool,
    folds: Folds,
}

impl Helper for Help {}

impl Hinter for Help {
    type Hint = Told;

    fn hint(&self, _: &str, _: usize, _: &Context<'_>) -> Option<Told> {
        self.folds.hint()
    }
}

impl Completer for Help {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(commands::completions(&line[..pos]))
    }
}

impl Highlighter for Help {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        match self.colours {
            true => Cow::Owned(format!("\x1b[1;32m{prompt}\x1b[0m")),
            false => Cow::Borrowed(prompt),
        }
    }
}

impl Validator for Help {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match message::is_open(&self.folds.unfold(typed.input())) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

/// An editor, and where its history is.
pub struct Editor {
    lines: LineEditor<Help, FileHistory>,
    folds: Folds,
    history: Option<PathBuf>,
    /// True if Ctrl-C was typed last.
    interrupted: bool,
}

impl Editor {
    /// An editor for the terminal. `screen`: whether standard output is the terminal too, which otherwise gets the
    /// answers alone.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub fn new(colours: bool, screen: bool, with_history: bool) -> Result<Editor> {
        let behavior = match screen {
            true => Behavior::Stdio,
            false => Behavior::PreferTerm,
        };
        let config = Config::builder()
            .max_history_size(MOST)
            .and_then(|config| config.history_ignore_dups(true))
            .context("the history")?
            .history_ignore_space(true)
            .bracketed_paste(true)
            .behavior(behavior)
            .build();
        let mut lines = LineEditor::with_config(config).context("cannot use the terminal")?;
        let folds = Folds::default();
        lines.set_helper(Some(Help { colours, folds: folds.clone() }));
        lines.bind_sequence(Event::Any, EventHandler::Conditional(Box::new(folds.clone())));
        let history = saved::state().map(|state| state.join("rgen_history")).filter(|_| with_history);
        let mut editor = Editor { lines, folds, history, interrupted: false };
        if let Some(path) = editor.history.clone()
            && let Err(e) = editor.remember(&path)
        {
            note!("note: no history is kept: {e:#}");
            editor.history = None;
        }
        Ok(editor)
    }

    /// Reads what was typed in earlier chats.
    fn remember(&mut self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            let made = fs::create_dir_all(folder);
            made.with_context(|| format!("cannot make '{}'", folder.display()))?;
        }
        let shown = path.display();
        if !path.try_exists().with_context(|| format!("cannot read '{shown}'"))? {
            return Ok(());
        }
        // A pipe would never end, and a line that is too long holds the editor up whenever it is shown.
        let text = read_regular(path, MAX_HISTORY).with_context(|| format!("cannot read '{shown}'"))?;
        if text.split(|&b| b == b'\n').any(|line| line.len() > 2 * MAX_KEPT) {
            bail!("'{shown}' has a line of more than {} bytes: remove it", 2 * MAX_KEPT);
        }
        let read = self.lines.load_history(path);
        read.with_context(|| format!("cannot read '{shown}'"))
    }

    /// Lets the user write a message.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub fn read(&mut self) -> Result<Typed> {
        loop {
            let read = self.line();
            let again = std::mem::take(&mut self.interrupted);
            match read {
                Ok(_) if self.folds.is_cut() => {
                    say(&format!("error: {TOO_LONG}"));
                }
                Ok(typed) => {
                    let typed = self.folds.unfold(&typed);
                    self.keep(&typed);
                    return Ok(Typed::Message(message::typed(&typed)));
                }
                Err(ReadlineError::Interrupted) if again => return Ok(Typed::Interrupted),
                Err(ReadlineError::Interrupted) => {
                    self.interrupted = true;
                    say("(Ctrl-C once more, Ctrl-D or /exit ends the chat)");
                }
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(ReadlineError::Signal(_)) => {}
                Err(e) => return Err(e).context("cannot read the terminal"),
            }
        }
    }

    /// Lets the user write a line. A Ctrl-C that came after the last answer and before the editor had the terminal was
    /// a signal and no key; it counts like one that is typed.
    fn line(&mut self) -> rustyline::Result<String> {
        let lines = &mut self.lines;
        self.folds.clear();
        interrupt::while_waiting(|| match interrupt::take() {
            true => Err(ReadlineError::Interrupted),
            false => terminal::editing(|| lines.readline(PROMPT)),
        })
    }

    /// Puts a message into the history.
    fn keep(&mut self, typed: &str) {
        if typed.len() > MAX_KEPT {
            return;
        }
        let added = self.lines.add_history_entry(typed);
        let Some(path) = self.history.clone() else {
            return;
        };
        let kept = match added {
            Ok(true) => self.lines.append_history(&path),
            other => other.map(drop),
        };
        if let Err(e) = kept {
            let path = shown::name(&path.to_string_lossy());
            note!("note: no history is kept in '{path}': {e}");
            self.history = None;
        }
    }
}
