//! Sizes of memory: what a user writes, and what the machine has.

/// Memory that the system can give without swapping, in bytes; `None` where it does not tell.
pub fn available() -> Option<u64> {
    let known = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = known.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Parses a number of bytes: 4096, 512K, 4M, 2G.
///
/// # Errors
/// Anything else.
pub fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err("give a number of bytes, or one with K, M or G behind it".to_owned()),
    };
    let number = digits.parse::<usize>().ok().filter(|n| *n > 0);
    let bytes = number.and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| "give a number of bytes above 0, such as 512M".to_owned())
}

/// Parses the size of a file, whose units are those that hubs show: 512M and 512MB are 512 million bytes, 512MiB as many
/// as of memory.
///
/// # Errors
/// Anything else.
pub fn file_size(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).to_ascii_uppercase();
    let number = |shift: u32| (bytes >> shift) as u64;
    let decimal = match unit.as_str() {
        "K" | "KB" => number(10) * 1000,
        "M" | "MB" => number(20) * 1_000_000,
        "G" | "GB" => number(30) * 1_000_000_000,
        _ => return Ok(bytes),
    };
    // No more than the same number of larger units, which fits.
    Ok(decimal as usize)
}

#[cfg(test)]
mod tests {
    use super::{file_size, size};

    #[test]
    fn sizes_of_files() {
        for (text, bytes) in [("1", 1), ("3K", 3000), ("4MB", 4_000_000), ("2g", 2_000_000_000), ("2GiB", 2 << 30)] {
            assert_eq!(file_size(text), Ok(bytes), "{text}");
        }
        assert!(file_size("1T").is_err());
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("1", 1), ("3K", 3 << 10), ("4M", 4 << 20), ("2GiB", 2 << 30)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for text in ["", "M", "-1", "1T", "1.5G", "99999999999G", "0"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
