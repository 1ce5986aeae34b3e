//! Options for what is added to a model: low-rank adapters and control vectors.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// Adapters of a model, as the command line names them.
#[derive(Clone, Debug, Default)]
pub struct AdapterArgs {
    /// Adapters and their factors, in the order in which they were named.
    pub adapters: Vec<(PathBuf, f32)>,
    /// Control vectors and their factors, likewise.
    pub control_vectors: Vec<(PathBuf, f32)>,
    /// The first and the last block that control vectors are added behind; 0 for all.
    pub blocks: (i32, i32),
}

/// The options as clap sees them.
#[derive(Args)]
struct Options {
    /// Add the adapters of these GGUF files (LoRA) to the model; names are separated by commas
    #[arg(long, value_name = "FILE,...", value_parser = plain)]
    lora: Vec<Files>,

    /// The same, each times a factor
    #[arg(long, value_name = "FILE:SCALE,...", value_parser = scaled)]
    lora_scaled: Vec<Files>,

    /// Add the control vectors of these GGUF files behind the model's blocks; names are separated by commas
    #[arg(long, value_name = "FILE,...", value_parser = plain)]
    control_vector: Vec<Files>,

    /// The same, each times a factor
    #[arg(long, value_name = "FILE:SCALE,...", value_parser = scaled)]
    control_vector_scaled: Vec<Files>,

    /// The first and the last block that control vectors are added behind; without it all of them
    #[arg(long, value_names = ["START", "END"], num_args = 2, allow_negative_numbers = true)]
    control_vector_layer_range: Option<Vec<i32>>,
}

/// The files of one option, each with its factor.
#[derive(Clone, Debug, PartialEq)]
struct Files(Vec<(PathBuf, f32)>);

impl AdapterArgs {
    /// All files, to be protected from being written.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let all = self.adapters.iter().chain(&self.control_vectors);
        all.map(|(path, _)| path.as_path())
    }
}

/// Words between commas; quotes keep the commas within them, and two quotes are one.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = words.len() - 1;
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => words[last].push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => words.push(String::new()),
            c => words[last].push(c),
        }
    }
    words
}

fn plain(text: &str) -> Result<Files, String> {
    let files = words(text).into_iter().map(|name| match name.is_empty() {
        true => Err("a name between commas is missing".to_owned()),
        false => Ok((PathBuf::from(name), 1.0)),
    });
    files.collect::<Result<_, _>>().map(Files)
}

fn scaled(text: &str) -> Result<Files, String> {
    let files = words(text).into_iter().map(|word| {
        let parts = word.rsplit_once(':').filter(|(name, _)| !name.is_empty());
        let file = parts.and_then(|(name, scale)| Some((name, scale.parse::<f32>().ok()?)));
        match file.filter(|(_, scale)| scale.is_finite()) {
            Some((name, scale)) => Ok((PathBuf::from(name), scale)),
            None => Err(format!("give FILE:SCALE instead of '{word}'")),
        }
    });
    files.collect::<Result<_, _>>().map(Files)
}

/// The files of two options in the order in which they stand on the command line, which decides bits.
fn in_order(matches: &ArgMatches, options: [(&str, &[Files]); 2]) -> Vec<(PathBuf, f32)> {
    let mut all = Vec::new();
    for (name, files) in options {
        let at = matches.indices_of(name).into_iter().flatten();
        all.extend(at.zip(files));
    }
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().flat_map(|(_, files)| files.0.iter().cloned()).collect()
}

impl FromArgMatches for AdapterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<AdapterArgs, Error> {
        let o = Options::from_arg_matches(matches)?;
        let adapters = [("lora", &o.lora[..]), ("lora_scaled", &o.lora_scaled)];
        let vectors = [("control_vector", &o.control_vector[..]), ("control_vector_scaled", &o.control_vector_scaled)];
        let blocks = o.control_vector_layer_range.as_deref();
        Ok(AdapterArgs {
            adapters: in_order(matches, adapters),
            control_vectors: in_order(matches, vectors),
            blocks: match blocks {
                Some(&[first, last]) => (first, last),
                _ => (0, 0),
            },
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = AdapterArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for AdapterArgs {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Tool {
        #[command(flatten)]
        adapters: AdapterArgs,
    }

    fn read(line: &str) -> Result<AdapterArgs, Error> {
        let words = line.split_whitespace().map(OsString::from);
        Tool::try_parse_from(words).map(|tool| tool.adapters)
    }

    fn named(files: &[(&str, f32)]) -> Vec<(PathBuf, f32)> {
        let named = |&(name, scale): &(&str, f32)| (PathBuf::from(name), scale);
        files.iter().map(named).collect()
    }

    #[test]
    fn files_keep_the_order_of_the_command_line() {
        let args = read("t --lora a,b --lora-scaled c:0.5,d:-2 --lora e").expect("files");
        let all = [("a", 1.0), ("b", 1.0), ("c", 0.5), ("d", -2.0), ("e", 1.0)];
        assert_eq!(args.adapters, named(&all));
        assert!(args.control_vectors.is_empty());
        let args = read("t --control-vector-scaled a:2 --control-vector b").expect("files");
        assert_eq!(args.control_vectors, named(&[("a", 2.0), ("b", 1.0)]));
        assert_eq!(args.blocks, (0, 0));
        let args = read("t --control-vector b --control-vector-layer-range -1 7");
        assert_eq!(args.expect("files").blocks, (-1, 7));
    }

    #[test]
    fn quotes_keep_commas_and_the_last_colon_parts() {
        assert_eq!(plain("\"a,b\",c\"\"d"), Ok(Files(named(&[("a,b", 1.0), ("cd", 1.0)]))));
        assert_eq!(scaled("C:x:1"), Ok(Files(named(&[("C:x", 1.0)]))));
        for wrong in ["a", ":1", "a:", "a:x", "a:nan", "a:1,"] {
            assert!(scaled(wrong).is_err(), "{wrong}");
        }
        assert!(plain("a,").is_err());
        assert!(read("t --control-vector-layer-range 1").is_err());
    }
}
