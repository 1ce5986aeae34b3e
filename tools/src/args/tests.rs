use clap::CommandFactory;
use clap::Parser;

use super::*;

#[derive(Parser)]
struct Args {
    #[arg(short, long)]
    prompt: Option<String>,
    #[arg(short, long)]
    file: Option<String>,
    #[arg(short = 'n', long, alias = "n-predict")]
    predict: Option<i64>,
    #[arg(long, short)]
    update: bool,
}

fn read(args: &[&str]) -> Result<Read, String> {
    let words = std::iter::once(&"rgen").chain(args).map(OsString::from);
    let short = [("-ub", "--ubatch-size"), ("-st", "--single-turn")];
    Reader::new(&Args::command(), &short).read(words)
}

fn words(args: &[&str]) -> Vec<String> {
    let read = read(args).expect("a command line");
    let words = read.words.into_iter().skip(1);
    words.map(|w| w.into_string().unwrap()).collect()
}

#[test]
fn options_of_several_letters_become_long_ones() {
    assert_eq!(
        words(&["-ub", "8", "-u", "-st"]),
        ["--ubatch-size", "8", "-u", "--single-turn"]
    );
}

#[test]
fn values_stay() {
    assert_eq!(
        words(&["x", "-p", "-st", "-st"]),
        ["x", "-p", "-st", "--single-turn"]
    );
    assert_eq!(words(&["x", "--prompt", "-ngl"]), ["x", "--prompt", "-ngl"]);
    assert_eq!(
        words(&["--prompt=-ngl", "-n8", "-n-1", "--", "-ngl"]),
        ["--prompt=-ngl", "-n8", "-n-1", "--", "-ngl"]
    );
}

#[test]
fn long_names_may_have_underscores() {
    assert_eq!(words(&["--n_predict", "8"]), ["--n-predict", "8"]);
    assert_eq!(words(&["--no_such_thing"]), ["--no_such_thing"]);
}

#[test]
fn what_changes_nothing_is_left_out_with_a_note() {
    for (line, notes) in [
        (&["-ngl", "99"][..], 1),
        (&["-fa"], 1),
        (&["-fa", "off", "-p", "x"], 1),
        (&["--jinja", "--no-warmup", "--log_disable"], 3),
        (&["-ctk", "f16"], 1),
    ] {
        let read = read(line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        assert_eq!(read.notes.len(), notes, "{line:?}: {read:?}");
    }
    assert_eq!(words(&["-fa", "off", "-p", "x"]), ["-p", "x"]);
    assert_eq!(words(&["-fa", "-p", "x"]), ["-p", "x"]);
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    for (line, name) in [
        (&["-hf", "a/b"][..], "-hf"),
        (&["-fa", "on"], "-fa on"),
        (&["-ctk", "q8_0"], "-ctk q8_0"),
        (&["--lora", "x.gguf"], "--lora"),
        (&["-foo"], "'-foo'"),
        (&["-pn"], "'-pn'"),
    ] {
        let why = read(line).expect_err("an error");
        assert!(why.contains(name), "{line:?}: {why}");
    }
}

/// A name stands in one place, and looks like an option.
#[test]
fn the_table_is_in_order() {
    let mut seen = HashSet::new();
    for name in TABLE.iter().flat_map(|o| o.names) {
        assert!(name.starts_with('-') && seen.insert(name), "{name}");
    }
}
