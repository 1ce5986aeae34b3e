//! Command-line habits of llama.cpp: options of several letters behind one dash.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write as _;

use clap::{ArgAction, CommandFactory, Parser};

use crate::signals;

pub use trine::open::usable_threads as threads;

/// Parses the command line. `short` lists options such as `("-ub", "--ubatch-size")`, which clap would
/// read as `-u b`; the word after an option that takes a value is left as it is.
///
/// Ends the program, as clap does, after `--help` and on mistakes.
pub fn parse<T: Parser + CommandFactory>(short: &[(&str, &str)]) -> T {
    let args = expand::<T>(std::env::args_os(), short);
    T::try_parse_from(args).unwrap_or_else(|told| end(&told))
}

/// Shows help or a mistake. clap itself would end well although nobody could read the help.
fn end(told: &clap::Error) -> ! {
    if told.use_stderr() {
        let _ = told.print();
        std::process::exit(2);
    }
    let mut stdout = signals::stdout();
    let text = told.render().to_string();
    let shown = stdout.write_all(text.as_bytes());
    match shown.and_then(|()| stdout.flush()) {
        Ok(()) => std::process::exit(0),
        Err(e) => {
            note!("error: cannot write the help: {e}");
            std::process::exit(1)
        }
    }
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
