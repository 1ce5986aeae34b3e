//! How long a model stays loaded after a request, in Ollama's words.

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, wrong};
use crate::args::KeepAlive;
use crate::error::ApiError;

/// The fields' names.
const NAME: &str = "keep_alive";
const TTL: &str = "ttl";
const WANTED: &str = "a number of seconds or a time such as \"5m\" or \"1h30m\", below 0: for ever";

/// The time that `keep_alive` of a request names, a number of seconds or a duration as Go writes them; or else `ttl`,
/// whole seconds, which is LM Studio's name for it.
///
/// # Errors
/// The field is neither.
pub fn keep_alive(f: &Fields<'_>) -> Result<Option<KeepAlive>, ApiError> {
    let seconds = match f.get(NAME) {
        None => {
            let seconds = f.integer(TTL, 0..=i64::from(u32::MAX))?;
            return Ok(seconds.map(|s| KeepAlive::For(Duration::from_secs(s as u64))));
        }
        Some(Value::Number(n)) => n.as_f64(),
        Some(Value::String(text)) => seconds(text),
        Some(other) => return Err(wrong(NAME, WANTED, other)),
    };
    let seconds =
        seconds.filter(|s| s.is_finite()).ok_or_else(|| ApiError::field(NAME, format!("must be {WANTED}")))?;
    // What is longer than a time can be is for ever.
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| time.as_secs() < u64::from(u32::MAX));
    Ok(Some(time.map_or(KeepAlive::Always, KeepAlive::For)))
}

/// The seconds of a text such as `300`, `-1`, `5m` or `1h30m`.
fn seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if let Ok(plain) = rest.parse::<f64>() {
        return Some(sign * plain);
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        sum += number
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(sign * sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Option<KeepAlive>, ApiError> {
        keep_alive(&Fields::of(&json!({ "keep_alive": value })).unwrap())
    }

    #[test]
    fn seconds_of_lm_studio() {
        let ttl = |value: Value| keep_alive(&Fields::of(&json!({ "ttl": value })).unwrap()).map_err(|e| e.status);
        assert_eq!(ttl(json!(90)), Ok(Some(KeepAlive::For(Duration::from_secs(90)))));
        assert_eq!(ttl(json!(-1)), Err(400));
    }

    #[test]
    fn seconds_and_times_of_go() {
        let time = |ms| Ok(Some(KeepAlive::For(Duration::from_millis(ms))));
        for (value, expected) in [
            (Value::Null, Ok(None)),
            (json!(0), time(0)),
            (json!(1.5), time(1500)),
            (json!("90"), time(90_000)),
            (json!("5m"), time(300_000)),
            (json!("1h30m"), time(5_400_000)),
            (json!("1.5s"), time(1500)),
            (json!("250ms"), time(250)),
            (json!(-1), Ok(Some(KeepAlive::Always))),
            (json!("-1m"), Ok(Some(KeepAlive::Always))),
            (json!(1e300), Ok(Some(KeepAlive::Always))),
        ] {
            assert_eq!(read(value.clone()), expected, "{value}");
        }
        for value in [
            json!(""),
            json!("m"),
            json!("5 m"),
            json!("5x"),
            json!("5m3"),
            json!("inf"),
            json!("nan"),
            json!(true),
            json!([]),
        ] {
            assert_eq!(read(value.clone()).map_err(|e| e.status), Err(400), "{value}");
        }
    }
}
