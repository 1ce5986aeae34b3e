//! Settings that `/set` changes during a chat, by the names of the options.

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};

use super::Talk;
use crate::shown;

/// Something that can be set.
struct Setting {
    name: &'static str,
    get: fn(&mut Talk<'_>) -> String,
    set: fn(&mut Talk<'_>, &str) -> Result<()>,
}

/// A setting that is a number of the sampler; a probability where the last word says so.
macro_rules! number {
    ($name:literal, $field:ident, $read:ident) => {
        Setting {
            name: $name,
            get: |talk| talk.chat.options_mut().sampler.$field.to_string(),
            set: |talk, value| {
                talk.chat.options_mut().sampler.$field = $read(value)?;
                Ok(())
            },
        }
    };
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
    number!("temp", temp, finite),
    number!("top-k", top_k, number),
    number!("top-p", top_p, probability),
    number!("min-p", min_p, probability),
    number!("typical", typical_p, probability),
    number!("repeat-penalty", repeat_penalty, finite),
    number!("presence-penalty", presence_penalty, finite),
    number!("frequency-penalty", frequency_penalty, finite),
    number!("seed", seed, number),
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

fn finite(value: &str) -> Result<f32> {
    let x: f32 = number(value)?;
    if !x.is_finite() {
        bail!("{x} is no number that can stand here");
    }
    Ok(x)
}

fn probability(value: &str) -> Result<f32> {
    let p = finite(value)?;
    if !(0.0..=1.0).contains(&p) {
        bail!("it is a probability: give a number from 0 to 1, not {p}");
    }
    Ok(p)
}

fn on_or_off(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("it is on or off, not '{}'", shown::name(value)),
    }
}

/// Changes a setting.
///
/// # Errors
/// There is no such setting, or it cannot have this value; nothing has changed then.
pub fn set(talk: &mut Talk<'_>, name: &str, value: &str) -> Result<()> {
    let dashed = name.replace('_', "-");
    let Some(setting) = SETTINGS.iter().find(|s| s.name == dashed) else {
        let all: Vec<_> = SETTINGS.iter().map(|s| s.name).collect();
        let (name, all) = (shown::name(name), all.join(", "));
        bail!("there is no setting '{name}'; there are {all}");
    };
    (setting.set)(talk, value).map_err(|e| anyhow!("{}: {e}", setting.name))
}

/// The settings, in one line.
pub fn list(talk: &mut Talk<'_>) -> String {
    let all = SETTINGS.iter();
    let all = all.map(|setting| format!("{} {}", setting.name, (setting.get)(talk)));
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_make_no_sense_are_refused() {
        assert_eq!(probability("0.5").unwrap(), 0.5);
        assert_eq!(number::<i32>("-3").unwrap(), -3);
        for wrong in ["1.5", "-0.1", "nan", "inf", "", "half"] {
            assert!(probability(wrong).is_err(), "{wrong}");
        }
        assert!(number::<u32>("-1").is_err());
        assert!(finite("1e99").is_err());
        assert!(on_or_off("yes").is_err());
    }
}
