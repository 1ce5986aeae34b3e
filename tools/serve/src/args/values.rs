//! Values of options: sizes, times, and how long models stay.

use std::time::Duration;

use clap::ValueEnum;

/// How long a model stays loaded after its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// Unload it after this time.
    For(Duration),
    /// Unload it when its memory is needed.
    Always,
}

/// The place of thoughts where a request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum ReasoningFormat {
    None,
    Auto,
    Deepseek,
}

/// Format of the log lines, one for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum LogFormat {
    Text,
    Json,
    None,
}

/// Parses a number of tokens of thoughts: none, or as many as come.
///
/// # Errors
/// Any other number.
pub fn budget(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(n @ -1..=0) => Ok(n),
        _ => Err("thoughts are not cut short: give 0 or -1; max_tokens of a request bounds a whole answer".to_owned()),
    }
}

/// Parses a number of minutes, or -1.
///
/// # Errors
/// The text is neither.
pub fn minutes(text: &str) -> Result<KeepAlive, String> {
    let number = text.parse::<f64>().ok();
    match number.filter(|m| *m == -1.0 || (0.0..=1e6).contains(m)) {
        Some(m) if m < 0.0 => Ok(KeepAlive::Always),
        Some(m) => Ok(KeepAlive::For(Duration::from_secs_f64(m * 60.0))),
        None => Err("give a number of minutes from 0 to 1000000, or -1".to_owned()),
    }
}

/// Parses a number of seconds.
///
/// # Errors
/// It is none, or below 0.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok();
    match number.filter(|s| (0.0..=1e6).contains(s)) {
        Some(s) => Ok(Duration::from_secs_f64(s)),
        None => Err("give a number of seconds from 0 to 1000000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "nan", "1e9", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn minutes_and_budgets() {
        assert_eq!(minutes("1.5"), Ok(KeepAlive::For(Duration::from_secs(90))));
        assert_eq!(minutes("-1"), Ok(KeepAlive::Always));
        assert_eq!((budget("0"), budget("-1")), (Ok(0), Ok(-1)));
        for text in ["-2", "x", "512"] {
            assert!(budget(text).is_err() && (text == "512" || minutes(text).is_err()), "{text}");
        }
    }
}
