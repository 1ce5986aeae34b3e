//! Signals: requests to end, readers that have gone, mapped files that became shorter.
//!
//! Requests are not handled where they happen to arrive. They are blocked in all threads, and one thread waits for
//! them: there it may take locks, remove files and write.

use std::io::{self, Write};

use crate::progress::above;

/// Events of the waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Ctrl-C, or somebody who asks the program to end.
    End,
    /// A terminal that was closed, or somebody who asks a server to read its files again. True: the program was started so
    /// that it ignores the first, as nohup does.
    HangUp(bool),
    /// Memory that a file is mapped to could not be read: the file became shorter, or its disk failed.
    FileGone,
    /// The program gave up in the middle: there was no memory, or it is at fault itself. Standard error has a line
    /// about it.
    GaveUp,
}

#[cfg(unix)]
pub use posix::{die_of_pipe, hold_back, last_words, watch};

#[cfg(unix)]
mod posix {
    use std::io;
    use std::os::fd::AsFd;
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
    use std::thread;

    use nix::libc;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::pthread::pthread_self;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, raise, sigaction};
    use nix::unistd::{Pid, pause, write};
    use trine_formats::temp_file::abandon;

    use super::Event;

    /// Signals that ask a program to end.
    const REQUESTS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    /// Signal with which the handler of a failed read wakes the waiting thread.
    const WAKE: Signal = Signal::SIGUSR1;

    /// The signal of a fault that ends the program; 0 as long as there was none.
    static FAULT: AtomicI32 = AtomicI32::new(0);
    /// The thread that waits for signals; 0 as long as there is none.
    static WATCHER: AtomicUsize = AtomicUsize::new(0);

    /// Installs what is done about a signal; gives back what was done before.
    fn install(signal: Signal, handler: SigHandler) -> Option<SigAction> {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: the callers pass the default action, ignoring, or `on_fault`, which only does what a signal handler
        // may: it stores to atomics, sends a signal, waits, writes to a descriptor and ends the process.
        unsafe { sigaction(signal, &action) }.ok()
    }

    /// True if the signal was ignored when this program was started, as nohup does.
    fn is_ignored(signal: Signal) -> bool {
        let Some(before) = install(signal, SigHandler::SigIgn) else {
            return false;
        };
        let ignored = matches!(before.handler(), SigHandler::SigIgn);
        if !ignored {
            install(signal, before.handler());
        }
        ignored
    }

    /// Requests to end that were not ignored when the program began.
    fn requests() -> SigSet {
        let heard = REQUESTS.into_iter().filter(|&s| !is_ignored(s));
        heard.collect()
    }

    /// Holds requests to end back for good. To be called by the first thread, before there are others.
    pub fn hold_back() {
        // Cannot fail: the set is one.
        let _ = requests().thread_block();
    }

    /// Waits for signals in a thread of its own, which calls `tell`. To be called by the first thread, before there are
    /// others. Where no thread can be started signals do what they do without anybody's help.
    pub fn watch(tell: impl Fn(Event) + Send + 'static) {
        let ignores = is_ignored(Signal::SIGHUP);
        let mut all = requests();
        all.add(WAKE);
        // A signal that is blocked waits to be heard, though it would be ignored.
        all.add(Signal::SIGHUP);
        if all.thread_block().is_err() {
            return;
        }
        // A file that becomes too large for the system's limit is then an error of the write.
        install(Signal::SIGXFSZ, SigHandler::SigIgn);
        for fault in [Signal::SIGBUS, Signal::SIGABRT] {
            install(fault, SigHandler::Handler(on_fault));
        }
        let wait = move || {
            while let Ok(signal) = all.wait() {
                let fault = FAULT.load(Ordering::SeqCst);
                tell(match signal {
                    WAKE if fault == Signal::SIGBUS as i32 => Event::FileGone,
                    WAKE if fault != 0 => Event::GaveUp,
                    Signal::SIGHUP => Event::HangUp(ignores),
                    _ => Event::End,
                });
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        match thread.spawn(wait) {
            Ok(thread) => WATCHER.store(thread.as_pthread_t() as usize, Ordering::SeqCst),
            Err(_) => drop(all.thread_unblock()),
        }
    }

    /// Runs in the thread that read mapped memory or gave up, in the middle of anything.
    extern "C" fn on_fault(signal: libc::c_int) {
        let watcher = WATCHER.load(Ordering::SeqCst);
        if watcher != 0 && watcher != pthread_self() as usize {
            // The first of several threads wakes the one that ends the process; the others wait for it too.
            let first = FAULT.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
            if first.is_err() || kill(Pid::this(), WAKE).is_ok() {
                loop {
                    pause();
                }
            }
        }
        // There is no such thread, or it is the one that failed.
        let _ = write(io::stderr(), b"error: there is not enough memory, or a mapped file became shorter\n");
        // SAFETY: `_exit` may be called anywhere; it runs no code of this program.
        unsafe { libc::_exit(1) }
    }

    /// Writes to standard error if that can be done at once. The locks of the standard library may be held by threads
    /// that wait for a reader who never comes, so they are not taken.
    pub fn last_words(text: &str) {
        let stderr = io::stderr();
        let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        let asked = poll(&mut ready, PollTimeout::ZERO);
        let can = |p: &PollFd<'_>| p.revents() == Some(PollFlags::POLLOUT);
        if asked.is_ok() && ready.iter().all(can) {
            let _ = write(stderr.as_fd(), text.as_bytes());
        }
    }

    /// Ends the program as the system ends those that write to a pipe which nobody reads. Unfinished files are removed.
    pub fn die_of_pipe() -> ! {
        let _abandoned = abandon();
        install(Signal::SIGPIPE, SigHandler::SigDfl);
        let _ = SigSet::all().thread_unblock();
        let _ = raise(Signal::SIGPIPE);
        // Not reached unless something else blocks the signal.
        std::process::exit(128 + Signal::SIGPIPE as i32)
    }
}

/// Outside of Unix there is nothing to block.
#[cfg(not(unix))]
pub fn hold_back() {}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
pub fn watch(tell: impl Fn(Event) + Send + 'static) {
    // Where it cannot be waited for it ends the program.
    let _ = ctrlc::set_handler(move || tell(Event::End));
}

/// Writes to standard error.
#[cfg(not(unix))]
pub fn last_words(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Ends a program whose output nobody reads.
#[cfg(not(unix))]
pub fn die_of_pipe() -> ! {
    let _abandoned = trine_formats::temp_file::abandon();
    std::process::exit(1)
}

/// Standard output. When its reader has gone, the first write ends the program: whoever wanted the text has enough of
/// it. Tools write with `writeln!` and `?`, never with `println!`, which panics on other errors.
pub struct Out(io::Stdout);

/// Standard output.
pub fn stdout() -> Out {
    Out(io::stdout())
}

fn heard<T>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => die_of_pipe(),
        other => other,
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        heard(above(|| self.0.write(bytes)))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        heard(above(|| self.0.write_all(bytes)))
    }

    fn flush(&mut self) -> io::Result<()> {
        heard(above(|| self.0.flush()))
    }
}
