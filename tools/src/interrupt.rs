//! Ctrl-C: the first stops the work at a good place, the second ends the program at once.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use trine::cancel::CancelToken;

/// The exit code of an interrupted program.
pub const EXIT_CODE: i32 = 130;

static ASKED: AtomicBool = AtomicBool::new(false);
static WAITING: AtomicBool = AtomicBool::new(false);
static TOKEN: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);

/// Starts to listen for Ctrl-C and for requests to terminate.
///
/// # Errors
/// What the system says.
pub fn listen() -> Result<()> {
    ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) || WAITING.load(Ordering::SeqCst) {
            note!("");
            crate::outfile::remove_unfinished();
            std::process::exit(EXIT_CODE);
        }
        TOKEN.cancel();
    })
    .context("cannot listen for Ctrl-C")
}

/// Whether the work should stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// What Ctrl-C cancels, for work of the library.
pub fn token() -> CancelToken {
    TOKEN.clone()
}

/// Forgets a request that was followed; says whether there was one.
pub fn take() -> bool {
    ASKED.swap(false, Ordering::SeqCst)
}

/// Runs `work`, which waits for the user; Ctrl-C ends the program at once meanwhile.
pub fn while_waiting<T>(work: impl FnOnce() -> T) -> T {
    WAITING.store(true, Ordering::SeqCst);
    let out = work();
    WAITING.store(false, Ordering::SeqCst);
    out
}
