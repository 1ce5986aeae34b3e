//! The terminal that a program talks in: whether it shows colours, and its modes, which are given back however the
//! program ends.

use std::ffi::OsStr;
use std::io;

/// Coloured text: always, never or in terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Colours {
    /// Always
    On,
    /// Never
    Off,
    /// In a terminal, unless NO_COLOR is set
    Auto,
}

impl Colours {
    /// True if the text of a stream has colours.
    pub fn are_shown(self, stream: &impl io::IsTerminal) -> bool {
        let variable = |name: &str| std::env::var_os(name);
        let unwanted = is_unwanted(variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
        match self {
            Colours::On => true,
            Colours::Off => false,
            Colours::Auto => stream.is_terminal() && !unwanted,
        }
    }
}

/// True if the variables `NO_COLOR` (no-color.org: anything but nothing) and `TERM` are against colours.
fn is_unwanted(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_some_and(|v| !v.is_empty()) || term == Some(OsStr::new("dumb"))
}

/// True if lines cannot be edited in the terminal, because it cannot move its cursor.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// The columns of the terminal that a stream goes to; `None` where it does not go to one.
pub fn columns(stream: &impl io::IsTerminal) -> Option<usize> {
    let (_, columns) = console::Term::stderr().size();
    // A terminal that nobody has given a size has none.
    (stream.is_terminal() && columns > 0).then_some(columns.into())
}

/// A line as lines of at most `columns` columns, divided between words; all but the first begin with `indent` spaces. A
/// word that is longer stays whole, and spaces between words stay where the line is not divided.
pub fn lines(line: &str, columns: Option<usize>, indent: usize) -> Vec<String> {
    let width = |text: &str| console::measure_text_width(text);
    let mut out = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = &out[out.len() - 1];
        let full = columns.is_some_and(|columns| width(last) + width(word.trim_end()) > columns);
        if full && !last.trim().is_empty() {
            out.push(" ".repeat(indent));
        }
        let end = out.len() - 1;
        // Spaces where a line is divided are gone.
        let begins = end > 0 && out[end].trim().is_empty();
        out[end].push_str(if begins { word.trim_start() } else { word });
    }
    for line in &mut out {
        line.truncate(line.trim_end().len());
    }
    out
}

#[cfg(unix)]
pub use modes::{Silence, editing, give_back, remember};

#[cfg(unix)]
mod modes {
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

    use crate::signals;

    /// Sequence that ends the mode in which a terminal marks pasted text.
    const NO_PASTE: &str = "\x1b[?2004l";

    /// The modes in which the program found the terminal of standard input.
    static FOUND: Mutex<Option<Termios>> = Mutex::new(None);
    static EDITING: AtomicBool = AtomicBool::new(false);

    /// Remembers the modes of the terminal of standard input, if it is one.
    pub fn remember() {
        if let Ok(mut found) = FOUND.lock() {
            *found = tcgetattr(io::stdin()).ok();
        }
    }

    /// Puts the terminal into the modes it was found in: for the end of a program in the middle of something.
    pub fn give_back() {
        // Who holds the lock is ending the program too, or has nothing remembered yet.
        let Ok(found) = FOUND.try_lock() else { return };
        if let Some(modes) = &*found {
            if EDITING.load(Ordering::SeqCst) {
                signals::last_words(NO_PASTE);
            }
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, modes);
        }
    }

    /// Runs `work`, in which an editor of lines has the terminal.
    pub fn editing<T>(work: impl FnOnce() -> T) -> T {
        EDITING.store(true, Ordering::SeqCst);
        let out = work();
        EDITING.store(false, Ordering::SeqCst);
        out
    }

    /// As long as this lives, what is typed is not shown. It waits for whoever reads next.
    #[must_use]
    pub struct Silence(Option<Termios>);

    impl Silence {
        /// Begins, where standard input is a terminal.
        pub fn begin() -> Silence {
            let before = tcgetattr(io::stdin()).ok();
            if let Some(before) = &before {
                let mut modes = before.clone();
                modes.local_flags.remove(LocalFlags::ECHO | LocalFlags::ICANON);
                let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &modes);
            }
            Silence(before)
        }
    }

    impl Drop for Silence {
        fn drop(&mut self) {
            if let Some(before) = &self.0 {
                let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
            }
        }
    }
}

/// Outside of Unix the modes are the system's.
#[cfg(not(unix))]
pub fn remember() {}

/// Does nothing: the modes were not changed.
#[cfg(not(unix))]
pub fn give_back() {}

/// Runs `work`.
#[cfg(not(unix))]
pub fn editing<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Typed text is shown all the same.
#[cfg(not(unix))]
pub struct Silence;

#[cfg(not(unix))]
impl Silence {
    /// Changes nothing.
    pub fn begin() -> Silence {
        Silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_lines_are_divided_between_words() {
        let line = "/undo:  take back what was said";
        for (columns, parts) in [
            (None, &[line][..]),
            (Some(40), &[line]),
            (Some(16), &["/undo:  take", "  back what was", "  said"]),
            (Some(15), &["/undo:  take", "  back what was", "  said"]),
            (Some(3), &["/undo:", "  take", "  back", "  what", "  was", "  said"]),
        ] {
            assert_eq!(lines(line, columns, 2), parts, "{columns:?}");
        }
        assert_eq!(lines("", Some(9), 2), [""]);
        assert_eq!(lines("a  b", Some(9), 0), ["a  b"]);
    }

    #[test]
    fn colours_are_for_those_who_want_them() {
        let [some, none] = ["1", ""].map(OsStr::new);
        assert!(is_unwanted(Some(some), None));
        assert!(!is_unwanted(Some(none), Some(OsStr::new("xterm"))));
        assert!(is_unwanted(None, Some(OsStr::new("dumb"))));
        assert!(!is_unwanted(None, None));
        // A stream that is no terminal.
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Colours::On.are_shown(&file));
        assert!(!Colours::Auto.are_shown(&file));
    }
}
