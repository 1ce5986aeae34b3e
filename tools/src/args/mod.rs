//! Command-line habits of llama.cpp: options of several letters behind one dash.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};

use anyhow::Result;
use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{ArgAction, ArgMatches, Command, CommandFactory, Parser};

use crate::{manual, models, shown, signals, version};

pub use trine::open::usable_threads as threads;

mod llama_cpp;
mod programs;
mod screens;

pub use llama_cpp::{Fate, Foreign, Takes, table};
pub use programs::OF_PROGRAMS;

/// The words of a command line, the program's name first.
pub type Words = Vec<OsString>;

pub use crate::manual::Short;
use crate::models::{Asked, Fetched};

/// The words that this program was started with.
pub fn words() -> Words {
    std::env::args_os().collect()
}

/// The command line of a tool: its own options, and those that all tools have.
pub fn command<T: CommandFactory>() -> Command {
    let own = models::with_options(T::command());
    manual::with_options(screens::arranged(own).version(version::described()))
}

/// Parses a command line. `short` lists options such as `("-ub", "--ubatch-size")`, which clap would read as `-u b`;
/// the word after an option that takes a value is left as it is. Options of llama.cpp that the tool does not have are
/// accepted with a note where they change nothing, and refused otherwise.
///
/// Ends the program, as clap does, after `--help` and on mistakes.
///
/// # Errors
/// A model that is asked for by name cannot be had.
pub fn parse<T: Parser>(short: Short, words: Words) -> Result<T> {
    let mut command = command::<T>();
    let matches = matches(&mut command, short, words)?;
    Ok(T::from_arg_matches(&matches).unwrap_or_else(|e| end(&e.format(&mut command))))
}

/// The same for a command line that is not described by a type.
///
/// # Errors
/// A model that is asked for by name cannot be had.
pub fn matches(command: &mut Command, short: Short, words: Words) -> Result<ArgMatches> {
    let refused = |why: Vec<String>| -> ! {
        why.iter().for_each(|why| note!("error: {why}"));
        std::process::exit(2)
    };
    let read = Reader::new(command, short).read(words).unwrap_or_else(|why| refused(why));
    let alone = read.words.len() < 2 && !read.asked.is_for_a_model();
    let tool = command.get_name().to_owned();
    // Mistakes are told before anything is fetched.
    let first = read.with_models(&tool, &read.asked.stand_ins());
    let parsed = command.try_get_matches_from_mut(first);
    let parsed = parsed.unwrap_or_else(|told| match alone && told.kind() == ErrorKind::MissingRequiredArgument {
        true => introduce(command),
        false => end(&told),
    });
    if let Some(page) = manual::asked(&parsed) {
        show(page.of(command, short));
    }
    for line in &read.notes {
        note!("note: {line}");
    }
    let found = match read.asked.is_for_a_model() {
        true => None,
        false => read.with_found(&tool)?,
    };
    let fetched = models::fetch(&read.asked)?;
    if found.is_none() && fetched == Fetched::default() {
        return Ok(parsed);
    }
    let words = Read { words: found.unwrap_or_else(|| read.words.clone()), ..read }.with_models(&tool, &fetched);
    Ok(command.try_get_matches_from_mut(words).unwrap_or_else(|told| end(&told)))
}

/// True if a tool has an option of its own by this name of llama.cpp's.
pub fn has(command: &Command, short: &[(&str, &str)], name: &str) -> bool {
    let reader = Reader::new(command, short);
    reader.has(&reader.name(name))
}

/// Says what the tool is and how it begins, to those who gave it nothing to do.
fn introduce(command: &Command) -> ! {
    let name = command.get_name();
    let text = |styled: Option<&StyledStr>| styled.map(ToString::to_string).unwrap_or_default();
    let examples = text(command.get_after_long_help());
    let examples = examples.lines().filter(|line| line.starts_with("  ")).take(EXAMPLES);
    note!("{name}: {}", text(command.get_about()));
    note!("");
    examples.for_each(|line| note!("{line}"));
    note!("");
    if models::knows(name) {
        models::here(name).iter().for_each(|line| note!("{line}"));
    }
    note!("{name} -h shows everyday options, {name} --help all of them.");
    std::process::exit(2)
}

/// Lines of examples for those who gave a tool nothing to do.
const EXAMPLES: usize = 5;

/// Shows help or a mistake. clap itself would end well although nobody could read the help.
fn end(told: &clap::Error) -> ! {
    if told.use_stderr() {
        let _ = told.print();
        std::process::exit(2);
    }
    show(Ok(told.render().to_string().into_bytes()))
}

/// Writes a text about the tool and ends the program.
fn show(text: io::Result<Vec<u8>>) -> ! {
    let mut stdout = signals::stdout();
    let shown = text.and_then(|text| stdout.write_all(&text));
    match shown.and_then(|()| stdout.flush()) {
        Ok(()) => std::process::exit(0),
        Err(e) => {
            note!("error: cannot write the help: {e}");
            std::process::exit(1)
        }
    }
}

/// Words of options that say what is so without the option.
const DEFAULTS: [(&str, &str); 2] = [("-t", "-1"), ("--threads", "-1")];

/// Options whose two words of earlier versions, a file and a number, are one today.
const SCALED: [&str; 2] = ["--lora-scaled", "--control-vector-scaled"];

/// Options that words without a name stand for, in order, each with the options beside which it is given already.
type Unnamed = &'static [(&'static str, &'static [&'static str])];

/// `rgen MODEL.gguf [PROMPT]`, `rserve MODEL.gguf`.
const UNNAMED: [(&str, Unnamed); 2] = [
    ("rgen", &[("--model", &["-m", "--model"]), ("--prompt", &["-p", "--prompt", "-f", "--file", "--tokens"])]),
    ("rserve", &[("--model", &["-m", "--model"])]),
];

/// Reads words as llama.cpp's programs do, so that clap can go on.
struct Reader<'a> {
    /// The tool's name.
    tool: String,
    /// Options of the tool that a word follows.
    valued: HashSet<String>,
    /// Those of them that may stand alone as well.
    optional: HashSet<String>,
    /// Those of them that two words follow.
    pairs: HashSet<String>,
    /// Options of the tool that stand alone.
    alone: HashSet<String>,
    /// Options of several letters behind one dash, and their long names.
    short: &'a [(&'a str, &'a str)],
    /// True if the tool has the options that ask for models by name.
    takes_models: bool,
}

/// A command line for clap, and what is to be said about what was left out.
#[derive(Debug, Default, PartialEq)]
struct Read {
    words: Vec<OsString>,
    notes: Vec<String>,
    /// Models that are to be fetched.
    asked: Asked,
    /// Words that name a model, by place; some begin with the option.
    named: Vec<usize>,
}

impl Read {
    /// The words, with models that were asked for.
    fn with_models(&self, tool: &str, fetched: &Fetched) -> Vec<OsString> {
        let (program, rest) = self.words.split_at(self.words.len().min(1));
        program.iter().cloned().chain(models::words(tool, fetched)).chain(rest.iter().cloned()).collect()
    }

    /// The words, with files for names of models that are here; `None` where nothing is to be changed.
    ///
    /// # Errors
    /// A name is that of a model that is not here.
    fn with_found(&self, tool: &str) -> Result<Option<Vec<OsString>>> {
        let mut words = None;
        for &at in &self.named {
            let word = &self.words[at];
            let (option, value) = match word.to_str().and_then(|word| word.strip_prefix(MODEL_IS)) {
                Some(value) => (MODEL_IS, OsStr::new(value)),
                None => ("", word.as_os_str()),
            };
            if let Some(path) = models::found(value, tool == "rbench")? {
                let mut both = OsString::from(option);
                both.push(path);
                words.get_or_insert_with(|| self.words.clone())[at] = both;
            }
        }
        Ok(words)
    }
}

/// How a word begins that names a model with its option.
const MODEL_IS: &str = "--model=";

impl<'a> Reader<'a> {
    fn new(command: &Command, short: &'a [(&'a str, &'a str)]) -> Reader<'a> {
        let (mut valued, mut alone) = (HashSet::new(), HashSet::new());
        let (mut optional, mut pairs) = (HashSet::new(), HashSet::new());
        for arg in command.get_arguments() {
            let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
            let names = if takes { &mut valued } else { &mut alone };
            let letters = arg.get_short_and_visible_aliases().into_iter().flatten();
            names.extend(letters.map(|c| format!("-{c}")));
            let long = arg.get_long().into_iter();
            let aliases = arg.get_all_aliases().into_iter().flatten();
            names.extend(long.chain(aliases).map(|l| format!("--{l}")));
            if takes && arg.get_num_args().is_some_and(|n| n.min_values() == 0) {
                optional.extend(arg.get_long().map(|l| format!("--{l}")));
            }
            if arg.get_num_args().is_some_and(|n| n.min_values() == 2) {
                pairs.extend(arg.get_long().map(|l| format!("--{l}")));
            }
        }
        for name in ["-h", "--help", "-V", "--version"] {
            alone.insert(name.to_owned());
        }
        let takes_models = valued.contains("--hf-repo") && models::knows(command.get_name());
        Reader { tool: command.get_name().to_owned(), valued, optional, pairs, alone, short, takes_models }
    }

    fn has(&self, name: &str) -> bool {
        self.valued.contains(name) || self.alone.contains(name)
    }

    /// # Errors
    /// Options of llama.cpp that cannot be honoured, and words of several letters behind one dash that are none: all of
    /// them, so that nobody meets them one by one.
    fn read(&self, args: impl IntoIterator<Item = OsString>) -> Result<Read, Vec<String>> {
        let (mut out, mut refusals) = (Read::default(), Vec::new());
        let mut unnamed = Vec::new();
        let mut args = args.into_iter().peekable();
        // The program's name.
        out.words.extend(args.next());
        while let Some(word) = args.next() {
            let Some(text) = word.to_str().filter(|w| w.len() > 1 && w.starts_with('-')) else {
                unnamed.push(out.words.len());
                out.words.push(word);
                continue;
            };
            if text == "--" {
                out.words.push(word);
                out.words.extend(args);
                break;
            }
            let name = self.name(text);
            if self.takes_models && self.note_model(&name, &mut args, &mut out.asked).map_err(|why| vec![why])? {
                continue;
            }
            if self.valued.contains(&name) {
                let stays = |w: &OsString| w.to_string_lossy().starts_with('-');
                let value = match self.optional.contains(&name) {
                    true => args.next_if(|word| !stays(word)),
                    false => args.next(),
                };
                let said = value.as_ref().map(|v| v.to_string_lossy());
                let said = said.as_deref().unwrap_or_default();
                if DEFAULTS.contains(&(name.as_str(), said)) {
                    continue;
                }
                let scale = match SCALED.contains(&name.as_str()) && !said.contains(':') {
                    true => args.next_if(|word| is_number(&word.to_string_lossy())),
                    false => None,
                };
                let is_model = matches!(name.as_str(), "-m" | "--model");
                let more = self.pairs.contains(&name).then(|| args.next()).flatten();
                out.words.push(name.into());
                out.words.extend(match scale {
                    Some(scale) => Some(format!("{said}:{}", scale.to_string_lossy()).into()),
                    None => value,
                });
                out.words.extend(more);
                if is_model {
                    out.named.push(out.words.len() - 1);
                }
            } else if self.alone.contains(&name) {
                out.words.push(name.into());
            } else if let Some(option) = programs::find(&self.tool, &name) {
                let value = match option.takes {
                    Takes::Nothing => None,
                    Takes::Maybe => args.next_if(|w| !w.to_string_lossy().starts_with('-')),
                    Takes::Value | Takes::Two => args.next(),
                };
                if option.takes == Takes::Two {
                    args.next();
                }
                match judge(&name, option, value.as_deref()) {
                    Ok(note) => out.notes.push(note),
                    Err(why) => refusals.push(why),
                }
            } else if self.is_misread(&name) {
                refusals.push(format!(
                    "there is no option '{}'; a value stands behind a space, and options of several letters have two dashes",
                    shown::name(&name)
                ));
            } else {
                // A value behind `=`, a number behind a letter, or a mistake that clap explains.
                if name.starts_with(MODEL_IS) {
                    out.named.push(out.words.len());
                }
                out.words.push(name.into());
            }
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        if self.takes_models && self.tool == "rserve" {
            out.asked.from_environment().map_err(|why| vec![why])?;
        }
        let first = unnamed.first().copied();
        let fetched = out.asked.is_for_a_model();
        let has_file = !out.named.is_empty();
        out.asked.check(has_file).map_err(|why| vec![why])?;
        let given = |names: &[&str]| {
            fetched && names.contains(&"--model")
                || out.words.iter().any(|word| names.iter().any(|name| is_given(word, name)))
        };
        let all = UNNAMED.iter().find(|(tool, _)| *tool == self.tool).map_or(&[][..], |(_, options)| options);
        let missing: Vec<&str> = all.iter().filter(|(_, names)| !given(names)).map(|(option, _)| *option).collect();
        for (option, at) in missing.into_iter().zip(unnamed) {
            let mut both = OsString::from(format!("{option}="));
            both.push(&out.words[at]);
            out.words[at] = both;
            if option == "--model" {
                out.named.push(at);
            }
        }
        if !fetched && models::is_first_word(&self.tool) {
            out.named.extend(first);
        }
        Ok(out)
    }

    /// Notes what a word and perhaps the one behind it say about a model to fetch; false if it is no such word.
    ///
    /// # Errors
    /// The value cannot be meant.
    fn note_model(
        &self,
        name: &str,
        args: &mut impl Iterator<Item = OsString>,
        asked: &mut Asked,
    ) -> Result<bool, String> {
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (name, None),
        };
        let Some(valued) = models::takes_value(&self.tool, name) else { return Ok(false) };
        let value = if valued { value.or_else(|| args.next()) } else { None };
        asked.note(name, value.as_deref())?;
        Ok(true)
    }

    /// The word as the tool knows it: long names may be written with `_`.
    fn name(&self, word: &str) -> String {
        if word == "--usage" {
            return "--help".to_owned();
        }
        let models = if self.takes_models { &models::SHORT[..] } else { &[] };
        if let Some((_, long)) = models.iter().chain(self.short).find(|(s, _)| word == *s) {
            return (*long).to_owned();
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if word.starts_with("--") => (name, Some(value)),
            _ => (word, None),
        };
        let dashed = name.replace('_', "-");
        let known = name.starts_with("--")
            && !self.has(name)
            && (self.has(&dashed) || programs::find(&self.tool, &dashed).is_some());
        let name = if known { &dashed } else { name };
        match value {
            Some(value) => format!("{name}={value}"),
            None => name.to_owned(),
        }
    }

    /// True if clap would take a word such as `-foo` for the option `-f` and the value `oo`, or `-hfv` for `-h`.
    fn is_misread(&self, word: &str) -> bool {
        let mut letters = word.chars();
        let first = letters.by_ref().nth(1);
        let rest = letters.as_str();
        let is_valued = first.is_some_and(|c| self.valued.contains(&format!("-{c}")));
        let is_alone = first.is_some_and(|c| self.alone.contains(&format!("-{c}")));
        let is_value = is_number(rest) || rest.starts_with('=');
        first != Some('-') && !rest.is_empty() && (is_alone || is_valued && !is_value)
    }
}

/// True if a word is the option, also with a value behind it.
fn is_given(word: &OsStr, option: &str) -> bool {
    let rest = word.to_str().and_then(|word| word.strip_prefix(option));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || !option.starts_with("--"))
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

/// The note about an option that changes nothing.
///
/// # Errors
/// The option cannot be honoured.
fn judge(name: &str, option: &Foreign, value: Option<&OsStr>) -> Result<String, String> {
    let value = value.map(|v| v.to_string_lossy());
    let shown = match &value {
        Some(value) => format!("{name} {}", shown::name(value)),
        None => name.to_owned(),
    };
    match option.fate {
        Fate::Harmless(note) => Ok(format!("{shown} changes nothing here: {note}")),
        Fate::HarmlessFor(note, values, why) => match value.filter(|v| !values.contains(&v.as_ref())) {
            Some(_) => Err(format!("{shown} cannot be honoured: {why}")),
            None => Ok(format!("{shown} changes nothing here: {note}")),
        },
        Fate::Refused(why) => Err(format!("{name} cannot be honoured: {why}")),
    }
}

#[cfg(test)]
mod tests;
