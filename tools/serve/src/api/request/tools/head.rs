//! The text of a call before its arguments, in which a number of the model's choice may stand.

use std::ops::Range;

/// Stands for the number in a [`Syntax`](super::syntax::Syntax).
pub const NUMBER: char = '\0';

/// A text to be found.
#[derive(Debug)]
pub struct Head {
    before: String,
    /// The text behind the number, where there is one.
    after: Option<String>,
}

impl Head {
    /// The text of which `written` has [`NUMBER`] at most once.
    pub fn new(written: &str) -> Head {
        match written.split_once(NUMBER) {
            Some((before, after)) => Head { before: before.to_owned(), after: Some(after.to_owned()) },
            None => Head { before: written.to_owned(), after: None },
        }
    }

    /// Its length at the beginning of `text`; `None` where something else stands there.
    pub fn begins(&self, text: &str) -> Option<usize> {
        let rest = text.strip_prefix(self.before.as_str())?;
        let Some(after) = &self.after else {
            return Some(self.before.len());
        };
        let digits = digits(rest);
        let found = digits > 0 && rest[digits..].starts_with(after.as_str());
        found.then(|| self.before.len() + digits + after.len())
    }

    /// The first place where it stands in `text`.
    pub fn find(&self, text: &str) -> Option<Range<usize>> {
        let places = text.match_indices(self.before.as_str()).map(|(at, _)| at);
        places.filter_map(|at| Some(at..at + self.begins(&text[at..])?)).next()
    }

    /// True if more text may make it of `text`, which is a part of it from its beginning on.
    pub fn may_follow(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(self.before.as_str()) else {
            return self.before.starts_with(text);
        };
        let digits = digits(rest);
        match &self.after {
            None => rest.is_empty(),
            Some(_) if rest.is_empty() => true,
            Some(after) => digits > 0 && after.starts_with(&rest[digits..]),
        }
    }
}

/// Digits at the beginning of a text.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_a_number_is_found() {
        let head = Head::new("<call go:\0>");
        assert_eq!(head.begins("<call go:12>{"), Some(12));
        assert_eq!(head.find("a<call go:><call go:7>"), Some(11..22));
        for begun in ["", "<", "<call go:", "<call go:1", "<call go:10", "<call go:10>"] {
            assert!(head.may_follow(begun), "{begun}");
        }
        for other in ["<call got", "<call go:>", "<call go:1 ", "<call go:1>{"] {
            assert!(!head.may_follow(other), "{other}");
        }
    }

    #[test]
    fn a_plain_text_is_found() {
        let head = Head::new("<call>");
        assert_eq!((head.begins("<call>{"), head.begins("<call")), (Some(6), None));
        assert_eq!(head.find("a <call>"), Some(2..8));
        assert!(head.may_follow("<ca") && head.may_follow("<call>") && !head.may_follow("<call>{"));
    }
}
