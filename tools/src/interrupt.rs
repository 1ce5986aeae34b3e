//! Ctrl-C and requests to terminate.
//!
//! Work that can be stopped at a good place [listens](listen): the first request asks for that, the second ends the
//! program at once. Other programs [end](end_at_once) at the first. No temporary file is left behind either way.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use trine::CancelToken;
use trine_formats::temp_file::remove_unfinished;

/// The exit code of an interrupted program.
pub const EXIT_CODE: i32 = 130;

static ASKED: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);
static WAITING: AtomicBool = AtomicBool::new(false);

/// Starts to listen for Ctrl-C and for requests to terminate.
///
/// # Errors
/// What the system says.
pub fn listen() -> Result<()> {
    ctrlc::set_handler(|| {
        if ASKED.is_cancelled() || WAITING.load(Ordering::SeqCst) {
            end(Some(""));
        }
        ASKED.cancel();
    })
    .context("cannot listen for Ctrl-C")
}

/// Ends the program at the first request, with `last_words` on standard error. Where the system does not let us listen
/// the work goes on, with a warning.
pub fn end_at_once(last_words: Option<&'static str>) {
    let handler = ctrlc::set_handler(move || end(last_words));
    if let Err(e) = handler {
        note!("warning: an interrupt will leave a temporary file behind: {e}");
    }
}

fn end(last_words: Option<&str>) -> ! {
    // The words may say what is left on the disk, so the files go first.
    remove_unfinished();
    if let Some(words) = last_words {
        note!("{words}");
    }
    std::process::exit(EXIT_CODE)
}

/// Whether the work should stop.
pub fn asked() -> bool {
    ASKED.is_cancelled()
}

/// What Ctrl-C cancels, for work of the library.
pub fn token() -> CancelToken {
    ASKED.clone()
}

/// Forgets a request that was followed; says whether there was one.
pub fn take() -> bool {
    ASKED.reset()
}

/// Runs `work`, which waits for the user; Ctrl-C ends the program at once meanwhile.
pub fn while_waiting<T>(work: impl FnOnce() -> T) -> T {
    WAITING.store(true, Ordering::SeqCst);
    let out = work();
    WAITING.store(false, Ordering::SeqCst);
    out
}
