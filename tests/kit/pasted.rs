//! Command lines of other programs, as `testdata/command-lines` lists them.

use std::fs;

use crate::testdata;

/// A command line and what becomes of it.
pub struct Pasted {
    /// The line of the list.
    pub line: String,
    /// Words of the sentence that refuses it; `None` where it runs.
    pub refusal: Option<String>,
    /// The words of the command line as a shell takes them apart, the program's name first.
    pub words: Vec<String>,
}

/// All command lines of a file in `testdata/command-lines`.
pub fn pasted(name: &str) -> Vec<Pasted> {
    let path = testdata("command-lines").join(name);
    let list = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = list.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let parsed = lines.map(|line| {
        let (class, pasted) = line.split_once(" | ").expect("what becomes of the line");
        let refusal = class.strip_prefix("refused: ").map(str::to_owned);
        assert!(refusal.is_some() || class == "runs", "{line}");
        Pasted { line: line.to_owned(), refusal, words: words(pasted.strip_prefix("python ").unwrap_or(pasted)) }
    });
    parsed.collect()
}

/// The words of a line, as a shell takes them apart.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(q), c) if q == c => quote = None,
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
