//! Splitting a text into the words that byte pair encoding works on.
//!
//! A pre-tokenizer is a list of steps; each splits the parts that the step before has made. As in the reference, a
//! pattern with character categories is matched against one byte per character instead of the text (see
//! `Class::collapse`), so that `\s` knows only ASCII white space and all letters are alike. The patterns run on a
//! linear-time engine without look-ahead: a final `\s+(?!\S)|\s+` is a rule of its own, [`Tail`].

use regex::{Regex, bytes};

use super::error::TokenizerError;
use super::scan::{self, Piece};
use super::unicode::Class;

/// One step of a pre-tokenizer, as the table in `pre.rs` names it.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// GPT-2's splitter.
    Gpt2,
    /// Llama 3's: digits per token, and whether marks are letters.
    Llama3(usize, bool),
    /// Kimi K2's.
    KimiK2,
    /// Digits by three from the right, joined to what is before them.
    DigitGroups,
    /// Cuts at thousands in runs of ASCII digits.
    Thousands,
    /// Runs of line feeds, and the rest.
    Lines,
    /// Matches of a pattern over categories, and what is between them.
    Find(&'static str),
    /// Matches of a pattern over the characters themselves (white space beyond ASCII is a vertical
    /// tab), and what is between them.
    FindChars(&'static str),
    /// A pattern over categories that ends in a rule for white space.
    Words(&'static str, Tail),
}

/// How many of `n` white space characters make a token where nothing else matches.
#[derive(Clone, Copy)]
pub(super) enum Tail {
    /// `\s+(?!\S)|\s+`: all but the last, which belongs to the next word; all at the end.
    ButLast,
    /// The largest of 512, 256 … 4, 2, 1 that leaves one for the next word.
    PowersOfTwo,
}

impl Tail {
    fn take(self, n: usize, at_end: bool) -> usize {
        let most = if at_end { n } else { (n - 1).max(1) };
        match self {
            Tail::ButLast => most,
            Tail::PowersOfTwo => (1usize << most.ilog2()).min(512),
        }
    }
}

/// A compiled step.
enum Splitter {
    Scan(fn(Piece, &mut Vec<usize>)),
    Llama3(usize, bool),
    Find(bytes::Regex),
    FindChars(Regex),
    Words(bytes::Regex, Tail),
}

/// A compiled pre-tokenizer.
pub(super) struct PreTokenizer {
    steps: Vec<Splitter>,
}

impl PreTokenizer {
    pub(super) fn new(steps: &[Step]) -> Result<PreTokenizer, TokenizerError> {
        let steps = steps.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(PreTokenizer { steps })
    }

    /// The words of `text`, in order; together they are `text`.
    pub(super) fn split<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let chars: Vec<char> = text.chars().collect();
        let classes: Vec<Class> = chars.iter().map(|&c| Class::of(c)).collect();
        let collapsed: Vec<u8> = chars.iter().zip(&classes).map(|(&c, class)| class.collapse(c)).collect();
        let mut lengths = vec![chars.len()];
        for step in &self.steps {
            let mut out = Vec::with_capacity(lengths.len());
            let mut start = 0;
            for len in lengths {
                let range = start..start + len;
                let piece = Piece { chars: &chars[range.clone()], classes: &classes[range.clone()] };
                step.split(piece, &collapsed[range], &mut out);
                start += len;
            }
            lengths = out;
        }
        let mut rest = text;
        let mut start = 0;
        let mut words = Vec::with_capacity(lengths.len());
        for len in lengths.into_iter().filter(|&len| len > 0) {
            let bytes = chars[start..start + len].iter().map(|c| c.len_utf8()).sum();
            let (word, after) = rest.split_at(bytes);
            words.push(word);
            rest = after;
            start += len;
        }
        words
    }
}

fn compile(step: &Step) -> Result<Splitter, TokenizerError> {
    let over_categories = |pattern: &str| {
        let classes = [
            (r"\p{N}", r"[\xd10-9]"),
            (r"\p{L}", r"[\xd2A-Za-z]"),
            (r"\p{P}", r"[\xd3!-#%-*,-/:;?@\[-\]_{}]"),
            (r"\p{M}", r"[\xd4]"),
            (r"\p{S}", r"[\xd5$+<-=>^`|~]"),
            // Letters that are no small ASCII letter, and letters that are no capital one.
            (r"\p{Upper}", r"[\xd2A-Z]"),
            (r"\p{Lower}", r"[\xd2a-z]"),
            (r"\p{Apostrophe}", "'(?i:[stmd]|re|ve|ll)"),
        ];
        let mut pattern = pattern.to_owned();
        for (name, class) in classes {
            pattern = pattern.replace(name, class);
        }
        bytes::RegexBuilder::new(&pattern).unicode(false).build()
    };
    let failed = |e: regex::Error| TokenizerError::Bpe(format!("pre-tokenizer: {e}"));
    Ok(match *step {
        Step::Gpt2 => Splitter::Scan(scan::gpt2),
        Step::KimiK2 => Splitter::Scan(scan::kimi_k2),
        Step::DigitGroups => Splitter::Scan(scan::digit_groups),
        Step::Thousands => Splitter::Scan(scan::cut_thousands),
        Step::Lines => Splitter::Scan(scan::lines),
        Step::Llama3(digits, marks) => Splitter::Llama3(digits, marks),
        Step::Find(pattern) => Splitter::Find(over_categories(pattern).map_err(failed)?),
        Step::FindChars(pattern) => Splitter::FindChars(Regex::new(pattern).map_err(failed)?),
        Step::Words(pattern, tail) => {
            let anchored = format!(r"\A(?:{pattern})");
            Splitter::Words(over_categories(&anchored).map_err(failed)?, tail)
        }
    })
}

impl Splitter {
    /// Appends the lengths of the parts of one piece; `collapsed` is the piece in categories.
    fn split(&self, piece: Piece, collapsed: &[u8], out: &mut Vec<usize>) {
        match self {
            Splitter::Scan(scan) => scan(piece, out),
            Splitter::Llama3(digits, marks) => scan::llama3(piece, *digits, *marks, out),
            Splitter::Find(regex) => {
                let matches = regex.find_iter(collapsed).map(|m| (m.start(), m.end()));
                cut(matches, collapsed.len(), out);
            }
            Splitter::FindChars(regex) => {
                let text: String = piece
                    .chars
                    .iter()
                    .zip(piece.classes)
                    .map(|(&c, class)| if c.is_ascii() || !class.is_space() { c } else { '\u{b}' })
                    .collect();
                // Matches count bytes, parts count characters.
                let (mut byte, mut char) = (0, 0);
                let mut chars_to = |end: usize| {
                    char += text[byte..end].chars().count();
                    byte = end;
                    char
                };
                let matches: Vec<_> =
                    regex.find_iter(&text).map(|m| (chars_to(m.start()), chars_to(m.end()))).collect();
                cut(matches.into_iter(), piece.chars.len(), out);
            }
            Splitter::Words(regex, tail) => words(regex, *tail, collapsed, out),
        }
    }
}

/// Appends the lengths of the matches and of the gaps between them.
fn cut(matches: impl Iterator<Item = (usize, usize)>, len: usize, out: &mut Vec<usize>) {
    let mut done = 0;
    for (start, end) in matches {
        if start > done {
            out.push(start - done);
        }
        out.push(end - start);
        done = end;
    }
    if done < len {
        out.push(len - done);
    }
}

/// Tries `regex` at every position, then the rule for white space; what neither covers is a gap.
fn words(regex: &bytes::Regex, tail: Tail, text: &[u8], out: &mut Vec<usize>) {
    let mut done = 0;
    let mut at = 0;
    while at < text.len() {
        let matched = regex.find(&text[at..]).map(|m| m.end());
        let mut spaces = text[at..]
            .iter()
            .take_while(|_| matched.is_none())
            .take_while(|b| matches!(b, b'\t'..=b'\r' | b' '))
            .count();
        if matched.is_none() && spaces == 0 {
            at += 1;
            continue;
        }
        if at > done {
            out.push(at - done);
        }
        if let Some(len) = matched {
            out.push(len);
            at += len;
        } else {
            // Where the pattern fails on white space it fails up to the last space of the run, which
            // may begin a word.
            let at_end = at + spaces == text.len();
            loop {
                let len = tail.take(spaces, at_end);
                out.push(len);
                at += len;
                spaces -= len;
                if spaces < 2 {
                    break;
                }
            }
        }
        done = at;
    }
    if done < text.len() {
        out.push(text.len() - done);
    }
}
