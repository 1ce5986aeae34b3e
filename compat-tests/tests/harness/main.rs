//! Attacks on the tools: damaged files, models that make no sense, requests to end, streams, disks and limits that
//! fail, numbers that nobody means.
//!
//! ```text
//! cargo test --release -p trine-compat-tests --test harness                        a short form, with all tests
//! cargo test --release -p trine-compat-tests --test harness -- --long              an hour
//! cargo test --release -p trine-compat-tests --test harness -- --seed 7 mutation   one part, from another beginning
//! ```
//!
//! Every part prints how many runs it tried, how many of them were refused and how many failed. A run fails when it
//! panics, is ended by a signal that nobody sent, takes more than 500 MB or 5 seconds of processor time, says something
//! that is not so, or leaves a file that is not whole. Each failure is printed with what repeats it.
#![allow(missing_docs)]

#[cfg(target_os = "linux")]
mod bases;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod flags;
#[cfg(target_os = "linux")]
mod mutation;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod storms;
#[cfg(target_os = "linux")]
mod structure;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("SKIPPED: the harness needs Linux");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::time::Duration;

    use run::{Length, Options, Part};
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--list") {
        return std::process::ExitCode::SUCCESS;
    }
    let long = args.iter().any(|a| a == "--long");
    let seed = args.iter().position(|a| a == "--seed");
    let seed = seed.and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(1);
    // Attacks of each worker in the short form, and minutes in the long one.
    let parts: [(&str, u64, u64, Part); 6] = [
        ("mutation", 600, 18, mutation::part),
        ("structure", 150, 12, structure::part),
        ("storms", 40, 8, storms::part),
        ("streams", 140, 9, faults::streams),
        ("disks-and-limits", 110, 9, faults::disks_and_limits),
        ("numbers", 200, 4, flags::part),
    ];
    let wanted = |name: &str| {
        let named = parts.iter().any(|p| args.iter().any(|a| a == p.0));
        !named || args.iter().any(|a| a == name)
    };
    let bases = bases::Bases::new();
    let mut failed = 0;
    for (name, attacks, minutes, part) in parts {
        if !wanted(name) {
            continue;
        }
        let length = if long { Length::Time(Duration::from_secs(60 * minutes)) } else { Length::Attacks(attacks) };
        let counts = run::in_parallel(Options { seed, length }, &bases, part);
        println!("harness {name}: {counts}");
        failed += counts.failed;
    }
    if failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
