//! Progress on stderr: shown on a terminal, silent everywhere else.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts bytes and says how long the rest will take.
pub fn byte_bar(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bar:30} {percent:>3}% {bytes}/{total_bytes} {bytes_per_sec} ETA {eta} {wide_msg}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    // indicatif draws on stderr, and hides itself when that is no terminal
    ProgressBar::new(total).with_style(style)
}

/// A size for people: `66.3 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if bytes < 1024 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::human_bytes;

    #[test]
    fn sizes() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1024), "1.0 KiB");
        assert_eq!(human_bytes(81_849_344), "78.1 MiB");
        assert_eq!(human_bytes(5 << 40), "5.0 TiB");
    }
}
