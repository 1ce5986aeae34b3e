//! Long texts in the editor's line, which show as short marks there.
//!
//! The editor draws its whole line again after many keys, so a line of 100,000 characters would cost the terminal
//! gigabytes. A pasted text is collected first and put into the line at once; a long one is folded into a mark like
//! `[text 1: 100000 characters]`, which stands for it until the message is sent. What is typed where the line is long
//! goes into a mark `[text 1]` as well, and a hint beside it says how long it has become.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::hint::Hint;
use rustyline::{
    Cmd, ConditionalEventHandler, Event, EventContext, KeyCode, KeyEvent, Modifiers, Movement, RepeatCount,
};

use super::message::MOST;

/// Most bytes, and most line breaks, of a text that is drawn as it is, and of a line that more is drawn in.
const MOST_SHOWN: usize = 4 << 10;
const MOST_LINES: usize = 100;

/// Most marks of a line.
const MOST_MARKS: usize = 100;

/// Characters after which the hint is drawn again.
const STEP: usize = 1000;

/// A text, and the mark that stands for it.
#[derive(Debug)]
struct Fold {
    mark: String,
    text: String,
}

/// The texts that are folded in the line of an editor, and what is under way.
#[derive(Debug, Default)]
struct Texts {
    folds: Vec<Fold>,
    /// The text since the terminal said that a paste begins.
    pasted: Option<String>,
    /// True if typed characters go into the last fold.
    open: bool,
    /// Bytes of all texts.
    bytes: usize,
    /// True if something was left out, because the message became too long.
    cut: bool,
}

/// The folded texts of a line: the editor's keys fold them, and the message is what they unfold to.
#[derive(Clone, Debug, Default)]
pub struct Folds(Arc<Mutex<Texts>>);

/// A hint that is no part of the line, whatever key is pressed.
#[derive(Debug)]
pub struct Told(String);

impl Hint for Told {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

/// True if a text costs too much to be drawn again and again.
fn is_long(text: &str) -> bool {
    text.len() > MOST_SHOWN || text.bytes().filter(|&byte| byte == b'\n').nth(MOST_LINES).is_some()
}

impl Texts {
    /// Keeps a text and gives its mark, whose number is followed by `about`. Nothing where there are too many.
    fn fold(&mut self, text: String, about: &str) -> Cmd {
        if self.folds.len() == MOST_MARKS {
            self.cut = true;
            return Cmd::Noop;
        }
        let mark = format!("[text {}{about}]", self.folds.len() + 1);
        self.folds.push(Fold { mark: mark.clone(), text });
        Cmd::Insert(1, mark)
    }

    /// Counts the bytes of a character; false if there is no room for it.
    fn take(&mut self, c: char) -> bool {
        let fits = self.bytes + c.len_utf8() <= MOST;
        self.cut |= !fits;
        self.bytes += if fits { c.len_utf8() } else { 0 };
        fits
    }

    /// Ends a paste into `line`: its text, or its mark.
    fn end_paste(&mut self, line: &str) -> Cmd {
        let text = self.pasted.take().unwrap_or_default();
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if is_long(&text) || is_long(line) {
            let about = format!(": {} characters", text.chars().count());
            return self.fold(text, &about);
        }
        Cmd::Insert(1, text)
    }

    /// A key in a paste.
    fn paste(&mut self, key: KeyEvent, line: &str) -> Cmd {
        let c = match key {
            KeyEvent(KeyCode::BracketedPasteEnd, _) => return self.end_paste(line),
            // A paste whose end is lost would take all that is typed.
            key if key == KeyEvent::ctrl('C') => return self.end_paste(line),
            KeyEvent(KeyCode::Char(c), Modifiers::NONE) => c,
            KeyEvent(KeyCode::Enter, _) => '\r',
            KeyEvent(KeyCode::Tab, _) => '\t',
            key if key == KeyEvent::ctrl('J') => '\n',
            _ => return Cmd::Noop,
        };
        if self.take(c)
            && let Some(text) = &mut self.pasted
        {
            text.push(c);
        }
        Cmd::Noop
    }

    /// A character that is typed into a long line.
    fn type_unseen(&mut self, c: char) -> Cmd {
        if !self.take(c) {
            return Cmd::Noop;
        }
        match self.folds.last_mut().filter(|_| self.open) {
            Some(Fold { text, .. }) => {
                text.push(c);
                if text.len().is_multiple_of(STEP) { Cmd::Repaint } else { Cmd::Noop }
            }
            None => {
                self.open = true;
                self.fold(c.into(), "")
            }
        }
    }

    /// Takes the last character of the fold that is open back; `None` where there is nothing to take.
    fn take_back(&mut self) -> Option<Cmd> {
        let Fold { text, .. } = self.folds.last_mut().filter(|_| self.open)?;
        let last = text.pop()?;
        self.bytes -= last.len_utf8();
        Some(Cmd::Repaint)
    }

    /// A key outside of a paste; `None` leaves it to the editor.
    fn press(&mut self, key: KeyEvent, line: &str, pos: usize) -> Option<Cmd> {
        let open = std::mem::take(&mut self.open);
        match key {
            KeyEvent(KeyCode::BracketedPasteStart, _) => {
                self.pasted = Some(String::new());
                // Shows the hint.
                Some(Cmd::Repaint)
            }
            KeyEvent(KeyCode::Backspace, Modifiers::NONE) => {
                self.open = open;
                self.take_back().or_else(|| {
                    self.open = false;
                    // A mark goes as a whole.
                    let whole = self.folds.iter().find(|fold| line[..pos].ends_with(&fold.mark))?;
                    Some(Cmd::Kill(Movement::BackwardChar(whole.mark.len() as RepeatCount)))
                })
            }
            KeyEvent(KeyCode::Char(c), Modifiers::NONE) if open || is_long(line) => {
                self.open = open;
                Some(self.type_unseen(c))
            }
            // Texts that were cut off, and the next key as it is: there is no room for them.
            key if is_long(line)
                && [KeyEvent::ctrl('Y'), KeyEvent::alt('y'), KeyEvent::ctrl('V'), KeyEvent::ctrl('Q')]
                    .contains(&key) =>
            {
                Some(Cmd::Noop)
            }
            _ => None,
        }
    }
}

impl Folds {
    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all texts, for a new line.
    pub fn clear(&self) {
        *self.texts() = Texts::default();
    }

    /// True if something was left out for its length.
    pub fn is_cut(&self) -> bool {
        self.texts().cut
    }

    /// The hint behind the line while something is under way that is not shown.
    pub fn hint(&self) -> Option<Told> {
        let texts = self.texts();
        if texts.pasted.is_some() {
            return Some(Told(" (a text is pasted; Ctrl-C ends it)".to_owned()));
        }
        let fold = texts.folds.last().filter(|_| texts.open)?;
        Some(Told(format!(" ({} characters so far)", fold.text.chars().count())))
    }

    /// The line with its texts in the places of their marks.
    pub fn unfold(&self, line: &str) -> String {
        let texts = self.texts();
        let (mut out, mut rest) = (String::new(), line);
        // Texts that look like marks stay what they are.
        while let Some((at, fold)) =
            texts.folds.iter().filter_map(|f| Some((rest.find(&f.mark)?, f))).min_by_key(|p| p.0)
        {
            out += &rest[..at];
            out += &fold.text;
            rest = &rest[at + fold.mark.len()..];
        }
        out + rest
    }
}

impl ConditionalEventHandler for Folds {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let key = *event.get(0)?;
        let (line, mut texts) = (context.line(), self.texts());
        match texts.pasted {
            Some(_) => Some(texts.paste(key, line)),
            None => texts.press(key, line, context.pos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: KeyEvent = KeyEvent(KeyCode::BracketedPasteEnd, Modifiers::NONE);
    const BACK: KeyEvent = KeyEvent(KeyCode::Backspace, Modifiers::NONE);

    /// The text that the keys of a paste into `line` put into it.
    fn pasted(folds: &Folds, line: &str, text: &str, end: KeyEvent) -> String {
        let mut texts = folds.texts();
        texts.pasted = Some(String::new());
        for c in text.chars() {
            assert_eq!(texts.paste(KeyEvent::from(c), line), Cmd::Noop);
        }
        match texts.paste(end, line) {
            Cmd::Insert(1, text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn short_pastes_stay_as_they_are() {
        let folds = Folds::default();
        assert_eq!(pasted(&folds, "", "One\r\nTwo\rThree\tä\nfour", END), "One\nTwo\nThree\tä\nfour");
        assert_eq!(pasted(&folds, "", "\u{7}\u{0}", KeyEvent::ctrl('C')), "");
        assert_eq!(folds.unfold("[text 1: 3 characters]"), "[text 1: 3 characters]");
        assert!(folds.hint().is_none() && !folds.is_cut());
        assert_eq!(pasted(&folds, &"x".repeat(MOST_SHOWN + 1), "abc", END), "[text 1: 3 characters]");
    }

    #[test]
    fn long_pastes_are_marks_that_unfold_and_go_as_a_whole() {
        let folds = Folds::default();
        let (wide, high) = ("ä".repeat(MOST_SHOWN), "\n".repeat(MOST_LINES + 1));
        let first = pasted(&folds, "", &wide, END);
        assert_eq!(first, format!("[text 1: {MOST_SHOWN} characters]"));
        // A text that looks like a mark stays what it is.
        let false_friend = format!("{first}{high}");
        let second = pasted(&folds, "", &false_friend, END);
        assert_eq!(folds.unfold(&format!("a{second}b{first}c")), format!("a{false_friend}b{wide}c"));
        let kill = folds.texts().press(BACK, &format!("a{first}b"), 1 + first.len());
        assert_eq!(kill, Some(Cmd::Kill(Movement::BackwardChar(first.len() as RepeatCount))));
        assert_eq!(folds.texts().press(BACK, &format!("a{first}b"), 1), None);
        folds.clear();
        assert_eq!(folds.unfold(&first), first);
    }

    #[test]
    fn what_is_typed_into_a_long_line_goes_into_a_mark() {
        let folds = Folds::default();
        let long = "x".repeat(MOST_SHOWN + 1);
        let press = |key| folds.texts().press(key, &long, long.len());
        assert_eq!(folds.texts().press(KeyEvent::from('a'), "x", 1), None);
        assert_eq!(press(KeyEvent::from('a')), Some(Cmd::Insert(1, "[text 1]".to_owned())));
        for _ in 2..STEP {
            assert_eq!(press(KeyEvent::from('b')), Some(Cmd::Noop));
        }
        assert_eq!(press(KeyEvent::from('c')), Some(Cmd::Repaint));
        assert_eq!(folds.hint().unwrap().0, " (1000 characters so far)");
        assert_eq!(press(BACK), Some(Cmd::Repaint));
        assert_eq!(folds.unfold("[text 1]"), format!("a{}", "b".repeat(STEP - 2)));
        // Another key ends it, and the next character begins another mark.
        assert_eq!(press(KeyEvent::ctrl('A')), None);
        assert_eq!(press(KeyEvent::ctrl('Y')), Some(Cmd::Noop));
        assert_eq!(press(KeyEvent::from('d')), Some(Cmd::Insert(1, "[text 2]".to_owned())));
    }

    #[test]
    fn messages_have_a_limit() {
        let folds = Folds::default();
        folds.texts().bytes = MOST - 2;
        assert_eq!(pasted(&folds, "", "abc", END), "ab");
        assert!(folds.is_cut());
        folds.clear();
        let mut texts = folds.texts();
        for _ in 0..MOST_MARKS {
            assert!(matches!(texts.fold("x".to_owned(), ""), Cmd::Insert(..)));
        }
        assert_eq!(texts.fold("x".to_owned(), ""), Cmd::Noop);
        assert!(texts.cut);
    }
}
