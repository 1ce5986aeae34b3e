//! Attacks on the tools: damaged files, requests to end, streams, disks and limits that fail, numbers that nobody
//! means.
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

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("SKIPPED: the harness needs Linux");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use run::{Options, Part};
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--list") {
        return std::process::ExitCode::SUCCESS;
    }
    let long = args.iter().any(|a| a == "--long");
    let seed = args.iter().position(|a| a == "--seed");
    let seed = seed.and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(1);
    // Seconds of two processors; the long form is an hour in all.
    let parts: [(&str, u64, Part); 5] = [
        ("mutation", 5, mutation::part),
        ("storms", 2, storms::part),
        ("streams", 2, faults::streams),
        ("disks-and-limits", 2, faults::disks_and_limits),
        ("numbers", 1, flags::part),
    ];
    let all: u64 = parts.iter().map(|p| p.1).sum();
    let wanted = |name: &str| {
        let named = parts.iter().any(|p| args.iter().any(|a| a == p.0));
        !named || args.iter().any(|a| a == name)
    };
    let bases = bases::Bases::new();
    let mut failed = 0;
    for (name, share, part) in parts {
        if !wanted(name) {
            continue;
        }
        let seconds = if long { share * 3600 / all } else { share };
        let counts = run::in_parallel(Options { seed, seconds }, &bases, part);
        println!("harness {name}: {counts}");
        failed += counts.failed;
    }
    if failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
