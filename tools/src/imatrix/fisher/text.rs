//! Cutting a text into sequences.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use trine::fisher::sample;
use trine::tokenizer::Tokenizer;

use crate::imatrix::args::{Args, Documents};
use crate::text;

/// Sequences of a text.
pub struct Sample {
    /// All of the same length, in the order in which they are looked at.
    pub sequences: Vec<Vec<u32>>,
    /// SHA-256 of the file.
    pub sha256: String,
}

/// The sequences that the options ask for.
///
/// # Errors
/// A text that cannot be read or is too short.
pub fn sample(args: &Args, path: &Path, tokenizer: &Tokenizer) -> Result<Sample> {
    let bytes = text::read_file(path)?;
    let sha256 = text::sha256([&bytes[..]]);
    let from = format!("'{}'", path.display());
    let text = text::utf8(bytes, &from)?;
    let (count, seq_len, seed) = (args.samples, args.seq_len, args.seed);
    let encode = |text: &str| tokenizer.encode(text, true, args.parse_special);
    note!("tokenizing the input ..");
    let sequences = match args.documents {
        None => sample::chunks(&encode(&text)?, seq_len, tokenizer.text_bos(), count, seed),
        Some(kind) => {
            let documents = split(&text, kind).map_err(|e| e.context(from.clone()))?;
            let encode = |i: usize| encode(&documents[i]);
            sample::documents(documents.len(), seq_len, count, seed, encode)?
        }
    };
    match sequences.len() {
        0 => bail!("{from} has no {seq_len} tokens in a row; use a longer text or a smaller --seq-len"),
        n if n < count => note!("warning: the text has only {n} sequences of {seq_len} tokens"),
        _ => {}
    }
    Ok(Sample { sequences, sha256 })
}

fn split(text: &str, kind: Documents) -> Result<Vec<String>> {
    let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let document = |(i, line): (usize, &str)| match kind {
        Documents::Lines => Ok(line.to_owned()),
        Documents::Jsonl => {
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|e| anyhow!("line {} is not JSON: {e}", i + 1))?;
            let text = value.get("text").and_then(serde_json::Value::as_str);
            text.map(str::to_owned).ok_or_else(|| anyhow!("line {} is no object with a \"text\"", i + 1))
        }
    };
    lines.map(document).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_lines_or_their_texts() {
        let split = |text: &str, kind| split(text, kind).map_err(|e| e.to_string());
        assert_eq!(split("one\n\n two \r\n", Documents::Lines), Ok(vec!["one".to_owned(), " two ".to_owned()]));
        assert_eq!(
            split("{\"text\":\"a\\nb\",\"url\":1}\n \n{\"text\":\"c\"}", Documents::Jsonl),
            Ok(vec!["a\nb".to_owned(), "c".to_owned()])
        );
        let error = split("{\"text\":\"a\"}\n\n{\"t\":1}", Documents::Jsonl).unwrap_err();
        assert_eq!(error, "line 3 is no object with a \"text\"");
        assert!(split("x", Documents::Jsonl).unwrap_err().contains("line 1 is not JSON"));
    }
}
