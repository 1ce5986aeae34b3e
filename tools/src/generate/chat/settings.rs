//! The options that `/set` changes during a chat.

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};

use trine::SamplerOption;
use trine::sample::OPTIONS;

use super::Talk;
use crate::shown;

/// Something that can be set.
struct Setting {
    name: &'static str,
    get: fn(&mut Talk<'_>) -> String,
    set: fn(&mut Talk<'_>, &str) -> Result<()>,
}

/// A setting of the chat itself that is on or off.
macro_rules! switch {
    ($name:literal, $field:ident) => {
        Setting {
            name: $name,
            get: |talk| if talk.$field { "on" } else { "off" }.to_owned(),
            set: |talk, value| {
                talk.$field = on_or_off(value)?;
                Ok(())
            },
        }
    };
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "seed",
        get: |talk| talk.chat.options_mut().sampler.seed.to_string(),
        set: |talk, value| {
            talk.chat.options_mut().sampler.seed = number(value)?;
            Ok(())
        },
    },
    Setting {
        name: "predict",
        get: |talk| {
            let most = talk.chat.options_mut().max_tokens;
            most.map_or("-1".to_owned(), |n| n.to_string())
        },
        set: |talk, value| {
            let n: i64 = number(value)?;
            talk.chat.options_mut().max_tokens = usize::try_from(n).ok();
            Ok(())
        },
    },
    switch!("context-shift", shift),
    switch!("timings", timings),
];

fn number<T: FromStr>(value: &str) -> Result<T> {
    let number = value.parse();
    number.map_err(|_| anyhow!("'{}' is no number that can stand here", shown::name(value)))
}

fn on_or_off(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("it is on or off, not '{}'", shown::name(value)),
    }
}

/// The sampler's options with their names. DRY is left out: it breaks repetitions at texts that are looked for in the
/// vocabulary at the start.
fn of_sampler() -> impl Iterator<Item = (&'static str, &'static SamplerOption)> {
    let options = OPTIONS.iter().filter(|option| !option.field.starts_with("dry_"));
    options.filter_map(|option| Some((option.flags.first()?.trim_start_matches('-'), option)))
}

/// The names of all settings.
pub fn names() -> impl Iterator<Item = &'static str> {
    of_sampler().map(|(name, _)| name).chain(SETTINGS.iter().map(|setting| setting.name))
}

/// Changes a setting.
///
/// # Errors
/// There is no such setting, or it cannot have this value; nothing has changed then.
pub fn set(talk: &mut Talk<'_>, name: &str, value: &str) -> Result<()> {
    // The other names that ollama and llama.cpp have for it.
    let dashed = match name {
        "n" | "num_predict" | "n_predict" => "predict".to_owned(),
        "temperature" => "temp".to_owned(),
        other => other.replace('_', "-"),
    };
    if let Some((name, option)) = of_sampler().find(|(name, _)| *name == dashed) {
        let value = option.parse(value).map_err(|why| anyhow!("{name}: {}", shown::name(&why)))?;
        let n_ctx = talk.chat.context().n_ctx();
        option.set(&mut talk.chat.options_mut().sampler, value, n_ctx);
        return Ok(());
    }
    let Some(setting) = SETTINGS.iter().find(|s| s.name == dashed) else {
        let all: Vec<_> = names().collect();
        let (name, all) = (shown::name(name), all.join(", "));
        bail!("there is no setting '{name}'; there are {all}");
    };
    (setting.set)(talk, value).map_err(|e| anyhow!("{}: {e}", setting.name))
}

/// All settings, in one line.
pub fn list(talk: &mut Talk<'_>) -> String {
    let sampler = &talk.chat.options_mut().sampler;
    let sampler = of_sampler().map(|(name, option)| format!("{name} {}", option.range.show(option.get(sampler))));
    let mut all: Vec<String> = sampler.collect();
    all.extend(SETTINGS.iter().map(|setting| format!("{} {}", setting.name, (setting.get)(talk))));
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samplers_numbers_are_read_as_on_the_command_line() {
        let parse = |name: &str, value| of_sampler().find(|s| s.0 == name).expect("a setting").1.parse(value);
        assert_eq!(parse("top-p", "0.5"), Ok(0.5));
        for wrong in ["1.5", "-0.1", "nan", "inf", "", "half"] {
            assert!(parse("top-p", wrong).is_err(), "{wrong}");
        }
        assert!(parse("repeat-penalty", "1e99").is_err());
        assert!(parse("top-k", "0.5").is_err());
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        assert_eq!(number::<i32>("-3").unwrap(), -3);
        assert!(number::<u32>("-1").is_err());
        assert!(on_or_off("yes").is_err());
    }
}
