//! Command-line habits of llama.cpp: options of several letters behind one dash.

use std::collections::HashSet;
use std::ffi::OsString;

use clap::{ArgAction, CommandFactory, Parser};

pub use trine::open::usable_threads as threads;

/// Parses the command line. `short` lists options such as `("-ub", "--ubatch-size")`, which clap would
/// read as `-u b`; the word after an option that takes a value is left as it is.
///
/// Ends the program, as clap does, after `--help` and on mistakes.
pub fn parse<T: Parser + CommandFactory>(short: &[(&str, &str)]) -> T {
    T::parse_from(expand::<T>(std::env::args_os(), short))
}

fn expand<T: CommandFactory>(
    args: impl IntoIterator<Item = OsString>,
    short: &[(&str, &str)],
) -> Vec<OsString> {
    let mut valued = HashSet::new();
    for arg in T::command().get_arguments() {
        if matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) {
            valued.extend(
                arg.get_short_and_visible_aliases()
                    .into_iter()
                    .flatten()
                    .map(|c| format!("-{c}")),
            );
            valued.extend(
                arg.get_long_and_visible_aliases()
                    .into_iter()
                    .flatten()
                    .map(|l| format!("--{l}")),
            );
        }
    }
    let mut out: Vec<OsString> = Vec::new();
    let mut is_value = true; // the program's name
    for arg in args {
        if is_value {
            out.push(arg);
            is_value = false;
            continue;
        }
        let long = short
            .iter()
            .find(|(s, _)| arg == *s)
            .map(|(_, l)| OsString::from(l));
        let arg = long.unwrap_or(arg);
        is_value = arg.to_str().is_some_and(|a| valued.contains(a));
        out.push(arg);
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Args {
        #[arg(short, long)]
        prompt: Option<String>,
        #[arg(long, short)]
        update: bool,
    }

    fn expanded(args: &[&str]) -> Vec<OsString> {
        let args = args.iter().map(OsString::from);
        expand::<Args>(args, &[("-ub", "--ubatch-size"), ("-st", "--single-turn")])
    }

    #[test]
    fn options_of_several_letters_become_long_ones() {
        assert_eq!(
            expanded(&["-ub", "-ub", "8", "-u", "-st"]),
            ["-ub", "--ubatch-size", "8", "-u", "--single-turn"]
        );
    }

    #[test]
    fn values_stay() {
        assert_eq!(
            expanded(&["x", "-p", "-st", "-st"]),
            ["x", "-p", "-st", "--single-turn"]
        );
        assert_eq!(
            expanded(&["x", "--prompt", "-ub"]),
            ["x", "--prompt", "-ub"]
        );
    }
}
