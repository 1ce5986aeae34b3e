//! The clock of templates that tell the date to the model, and times in UTC as text.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The variable that stops the clock: seconds since 1970-01-01T00:00:00Z.
const VARIABLE: &str = "TRINE_NOW";

/// The time of the clock in seconds since 1970-01-01T00:00:00Z.
///
/// # Errors
/// The variable is no number of seconds up to the year 9999.
pub fn now() -> Result<u64, String> {
    let Some(text) = std::env::var_os(VARIABLE) else {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return Ok(since.as_secs());
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok()).filter(|seconds| *seconds <= LAST);
    seconds.ok_or_else(|| format!("{VARIABLE} is {text:?}: give seconds since 1970, at most {LAST}"))
}

/// 9999-12-31T23:59:59Z.
const LAST: u64 = 253_402_300_799;

/// The time `seconds` after 1970-01-01T00:00:00Z as `format` says.
///
/// # Errors
/// A directive that is not known; a time after the year 9999.
pub fn at(seconds: u64, format: &str) -> Result<String, String> {
    if seconds > LAST {
        return Err(format!("a time of {seconds} seconds is after the year 9999"));
    }
    let (days, second) = (seconds / 86400, seconds % 86400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (mut year, mut day) = (1970, days);
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let day_of_year = day + 1;
    let mut month = 0;
    let length = |m: usize| match m {
        1 => 28 + u64::from(leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    while day >= length(month) {
        day -= length(month);
        month += 1;
    }
    let (day, weekday) = (day + 1, DAYS[((days + 4) % 7) as usize]);
    let hour_12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out += &year.to_string(),
            Some('y') => out += &format!("{:02}", year % 100),
            Some('m') => out += &format!("{:02}", month + 1),
            Some('B') => out += MONTHS[month],
            Some('b') => out += &MONTHS[month][..3],
            Some('d') => out += &format!("{day:02}"),
            Some('e') => out += &format!("{day:2}"),
            Some('j') => out += &format!("{day_of_year:03}"),
            Some('A') => out += weekday,
            Some('a') => out += &weekday[..3],
            Some('H') => out += &format!("{hour:02}"),
            Some('I') => out += &format!("{hour_12:02}"),
            Some('M') => out += &format!("{minute:02}"),
            Some('S') => out += &format!("{second:02}"),
            Some('p') => out += if hour < 12 { "AM" } else { "PM" },
            Some('Z') => out += "UTC",
            Some('z') => out += "+0000",
            Some('F') => out += &format!("{year}-{:02}-{day:02}", month + 1),
            Some('%') => out.push('%'),
            Some('-') if chars.as_str().starts_with('d') => {
                chars.next();
                out += &day.to_string();
            }
            other => {
                let directive: String = other.into_iter().collect();
                return Err(format!("strftime_now does not know %{directive}"));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::at;

    /// `date -u -d @SECONDS +FORMAT` of GNU coreutils.
    #[test]
    fn as_date_prints_it() {
        let all = "%Y-%m-%d %e %j %A %a %B %b %H:%M:%S %I%p %y %Z%z %F %-d %%";
        for (seconds, expected) in [
            (0, "1970-01-01  1 001 Thursday Thu January Jan 00:00:00 12AM 70 UTC+0000 1970-01-01 1 %"),
            (951_782_399, "2000-02-28 28 059 Monday Mon February Feb 23:59:59 11PM 00 UTC+0000 2000-02-28 28 %"),
            (951_782_400, "2000-02-29 29 060 Tuesday Tue February Feb 00:00:00 12AM 00 UTC+0000 2000-02-29 29 %"),
            (1_735_645_509, "2024-12-31 31 366 Tuesday Tue December Dec 11:45:09 11AM 24 UTC+0000 2024-12-31 31 %"),
            (4_107_542_400, "2100-03-01  1 060 Monday Mon March Mar 00:00:00 12AM 00 UTC+0000 2100-03-01 1 %"),
        ] {
            assert_eq!(at(seconds, all).unwrap(), expected);
        }
        assert!(at(0, "%Q").is_err());
        assert!(at(0, "100%").is_err());
        assert_eq!(at(super::LAST, "%F %H:%M:%S").unwrap(), "9999-12-31 23:59:59");
        assert!(at(super::LAST + 1, "").is_err());
    }
}
