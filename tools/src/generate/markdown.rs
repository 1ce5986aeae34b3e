//! Markdown in a terminal: headings and strong text are bold, code has a colour. Sequences for the terminal stand between
//! the characters of the text, of which none is left out, changed or held back.

const BOLD: &str = "\x1b[1m";
const NOT_BOLD: &str = "\x1b[22m";
const CODE: &str = "\x1b[36m";
const NOT_CODE: &str = "\x1b[39m";

/// A run of equal marks.
#[derive(Clone, Copy)]
struct Run {
    mark: char,
    length: usize,
    /// True if nothing but spaces stands before it in its line.
    is_first: bool,
}

/// Follows a text as it comes.
#[derive(Default)]
pub struct Markdown {
    /// True if something stands in the line already.
    within: bool,
    /// The run that the text ends with.
    run: Option<Run>,
    heading: bool,
    strong: bool,
    /// The number of backquotes that the code began with, in a line and as a block; 0 outside of code.
    code: usize,
    block: usize,
}

impl Markdown {
    /// Adds the next character to `out`, behind what it ends or begins.
    pub fn push(&mut self, c: char, out: &mut String) {
        if self.run.is_some_and(|run| run.mark != c) {
            self.end_run(c, out);
        }
        match c {
            '\n' => self.end_line(out),
            '*' | '`' | '#' => {
                let first = Run { mark: c, length: 0, is_first: !self.within };
                self.run.get_or_insert(first).length += 1;
                self.within = true;
            }
            ' ' => {}
            _ => self.within = true,
        }
        out.push(c);
    }

    /// Ends everything.
    pub fn finish(&mut self, out: &mut String) {
        self.end_run('\n', out);
        self.end_line(out);
        if std::mem::take(&mut self.block) > 0 {
            out.push_str(NOT_CODE);
        }
    }

    /// A run of marks is over: `next` follows.
    fn end_run(&mut self, next: char, out: &mut String) {
        let Some(Run { mark, length, is_first }) = self.run.take() else { return };
        match mark {
            '`' if is_first && length >= 3 && self.block == 0 => {
                self.block = length;
                out.push_str(CODE);
            }
            '`' if is_first && self.block > 0 && length >= self.block => {
                self.block = 0;
                out.push_str(NOT_CODE);
            }
            _ if self.block > 0 => {}
            '`' if self.code == 0 => {
                self.code = length;
                out.push_str(CODE);
            }
            '`' if self.code == length => {
                self.code = 0;
                out.push_str(NOT_CODE);
            }
            _ if self.code > 0 || self.heading => {}
            '#' if is_first && length <= 6 && next == ' ' => {
                self.heading = true;
                out.push_str(BOLD);
            }
            '*' if length >= 2 && self.strong => {
                self.strong = false;
                out.push_str(NOT_BOLD);
            }
            '*' if length >= 2 && !next.is_whitespace() => {
                self.strong = true;
                out.push_str(BOLD);
            }
            _ => {}
        }
    }

    /// Nothing but a block of code goes on in the next line.
    fn end_line(&mut self, out: &mut String) {
        if std::mem::take(&mut self.heading) | std::mem::take(&mut self.strong) {
            out.push_str(NOT_BOLD);
        }
        if std::mem::take(&mut self.code) > 0 {
            out.push_str(NOT_CODE);
        }
        self.within = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with `<b>` for bold, `<c>` for code, and `</b>` and `</c>` for their ends.
    fn painted(text: &str) -> String {
        let (mut markdown, mut out) = (Markdown::default(), String::new());
        text.chars().for_each(|c| markdown.push(c, &mut out));
        markdown.finish(&mut out);
        let pairs = [(BOLD, "<b>"), (NOT_BOLD, "</b>"), (CODE, "<c>"), (NOT_CODE, "</c>")];
        let shown = pairs.iter().fold(out.clone(), |shown, (sequence, name)| shown.replace(sequence, name));
        let plain = pairs.iter().fold(out, |plain, (sequence, _)| plain.replace(sequence, ""));
        assert_eq!(plain, text, "the text itself has changed");
        shown
    }

    #[test]
    fn headings_strong_text_and_code_are_painted() {
        for (text, expected) in [
            ("# A **b** `c`\nd", "#<b> A **b** `<c>c`</c></b>\nd"),
            ("a **b** c", "a **<b>b**</b> c"),
            ("a ***b*** c", "a ***<b>b***</b> c"),
            ("use `a*b` and ``a`b``.", "use `<c>a*b`</c> and ``<c>a`b``</c>."),
            ("```rust\nlet a = **b; // `#\n```\nc", "```<c>rust\nlet a = **b; // `#\n```</c>\nc"),
            ("  ```\na\n  ```", "  ```<c>\na\n  ```</c>"),
        ] {
            assert_eq!(painted(text), expected);
        }
    }

    #[test]
    fn other_texts_stay_plain() {
        for text in ["2 ** 3", "* one\n* two", "a # b", "#tag", "####### seven", "a*b*c", "", "\n\n", "é 🦀"] {
            assert_eq!(painted(text), text);
        }
    }

    #[test]
    fn nothing_goes_on_for_ever() {
        assert_eq!(painted("a **b\nc"), "a **<b>b</b>\nc");
        assert_eq!(painted("it`s\nc"), "it`<c>s</c>\nc");
        assert_eq!(painted("```\na"), "```<c>\na</c>");
        assert_eq!(painted("a **"), "a **");
    }
}
