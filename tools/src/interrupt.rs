//! Ctrl-C and requests to terminate.
//!
//! Work that can be stopped at a good place [listens](listen): the first request asks for that, the second ends the
//! program at once. Other programs end at the first. No temporary file is left behind either way.

use std::sync::LazyLock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trine::CancelToken;
use trine_formats::temp_file::{abandon, abandon_within};

use crate::signals::{self, Event};
use crate::{progress, shown, terminal};

/// The exit code of an interrupted program.
pub const EXIT_CODE: i32 = 130;

/// How long a fault waits for the thread that gives a file its name.
const PATIENCE: Duration = Duration::from_secs(1);

static ASKED: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);
static LISTENING: AtomicBool = AtomicBool::new(false);
static HEEDING: AtomicBool = AtomicBool::new(false);
static HUNG_UP: AtomicBool = AtomicBool::new(false);
static WAITING: AtomicBool = AtomicBool::new(false);
static WRITES: AtomicBool = AtomicBool::new(false);
static TOOL: OnceLock<&'static str> = OnceLock::new();

/// Hears requests from now on. To be called once, before there are other threads.
pub fn start(tool: &'static str) {
    let _ = TOOL.set(tool);
    signals::watch(|event| match event {
        Event::FileGone => fail(
            "a file became shorter while it was in use, or its disk failed; leave files alone until the program has ended, or have them read first with --no-mmap where there is that option",
        ),
        Event::GaveUp => fail(
            "the work was given up in the middle: there is not enough memory, or the line above tells of a fault of the program",
        ),
        Event::HangUp(_) if HEEDING.load(Ordering::SeqCst) => HUNG_UP.store(true, Ordering::SeqCst),
        Event::HangUp(true) => {}
        Event::End | Event::HangUp(false) if LISTENING.load(Ordering::SeqCst) && !is_urgent() => ASKED.cancel(),
        Event::End | Event::HangUp(false) => end(),
    });
}

/// True if a request cannot wait for a good place.
fn is_urgent() -> bool {
    ASKED.is_cancelled() || WAITING.load(Ordering::SeqCst)
}

/// From now on the first request only [asks](asked).
pub fn listen() {
    LISTENING.store(true, Ordering::SeqCst);
}

/// From now on SIGHUP does not ask the program to end, but is [told](take_hang_up).
pub fn heed_hang_ups() {
    HEEDING.store(true, Ordering::SeqCst);
}

/// True if there was a SIGHUP since this was last asked.
pub fn take_hang_up() -> bool {
    HUNG_UP.swap(false, Ordering::SeqCst)
}

/// From now on an interrupted program says that it wrote nothing, where that is so.
pub fn writes_files() {
    WRITES.store(true, Ordering::SeqCst);
}

fn tool() -> &'static str {
    TOOL.get().copied().unwrap_or("error")
}

fn end() -> ! {
    // As long as this is there no file appears, so what is said of them stays true.
    let left = abandon();
    let kept: Vec<String> = left.kept.iter().map(|p| shown::name(&p.to_string_lossy())).collect();
    terminal::give_back();
    let words = if !kept.is_empty() {
        format!("interrupted after '{}' was written", kept.join("', '"))
    } else if WRITES.load(Ordering::SeqCst) {
        "interrupted, nothing was written".to_owned()
    } else {
        "interrupted".to_owned()
    };
    // Over a bar, or on a line of its own.
    let place = if progress::is_shown() { "\r\x1b[K" } else { "\n" };
    let words = shown::message(&words);
    signals::last_words(&format!("{place}{}: {words}\n", tool()));
    std::process::exit(EXIT_CODE)
}

/// Ends the program after a fault that no thread survives.
fn fail(why: &str) -> ! {
    let _left = abandon_within(PATIENCE);
    terminal::give_back();
    signals::last_words(&format!("\n{}: error: {why}\n", tool()));
    std::process::exit(1)
}

/// True if the work should stop.
pub fn asked() -> bool {
    ASKED.is_cancelled()
}

/// Token that Ctrl-C cancels, for work of the library.
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
