//! `trine`: all tools in one program, which is a sixth of the size of as many programs.
//!
//! It is the tool by whose name it is called, so links to it are the tools; `trine rgen …` works without links.
//! `trine --install PREFIX` makes the links and writes pages and completions; `trine --probe URL` asks a server whether it is
//! ready.

mod install;
#[cfg(feature = "hub")]
mod models;
mod probe;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Arg, Command, CommandFactory as _, value_parser};
use trine_tools::args::{self, Words};
use trine_tools::commands::{Tool, all};
use trine_tools::{exit, isolate, manual, prove, version};

/// The tools of all crates, by name.
fn tools() -> Vec<Tool> {
    let mut tools = all();
    tools.push(trine_serve::tool());
    tools.sort_by_key(|tool| tool.name);
    tools
}

/// The command line of this program when it is called by its own name. Those of the tools are there for its help and
/// its pages.
fn command() -> Command {
    let install = Arg::new("install")
        .long("install")
        .value_name("PREFIX")
        .value_parser(value_parser!(PathBuf))
        .exclusive(true)
        .help("Put this program, a link to it for each tool, pages for man and completions for bash, zsh and fish below PREFIX");
    let probe = Arg::new("probe").long("probe").value_name("URL").exclusive(true).help(
        "Ask a server whether it is ready, such as rserve at http://127.0.0.1:8080/health; fails where it is not",
    );
    let command = Command::new("trine")
        .version(version::described())
        .about("All tools of trine in one program")
        .long_about("All tools of trine in one program\n\n`trine TOOL …` is the tool of this name, and so is a link to this program that has its name.")
        .after_help(
            "\
Examples:
  trine rgen -m model.gguf -p 'Once upon a time'
  trine rgen --help
  trine pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M    fetch a model; trine list, show and rm tell of those that are here
  trine prove                     this machine computes the bits that all others do
  trine --install ~/.local        ~/.local/bin/rgen and all others, man rgen, and completion in shells",
        )
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand_value_name("TOOL")
        .subcommand_help_heading("Tools")
        .subcommands(tools().iter().map(Tool::command))
        .subcommand(prove::Args::command())
        .arg(install)
        .arg(probe);
    #[cfg(feature = "hub")]
    let command = command.subcommands(models::commands());
    manual::with_options(command)
}

/// The tool that a word names.
fn called(word: Option<&OsStr>) -> Option<Tool> {
    tools().into_iter().find(|tool| word.is_some_and(|word| word == tool.name))
}

fn main() -> ExitCode {
    // The program that is started for an isolated job goes by no tool's name.
    if let Some(code) = isolate::serve() {
        return code;
    }
    let mut words = args::words();
    let own = words.first().map(Path::new);
    if let Some(tool) = called(own.and_then(Path::file_stem)) {
        return tool.start(words);
    }
    if let Some(tool) = called(words.get(1).map(|word| word.as_os_str())) {
        words.remove(0);
        return tool.start(words);
    }
    if words.get(1).is_some_and(|word| word == "prove") {
        words.remove(0);
        return exit::run("trine", || prove::run(&args::parse(&[], words)?));
    }
    #[cfg(feature = "hub")]
    if words.get(1).and_then(|word| word.to_str()).is_some_and(models::is_command) {
        return exit::run("trine", || models::run(words));
    }
    exit::run("trine", || run(words))
}

/// Does what concerns all tools.
fn run(words: Words) -> Result<()> {
    let mut command = command();
    let matches = args::matches(&mut command, &[], words)?;
    let prefix = matches.get_one::<PathBuf>("install");
    let url = matches.get_one::<String>("probe");
    match (prefix, url) {
        (Some(prefix), _) => install::install(prefix, &command, &tools()),
        (None, Some(url)) => probe::probe(url),
        (None, None) => bail!("the name of the tool comes first; trine --help lists them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_in_the_command_line_and_answers_to_its_name() {
        command().debug_assert();
        let names: Vec<_> = tools().iter().map(|tool| tool.name).collect();
        let known = command();
        let known: Vec<_> = known
            .get_subcommands()
            .map(Command::get_name)
            .filter(|name| name.starts_with('r') && *name != "rm")
            .collect();
        assert_eq!(names, known);
        assert_eq!(names.len(), 9);
        for name in names {
            assert_eq!(called(Some(OsStr::new(name))).map(|tool| tool.name), Some(name));
        }
        assert!(called(Some(OsStr::new("rgenerate"))).is_none());
        assert!(called(None).is_none());
    }
}
