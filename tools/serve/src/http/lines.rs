//! Lines on standard error, or in a file, that nobody waits for: where they are not read, they are dropped and counted.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use trine_tools::note;

/// Lines that wait to be written.
const WAITING: usize = 1024;
/// How long the end of the program waits for lines.
const LAST: Duration = Duration::from_secs(1);

enum Line {
    Text(String),
    /// Everything before this one is written.
    End(SyncSender<()>),
}

static LINES: LazyLock<SyncSender<Line>> = LazyLock::new(|| {
    let (to, from) = sync_channel(WAITING);
    // Without a thread the receiver is gone, and every line is dropped.
    let _ = thread::Builder::new().name("log".into()).spawn(move || write_all(&from));
    to
});

static DROPPED: AtomicU64 = AtomicU64::new(0);

fn write_all(from: &Receiver<Line>) {
    let mut told = 0;
    for line in from {
        match line {
            Line::Text(text) => tell(&text),
            Line::End(done) => drop(done.try_send(())),
        }
        let dropped = dropped();
        if dropped > told {
            tell(&format!("{} lines were not written: nobody read them", dropped - told));
            told = dropped;
        }
    }
}

/// The file that lines are added to, where there is one.
static FILE: Mutex<Option<File>> = Mutex::new(None);

/// Adds lines to a file from now on.
///
/// # Errors
/// The file cannot be opened.
pub fn to_file(path: &Path) -> io::Result<()> {
    let file = File::options().append(true).create(true).open(path)?;
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    Ok(())
}

fn tell(text: &str) {
    match &mut *FILE.lock().unwrap_or_else(PoisonError::into_inner) {
        // What a full disk does not take is lost.
        Some(file) => drop(writeln!(file, "{text}")),
        None => note!("{text}"),
    }
}

/// Writes a line, now or never.
pub fn write(text: String) {
    if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = LINES.try_send(Line::Text(text)) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

/// Returns how many lines were dropped.
pub fn dropped() -> u64 {
    DROPPED.load(Relaxed)
}

/// Waits until all lines are written, but not for somebody who does not read.
pub fn finish() {
    let (done, ended) = mpsc::sync_channel(1);
    if LINES.try_send(Line::End(done)).is_ok() {
        let _ = ended.recv_timeout(LAST);
    }
}
