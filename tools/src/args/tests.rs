use clap::Parser;
use clap::{CommandFactory, FromArgMatches};

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
    #[arg(long, num_args = 0..=1, default_missing_value = "on")]
    colour: Option<String>,
}

fn read(args: &[&str]) -> Result<Read, Vec<String>> {
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
    assert_eq!(words(&["-ub", "8", "-u", "-st"]), ["--ubatch-size", "8", "-u", "--single-turn"]);
}

#[test]
fn values_stay() {
    assert_eq!(words(&["x", "-p", "-st", "-st"]), ["x", "-p", "-st", "--single-turn"]);
    assert_eq!(words(&["x", "--prompt", "-ngl"]), ["x", "--prompt", "-ngl"]);
    assert_eq!(words(&["--prompt=-ngl", "-n8", "-n-1", "--", "-ngl"]), ["--prompt=-ngl", "-n8", "-n-1", "--", "-ngl"]);
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
        (&["-fa", "on"], 1),
        (&["-fa"], 1),
        (&["-fa", "off", "-p", "x"], 1),
        (&["--jinja", "--no-warmup", "--log_disable"], 3),
        (&["-ctk", "f16"], 1),
    ] {
        let read = read(line).unwrap_or_else(|e| panic!("{line:?}: {e:?}"));
        assert_eq!(read.notes.len(), notes, "{line:?}: {read:?}");
    }
    assert_eq!(words(&["-fa", "off", "-p", "x"]), ["-p", "x"]);
    assert_eq!(words(&["-fa", "-p", "x"]), ["-p", "x"]);
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    for (line, name) in [
        (&["-hf", "a/b"][..], "-hf"),
        (&["-fa", "maybe"], "-fa maybe"),
        (&["-ctk", "q8_0"], "-ctk q8_0"),
        (&["--lora", "x.gguf"], "--lora"),
        (&["-foo"], "'-foo'"),
        (&["-pn"], "'-pn'"),
        (&["-hx"], "'-hx'"),
        (&["-hfv", "a/b"], "-hfv"),
    ] {
        let why = read(line).expect_err("an error");
        assert!(why.len() == 1 && why[0].contains(name), "{line:?}: {why:?}");
    }
    // All of them are said at once.
    let all = read(&["-hf", "a/b", "-p", "x", "-foo", "-ctk", "q8_0"]).expect_err("errors");
    assert!(all.len() == 3 && all[1].contains("'-foo'"), "{all:?}");
}

/// A name stands in one place, and looks like an option.
#[test]
fn the_tables_are_in_order() {
    let own = OF_PROGRAMS.iter().map(|(_, _, options)| *options);
    for table in own.chain([table()]) {
        let mut seen = HashSet::new();
        for name in table.iter().flat_map(|o| o.names) {
            assert!(name.starts_with('-') && seen.insert(name), "{name}");
        }
    }
}

/// llama-bench's `-nkvo` takes a word, that of all others none.
#[test]
fn a_program_may_read_an_option_in_its_own_way() {
    let read = |tool: &'static str| {
        let words = ["x", "-nkvo", "0"].map(OsString::from);
        let read = Reader::new(&Args::command().name(tool), &[]).read(words);
        read.expect("a command line").words.len()
    };
    assert_eq!((read("rbench"), read("rgen")), (1, 2));
}

#[test]
fn a_value_that_may_be_missing_is_no_option() {
    assert_eq!(words(&["--colour", "off"]), ["--colour", "off"]);
    assert_eq!(words(&["--colour", "-ub", "8"]), ["--colour", "--ubatch-size", "8"]);
    let read = read(&["--colour", "-ngl", "99"]).expect("a command line");
    assert_eq!(read.notes.len(), 1);
}

#[test]
fn pages_are_asked_for_alone_whatever_is_required() {
    #[derive(Debug, Parser)]
    #[command(name = "tool")]
    struct Strict {
        #[arg(long, required = true)]
        model: String,
    }
    let parse = |words: &[&str]| {
        let words = std::iter::once(&"tool").chain(words);
        command::<Strict>().try_get_matches_from(words)
    };
    for page in manual::PAGES {
        let option = page.path("x");
        let option = match &option {
            path if path.contains("/man/") => "--man",
            path if path.contains("bash") => "--completion-bash",
            path if path.contains("zsh") => "--completion-zsh",
            _ => "--completion-fish",
        };
        let matches = parse(&[option]).expect(option);
        assert_eq!(manual::asked(&matches), Some(page));
        assert!(parse(&[option, "--model", "m"]).is_err(), "{option}");
    }
    let matches = parse(&["--model", "m"]).expect("a model");
    assert_eq!(manual::asked(&matches), None);
    assert_eq!(Strict::from_arg_matches(&matches).expect("a model").model, "m");
}
