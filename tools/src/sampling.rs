//! The sampler on a command line: one option for each row of [`trine::sample::OPTIONS`], and the order of the steps.

use std::hash::{BuildHasher, RandomState};

use anyhow::{Result, bail};
use clap::builder::StyledStr;
use clap::error::Result as ClapResult;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use trine::sample::{OPTIONS, Recommended};
use trine::{SamplerKind, SamplerOption, SamplerOptions};

/// The variable of the environment that has the seed of texts that were given none.
const SEED: &str = "TRINE_SEED";

/// Returns the seed of a text that was given none: the number in `TRINE_SEED`, or a random one.
///
/// # Errors
/// The variable is `required`, so that nothing may be drawn, or no seed.
pub fn seed() -> Result<u32> {
    let Some(text) = std::env::var_os(SEED).filter(|text| !text.is_empty()) else {
        // Keyed by the system's random numbers. The highest stands for a random seed, so it is none.
        return Ok((RandomState::new().hash_one(std::process::id()) as u32).min(u32::MAX - 1));
    };
    if text == "required" {
        bail!("no seed was given, and {SEED}=required says that none is drawn: give one");
    }
    match text.to_str().and_then(|text| text.parse().ok()).filter(|seed| *seed != u32::MAX) {
        Some(seed) => Ok(seed),
        None => bail!("{SEED} is a number from 0 to {}, or 'required'", u32::MAX - 1),
    }
}

/// Values of the options that are numbers, and the steps in their order; only what was asked for.
#[derive(Clone)]
pub struct SamplerArgs {
    steps: Option<Vec<SamplerKind>>,
    values: Vec<(&'static SamplerOption, f64)>,
}

impl SamplerArgs {
    /// These values and those that the file of a model recommends, for texts in a context of `n_ctx` tokens.
    pub fn over(&self, file: &Recommended, options: SamplerOptions, n_ctx: usize) -> SamplerOptions {
        self.apply(file.apply(options, n_ctx), n_ctx)
    }

    /// `options` with these values, for texts in a context of `n_ctx` tokens.
    fn apply(&self, mut options: SamplerOptions, n_ctx: usize) -> SamplerOptions {
        if let Some(steps) = &self.steps {
            options.samplers.clone_from(steps);
        }
        self.values.iter().for_each(|(option, value)| option.set(&mut options, *value, n_ctx));
        options
    }
}

/// Steps in their order, as clap keeps a value.
#[derive(Clone, Debug, PartialEq)]
struct Steps(Vec<SamplerKind>);

/// Parses names of steps.
fn steps(text: &str) -> Result<Steps, String> {
    let names = text.split(';').filter(|name| !name.is_empty());
    let kinds = names.map(|name| {
        SamplerKind::by_name(name.trim())
            .ok_or_else(|| format!("there is no step '{name}'; there are {}", names_of_steps()))
    });
    kinds.collect::<Result<_, _>>().map(Steps)
}

fn names_of_steps() -> String {
    SamplerKind::names().collect::<Vec<_>>().join(", ")
}

/// Parses letters of steps.
fn letters(text: &str) -> Result<Steps, String> {
    let kinds = text.chars().map(|letter| {
        SamplerKind::by_letter(letter).ok_or_else(|| {
            let all: String = SamplerKind::letters().collect();
            format!("there is no step '{letter}'; there are {all}")
        })
    });
    kinds.collect::<Result<_, _>>().map(Steps)
}

fn arg(option: &'static SamplerOption) -> Option<Arg> {
    let (first, others) = option.flags.split_first()?;
    let default = option.range.show(option.get(&SamplerOptions::default()));
    let arg = Arg::new(option.field)
        .long(first.trim_start_matches('-'))
        .visible_aliases(others.iter().map(|flag| flag.trim_start_matches('-')))
        .value_name(option.value)
        .help(option.help)
        .default_value(default)
        .allow_negative_numbers(true)
        .value_parser(|word: &str| option.parse(word));
    Some(arg)
}

impl Args for SamplerArgs {
    fn augment_args(command: Command) -> Command {
        let order: StyledStr = format!(
            "The steps in the order they are taken in, with ; between them: {}. Those left out are not taken",
            names_of_steps()
        )
        .into();
        let all: String = SamplerKind::letters().collect();
        let command = command
            .next_help_heading("Sampling")
            .arg(
                Arg::new("samplers")
                    .long("samplers")
                    .value_name("STEPS")
                    .help(order)
                    .value_parser(steps)
                    .conflicts_with("sampler_seq"),
            )
            .arg(
                Arg::new("sampler_seq")
                    .long("sampler-seq")
                    .alias("sampling-seq")
                    .value_name("LETTERS")
                    .help(StyledStr::from(format!("The same in letters: {all}")))
                    .value_parser(letters),
            );
        command.args(OPTIONS.iter().filter_map(arg)).next_help_heading(None)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SamplerArgs::augment_args(command)
    }
}

impl FromArgMatches for SamplerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> ClapResult<SamplerArgs> {
        let steps = ["samplers", "sampler_seq"].into_iter().find_map(|id| matches.get_one::<Steps>(id));
        let value = |option: &'static SamplerOption| Some((option, *matches.get_one::<f64>(option.field)?));
        // A default gives way to what the file of a model says.
        let asked = |field| matches.value_source(field) != Some(ValueSource::DefaultValue);
        let with_flags = OPTIONS.iter().filter(|option| !option.flags.is_empty() && asked(option.field));
        Ok(SamplerArgs { steps: steps.map(|steps| steps.0.clone()), values: with_flags.filter_map(value).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> ClapResult<()> {
        *self = SamplerArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine::formats::gguf::{Metadata, Value};

    #[test]
    fn steps_have_names_and_letters() {
        assert_eq!(steps("top-k;TEMP;top_n_sigma"), letters("kts"));
        assert!(steps("top_k;tip_k").unwrap_err().contains("'tip_k'"));
        assert!(letters("kz").unwrap_err().contains("'z'"));
    }

    fn read(words: &[&str]) -> Result<SamplerOptions, String> {
        let words = std::iter::once(&"tool").chain(words);
        let matches = SamplerArgs::augment_args(Command::new("tool")).try_get_matches_from(words);
        let args = SamplerArgs::from_arg_matches(&matches.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        Ok(args.apply(SamplerOptions::default(), 512))
    }

    #[test]
    fn without_words_it_is_the_default() {
        assert_eq!(read(&[]), Ok(SamplerOptions::default()));
    }

    #[test]
    fn flags_come_before_what_the_file_says() {
        let mut meta = Metadata::default();
        meta.set("general.sampling.temp", Value::F32(0.25));
        meta.set("general.sampling.top_k", Value::I32(7));
        meta.set("general.sampling.sequence", Value::str("top_k;temperature"));
        let read = |words: &[&str]| {
            let command = SamplerArgs::augment_args(Command::new("tool"));
            let matches = command.get_matches_from(std::iter::once(&"tool").chain(words));
            let args = SamplerArgs::from_arg_matches(&matches).expect("options");
            args.over(&Recommended::of(&meta), SamplerOptions::default(), 512)
        };
        let of_file = read(&[]);
        assert_eq!((of_file.temp, of_file.top_k, of_file.samplers.len()), (0.25, 7, 2));
        // a flag with the value of the default is a flag, and changes nothing else
        let asked = read(&["--temp", "0.8", "--samplers", "top_p"]);
        assert_eq!((asked.temp, asked.top_k, &asked.samplers[..]), (0.8, 7, &[SamplerKind::TopP][..]));
    }

    #[test]
    fn every_option_has_its_flags() {
        for option in OPTIONS {
            for flag in option.flags {
                // a value that the option does not have by itself
                let value = match option.field {
                    "dry_allowed_length" => 3.0,
                    _ if option.range.whole => 2.0,
                    _ => 0.5,
                };
                let mut expected = SamplerOptions::default();
                option.set(&mut expected, value, 512);
                assert_ne!(expected, SamplerOptions::default(), "{flag}");
                assert_eq!(read(&[flag, &value.to_string()]), Ok(expected), "{flag}");
                assert!(read(&[flag, "x"]).unwrap_err().contains(option.flags[0]));
            }
        }
        let o = read(&["--repeat-last-n", "-1", "--temp", "-1", "--adaptive-target", "2"]).expect("options");
        assert_eq!((o.repeat_last_n, o.temp, o.adaptive_target), (512, 0.0, 1.0));
        for (flag, value) in
            [("--top-p", "1.5"), ("--adaptive-decay", "1"), ("--repeat-last-n", "-2"), ("--mirostat", "3")]
        {
            assert!(read(&[flag, value]).unwrap_err().contains(flag), "{flag}");
        }
    }
}
