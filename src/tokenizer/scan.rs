//! Splitters that the reference has written out by hand; where they differ from the regular expression
//! they stand for, they are what counts.
//!
//! Each takes one piece of the text and appends the lengths, in characters, of the parts it makes.

use super::unicode::{Class, is_han};

/// A piece of the text with the class of every character.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub chars: &'a [char],
    pub classes: &'a [Class],
}

impl Piece<'_> {
    fn class(&self, i: usize) -> Class {
        self.classes.get(i).copied().unwrap_or(Class::END)
    }

    fn is(&self, i: usize, c: char) -> bool {
        self.chars.get(i) == Some(&c)
    }

    fn letter(&self, i: usize) -> bool {
        self.class(i).is_letter()
    }

    fn number(&self, i: usize) -> bool {
        self.class(i).is_number()
    }

    fn line_end(&self, i: usize) -> bool {
        self.is(i, '\n') || self.is(i, '\r')
    }

    /// A character that is neither white space, letter nor number.
    fn other(&self, i: usize) -> bool {
        let c = self.class(i);
        i < self.chars.len() && !(c.is_space() || c.is_letter() || c.is_number())
    }

    /// Length of `'s`, `'t`, `'m`, `'d`, `'re`, `'ve` or `'ll` at `i`, or 0.
    fn contraction(&self, i: usize, any_case: bool) -> usize {
        if !self.is(i, '\'') {
            return 0;
        }
        let at = |i: usize| match self.chars.get(i) {
            Some(c) if any_case => c.to_ascii_lowercase(),
            Some(&c) => c,
            None => '\0',
        };
        match (at(i + 1), at(i + 2)) {
            ('s' | 't' | 'm' | 'd', _) => 2,
            ('r' | 'v', 'e') | ('l', 'l') => 3,
            _ => 0,
        }
    }

    /// Number of white space characters from `i` on.
    fn spaces(&self, i: usize) -> usize {
        (i..self.chars.len()).take_while(|&k| self.class(k).is_space()).count()
    }

    /// The end of the white space token at `at`, `lines` saying whether it prefers to end after a
    /// line end; anything else is a token of one character.
    fn space_token(&self, at: usize, lines: bool) -> usize {
        let n = self.spaces(at);
        let last_line_end = (at..at + n).rev().find(|&k| self.line_end(k));
        match last_line_end {
            Some(k) if lines => k + 1,
            // The last of several belongs to the word that follows.
            _ if n > 1 && at + n < self.chars.len() => at + n - 1,
            _ => at + n.max(1),
        }
    }
}

/// GPT-2's pattern.
pub(super) fn gpt2(p: Piece, out: &mut Vec<usize>) {
    let mut at = 0;
    while at < p.chars.len() {
        let start = at;
        let contraction = p.contraction(at, false);
        let word = at + usize::from(p.is(at, ' '));
        if contraction > 0 {
            at += contraction;
        } else if p.letter(word) {
            at = skip(word, |i| p.letter(i));
        } else if p.number(word) {
            at = skip(word, |i| p.number(i));
        } else if p.other(word) {
            at = skip(word, |i| p.other(i));
        } else {
            at = p.space_token(at, false);
        }
        out.push(at - start);
    }
}

/// Llama 3's pattern and its relatives: `digits` digits make a token, and marks are letters or not.
pub(super) fn llama3(p: Piece, digits: usize, marks: bool, out: &mut Vec<usize>) {
    let letter = |i: usize| p.letter(i) || marks && p.class(i).is_mark();
    let other = |i: usize| p.other(i) && !(marks && p.class(i).is_mark());
    let mut at = 0;
    while at < p.chars.len() {
        let start = at;
        let contraction = p.contraction(at, true);
        let word = at + usize::from(p.is(at, ' '));
        if contraction > 0 {
            at += contraction;
        } else if !p.line_end(at) && !p.number(at) && (letter(at) || letter(at + 1)) {
            at = skip(at + 1, letter);
        } else if p.number(at) {
            at += (0..digits).take_while(|&k| p.number(at + k)).count();
        } else if other(word) {
            at = skip(skip(word, other), |i| p.line_end(i));
        } else {
            at = p.space_token(at, true);
        }
        out.push(at - start);
    }
}

/// Kimi K2's pattern: runs of Chinese characters, other words with their contraction, numbers by three.
pub(super) fn kimi_k2(p: Piece, out: &mut Vec<usize>) {
    let han = |i: usize| p.chars.get(i).is_some_and(|&c| is_han(c));
    let letter = |i: usize| p.letter(i) && !han(i);
    let mut at = 0;
    while at < p.chars.len() {
        let start = at;
        let prefix = !p.line_end(at) && !p.letter(at) && !p.number(at);
        let word = at + usize::from(p.is(at, ' '));
        if han(at) {
            at = skip(at, han);
        } else if letter(at) || prefix && letter(at + 1) {
            at = skip(at + usize::from(prefix), letter);
            at += p.contraction(at, true);
        } else if p.number(at) {
            at += (0..3).take_while(|&k| p.number(at + k)).count();
        } else if p.other(word) {
            at = skip(skip(word, |i| p.other(i)), |i| p.line_end(i));
        } else {
            at = p.space_token(at, true);
        }
        out.push(at - start);
    }
}

/// Numbers in groups of three from their right end. What stands before a number stays joined to its
/// first group.
pub(super) fn digit_groups(p: Piece, out: &mut Vec<usize>) {
    let mut done = 0;
    let mut at = 0;
    while at < p.chars.len() {
        let end = skip(at, |i| p.number(i));
        let mut cut = at + (end - at) % 3;
        if cut == at {
            cut += 3;
        }
        while cut <= end {
            out.push(cut - done);
            done = cut;
            cut += 3;
        }
        at = end.max(at + 1);
    }
    if done < p.chars.len() {
        out.push(p.chars.len() - done);
    }
}

/// Runs of line feeds and runs of anything else.
pub(super) fn lines(p: Piece, out: &mut Vec<usize>) {
    let mut at = 0;
    while at < p.chars.len() {
        let feed = p.is(at, '\n');
        let end = skip(at, |i| i < p.chars.len() && p.is(i, '\n') == feed);
        out.push(end - at);
        at = end;
    }
}

/// A cut before every ASCII digit that has a multiple of three digits from it to the end of its run.
pub(super) fn cut_thousands(p: Piece, out: &mut Vec<usize>) {
    let digit = |i: usize| p.chars.get(i).is_some_and(char::is_ascii_digit);
    let mut done = 0;
    let mut at = 0;
    while at < p.chars.len() {
        let end = skip(at, digit);
        let first = at + (end - at) % 3;
        for cut in (first..end).step_by(3).filter(|&cut| cut > 0) {
            out.push(cut - done);
            done = cut;
        }
        at = end.max(at + 1);
    }
    if done < p.chars.len() {
        out.push(p.chars.len() - done);
    }
}

/// The first position from `at` on where `f` does not hold.
fn skip(mut at: usize, f: impl Fn(usize) -> bool) -> usize {
    while f(at) {
        at += 1;
    }
    at
}
