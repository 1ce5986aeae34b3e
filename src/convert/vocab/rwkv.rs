//! Tokens of RWKV, which are strings of bytes: `rwkv_vocab_v20230424.txt`, a line of number, Python literal and length each.

use trine_formats::gguf::{Array, Value};

use super::super::error::ConvertError;
use super::super::folder::Folder;
use super::super::hparams::HParams;
use super::keys::{Keys, Kind, TokenizerFiles, Vocab, wrong};
use super::special;

const FILE: &str = "rwkv_vocab_v20230424.txt";
/// The token of two line feeds, which ends a turn.
const TURN: u32 = 261;

/// All keys, in the order of the reference converter.
pub(super) fn keys(
    folder: &Folder,
    h: &HParams,
    files: &TokenizerFiles,
    n_vocab: usize,
    notes: &mut Vec<String>,
) -> Result<Keys, ConvertError> {
    let bytes = folder.read(FILE)?.ok_or_else(|| ConvertError::Missing {
        folder: folder.path.clone(),
        file: FILE.into(),
        hint: "models of this class have their tokens there; download it too",
    })?;
    let vocab = vocab(&bytes, n_vocab)?;
    let kinds = vocab.kinds.iter().map(|k| *k as i32).collect();
    let mut keys: Keys = [
        ("model", Value::str("rwkv")),
        ("tokens", Value::Array(Array::Str(vocab.tokens.iter().collect()))),
        ("token_type", Value::Array(Array::I32(kinds))),
    ]
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .into();
    let mut special = special::keys(folder, files, h, None, &[("eot", TURN.into())])?;
    // whatever the files say, texts begin and end with the first token
    let mut ids = special.iter().take_while(|(key, _)| key.ends_with("_token_id")).count();
    for kind in ["bos", "eos"] {
        let key = format!("tokenizer.ggml.{kind}_token_id");
        match special.iter_mut().find(|(k, _)| *k == key) {
            Some((_, value)) => *value = Value::U32(0),
            None => {
                special.insert(ids, (key, Value::U32(0)));
                ids += 1;
            }
        }
    }
    if special.iter().all(|(key, _)| key != "tokenizer.chat_template") {
        notes
            .push("the folder has no chat template, in whose place llama.cpp's converter writes one of its own".into());
    }
    keys.extend(special);
    Ok(keys)
}

fn vocab(bytes: &[u8], n_vocab: usize) -> Result<Vocab, ConvertError> {
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(FILE, "is not text in UTF-8"))?;
    let mut v = Vocab::default();
    v.push("<s>", Kind::Control);
    for (n, line) in text.lines().enumerate() {
        let token = token(line).ok_or_else(|| {
            wrong(FILE, format!("line {} is not a number, a quoted token and its length in bytes", n + 1))
        })?;
        v.push(shown(&token), Kind::Normal);
    }
    if v.tokens.len() > n_vocab {
        return Err(wrong(FILE, format!("has {} tokens, and the model has {n_vocab}", v.tokens.len())));
    }
    for n in v.tokens.len()..n_vocab {
        v.push(format!("[PAD{n}]"), Kind::Unused);
    }
    Ok(v)
}

/// The bytes of a line's token.
fn token(line: &str) -> Option<Vec<u8>> {
    let (_, rest) = line.split_once(' ')?;
    let (literal, length) = rest.rsplit_once(' ')?;
    let token = literal_bytes(literal.trim())?;
    (length.trim().parse() == Ok(token.len())).then_some(token)
}

/// The bytes that a Python literal of text or of bytes stands for.
fn literal_bytes(literal: &str) -> Option<Vec<u8>> {
    let (of_bytes, quoted) = match literal.strip_prefix('b') {
        Some(rest) => (true, rest),
        None => (false, literal),
    };
    let quote = quoted.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut out = Vec::new();
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c == quote {
            return None;
        }
        let c = match c {
            '\\' => match rest.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '0' => '\0',
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'v' => '\u{b}',
                c @ ('\\' | '\'' | '"') => c,
                c @ ('x' | 'u' | 'U') => {
                    let digits = match c {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let text = rest.as_str().get(..digits)?;
                    rest = rest.as_str()[digits..].chars();
                    char::from_u32(u32::from_str_radix(text, 16).ok()?)?
                }
                _ => return None,
            },
            c => c,
        };
        match of_bytes {
            true => out.push(u8::try_from(u32::from(c)).ok()?),
            false => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Some(out)
}

/// Bytes as Python shows them, without quotes.
fn shown(token: &[u8]) -> String {
    let quote = if token.contains(&b'\'') && !token.contains(&b'"') { b'"' } else { b'\'' };
    let mut out = String::new();
    for &byte in token {
        match byte {
            b'\\' => out += "\\\\",
            b'\n' => out += "\\n",
            b'\r' => out += "\\r",
            b'\t' => out += "\\t",
            byte if byte == quote => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            byte => out += &format!("\\x{byte:02x}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_pythons() {
        for (literal, bytes) in [
            ("'a b'", &b"a b"[..]),
            ("\"it's\"", b"it's"),
            (r"b'\xff\x00'", b"\xff\x00"),
            (r"'\xe9'", "\u{e9}".as_bytes()),
            (r"'\u3000\n'", "\u{3000}\n".as_bytes()),
            ("'\u{1f600}'", "\u{1f600}".as_bytes()),
            (r"'\\\''", br"\'"),
        ] {
            assert_eq!(literal_bytes(literal).as_deref(), Some(bytes), "{literal}");
        }
        for wrong in ["", "a", "'a", "'", "'a'b'", r"'\q'", r"'\x1'", r"b'\u1234'"] {
            assert_eq!(literal_bytes(wrong), None, "{wrong}");
        }
    }

    /// Results of Python's `repr`.
    #[test]
    fn bytes_are_shown_as_python_does() {
        for (bytes, text) in [
            (&b"a~ "[..], "a~ "),
            (b"'", "'"),
            (b"'\"", "\\'\""),
            (b"\"", "\""),
            (b"\x00\x7f\xff\t\n\r\\", "\\x00\\x7f\\xff\\t\\n\\r\\\\"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }
}
