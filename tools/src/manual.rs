//! Pages for `man` and completions for shells, both made from the description of the command line that `--help` shows.

use std::io;

use clap::{Arg, ArgAction, ArgMatches, Command};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::models;

/// Options of several letters behind one dash, and their long names: `("-ub", "--ubatch-size")`.
pub type Short = &'static [(&'static str, &'static str)];

/// The section of the manual for programs.
const SECTION: u8 = 1;

/// How tools end, as `exit` has it.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "Everything was done, and the files that were asked for are there."),
    ("1", "Refused or failed; the last line on standard error says why."),
    ("2", "The command line is wrong."),
    ("130", "Ended by Ctrl-C, SIGTERM or SIGHUP."),
];

/// A text about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The page of the manual, for `man`.
    Manual,
    /// The completion script of the tool's options.
    Completion(Shell),
}

/// All pages.
pub const PAGES: [Page; 4] =
    [Page::Manual, Page::Completion(Shell::Bash), Page::Completion(Shell::Zsh), Page::Completion(Shell::Fish)];

impl Page {
    /// The option that asks for it, and its help.
    fn option(self) -> (&'static str, &'static str) {
        match self {
            Page::Manual => ("man", "Print the page of the manual: rgen --man | man -l -"),
            Page::Completion(Shell::Zsh) => {
                ("completion-zsh", "Print what zsh completes options with, for a file _NAME in a folder of $fpath")
            }
            Page::Completion(Shell::Fish) => {
                ("completion-fish", "Print what fish completes options with: rgen --completion-fish | source")
            }
            Page::Completion(_) => {
                ("completion-bash", "Print what bash completes options with: source <(rgen --completion-bash)")
            }
        }
    }

    /// Where it belongs below a prefix such as `/usr/local`, by the name of the tool.
    pub fn path(self, tool: &str) -> String {
        match self {
            Page::Manual => format!("share/man/man{SECTION}/{tool}.{SECTION}"),
            Page::Completion(Shell::Zsh) => format!("share/zsh/site-functions/_{tool}"),
            Page::Completion(Shell::Fish) => format!("share/fish/vendor_completions.d/{tool}.fish"),
            Page::Completion(_) => format!("share/bash-completion/completions/{tool}"),
        }
    }

    /// The page about the tool of a command line.
    ///
    /// # Errors
    /// None that memory, which the page is written to, is known for.
    pub fn of(self, command: &Command, short: Short) -> io::Result<Vec<u8>> {
        let mut command = command.clone();
        let name = command.get_name().to_owned();
        let mut out = Vec::new();
        match self {
            Page::Manual => manual(command, short, &mut out)?,
            Page::Completion(shell) => generate(shell, &mut command, name, &mut out),
        }
        Ok(out)
    }
}

/// A command line with the options that ask for pages. They stand alone, whatever else the tool requires.
pub fn with_options(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let options = PAGES.map(|page| {
        let (option, help) = page.option();
        Arg::new(option)
            .long(option)
            .help(help.replace("rgen", &name))
            .help_heading("Manual and completion")
            .action(ArgAction::SetTrue)
            .exclusive(true)
            .hide_short_help(true)
    });
    command.args(options)
}

/// The page that was asked for.
pub fn asked(matches: &ArgMatches) -> Option<Page> {
    PAGES.into_iter().find(|page| matches.get_flag(page.option().0))
}

/// The page of the manual. Examples keep their lines.
fn manual(mut command: Command, short: Short, out: &mut Vec<u8>) -> io::Result<()> {
    // The crate's own synopsis is a list of all options, without their values.
    let usage = command.render_usage().to_string();
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]).control("nf", []);
    for line in usage.trim_start_matches("Usage:").lines() {
        synopsis.text([roman(line.trim())]);
    }
    synopsis.control("fi", []);
    let takes_models = command.get_arguments().any(|arg| arg.get_long() == Some("hf-repo"));
    let models = if takes_models { &models::SHORT[..] } else { &[] };
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command).manual("trine");
    let mut rest = Roff::new();
    if !short.is_empty() || takes_models {
        rest.control("SH", ["SHORT FORMS"]);
        for (short, long) in short.iter().chain(models) {
            rest.control("TP", []);
            rest.text([roman(*short)]).text([roman(*long)]);
        }
    }
    rest.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_STATUS {
        rest.control("TP", []);
        rest.text([roman(*code)]).text([roman(*meaning)]);
    }
    let (title, lines) = match after.strip_prefix("Examples:\n") {
        Some(examples) => ("EXAMPLES", examples),
        None => ("NOTES", after.as_str()),
    };
    if !lines.is_empty() {
        rest.control("SH", [title]).control("nf", []);
        for line in lines.lines() {
            rest.text([roman(line)]);
        }
        rest.control("fi", []);
    }
    man.render_title(out)?;
    man.render_name_section(out)?;
    synopsis.to_writer(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    rest.to_writer(out)
}
