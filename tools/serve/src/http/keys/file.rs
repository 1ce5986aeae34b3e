//! The file of keys: a line for each.
//!
//! ```text
//! # Lines that begin so are left out.
//! a-key-without-a-name
//! alice: another-key
//! bob: sha256:2bb80d53… concurrent=2 tokens-per-minute=60000 priority=1 models=small,large
//! ```

use std::collections::HashSet;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::key::Key;
use super::limits::Limits;

/// Most keys, and the longest name of a holder.
const MOST: usize = 4096;
const NAME: usize = 64;

/// The keys of a file with this text. Messages never hold a key.
///
/// # Errors
/// Names the line.
pub fn parse(text: &str) -> Result<Vec<Key>> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (mut keys, mut names, mut digests) = (Vec::new(), HashSet::new(), HashSet::new());
    for (number, line) in lines {
        let key = key(line).with_context(|| format!("line {number}"))?;
        if key.name.as_ref().is_some_and(|name| !names.insert(name.clone())) {
            bail!("line {number}: the name of an earlier line");
        }
        if !digests.insert(key.digest) {
            bail!("line {number}: the key of an earlier line");
        }
        keys.push(key);
        if keys.len() > MOST {
            bail!("more than {MOST} keys");
        }
    }
    Ok(keys)
}

fn key(line: &str) -> Result<Key> {
    let mut words = line.split_whitespace().peekable();
    let name = words.next_if(|word| word.len() > 1 && word.ends_with(':'));
    let name = name.map(|word| word.trim_end_matches(':'));
    let letters = |c: u8| c.is_ascii_alphanumeric() || b"_-.@".contains(&c);
    if name.is_some_and(|name| !(1..=NAME).contains(&name.len()) || !name.bytes().all(letters)) {
        bail!("a name has at most {NAME} letters, digits, '_', '-', '.' and '@'");
    }
    let Some(key) = words.next() else {
        bail!("there is no key behind the name");
    };
    let digest = match key.strip_prefix("sha256:") {
        Some(hex) => digest(hex).context("behind 'sha256:' stand the 64 hexadecimal digits of a key's hash")?,
        None => Sha256::digest(key).into(),
    };
    let mut limits = Limits::default();
    for word in words {
        limit(&mut limits, word)?;
    }
    Ok(Key::new(name.map(str::to_owned), digest, limits))
}

fn limit(limits: &mut Limits, word: &str) -> Result<()> {
    const KNOWN: &str = "behind a key stand concurrent=N, tokens-per-minute=N, priority=N and models=A,B";
    let (name, value) = word.split_once('=').context(KNOWN)?;
    let wrong = || format!("{name} has no number that makes sense");
    match name {
        "concurrent" => limits.concurrent = Some(value.parse().ok().filter(|n| *n > 0).with_context(wrong)?),
        "tokens-per-minute" => {
            let most = 1..=u64::from(u32::MAX);
            limits.tokens_per_minute = Some(value.parse().ok().filter(|n| most.contains(n)).with_context(wrong)?);
        }
        "priority" => limits.priority = value.parse().ok().filter(|n| (-100..=100).contains(n)).with_context(wrong)?,
        "models" => {
            limits.models = value.split(',').map(str::to_owned).collect();
            if limits.models.iter().any(String::is_empty) {
                bail!("models= is a list of names with commas between them");
            }
        }
        _ => bail!(KNOWN),
    }
    Ok(())
}

/// The bytes of 64 hexadecimal digits.
fn digest(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut out = [0; 32];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf secret | sha256sum`
    const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn lines_of_all_kinds() {
        let text = format!(
            "# of the office\n\nplain=key\n  alice: other \nbob: sha256:{SECRET} concurrent=2 tokens-per-minute=60000 priority=-1 models=a,b:4bit\n"
        );
        let keys = parse(&text).unwrap();
        assert_eq!(keys.len(), 3);
        let names: Vec<_> = keys.iter().map(|key| key.name.as_deref()).collect();
        assert_eq!(names[1..], [Some("alice"), Some("bob")]);
        assert_eq!(keys[1].digest, <[u8; 32]>::from(Sha256::digest("other")));
        assert_eq!(keys[2].digest, <[u8; 32]>::from(Sha256::digest("secret")));
        let models = vec!["a".to_owned(), "b:4bit".to_owned()];
        let limits = Limits { concurrent: Some(2), tokens_per_minute: Some(60000), priority: -1, models };
        assert_eq!(keys[2].limits, limits);
        assert!(keys[2].may_ask_for("a") && !keys[2].may_ask_for("b") && keys[1].may_ask_for("b"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_line() {
        for (text, why) in [
            ("alice:", "line 1: there is no key"),
            ("a\nal/ice: canary", "line 2: a name"),
            ("alice: sha256:canary", "line 1: behind 'sha256:'"),
            ("alice: canary canary", "line 1: behind a key"),
            ("alice: canary speed=1", "line 1: behind a key"),
            ("alice: canary concurrent=0", "line 1: concurrent"),
            ("alice: canary tokens-per-minute=x", "line 1: tokens-per-minute"),
            ("alice: canary priority=1000", "line 1: priority"),
            ("alice: canary models=a,,b", "line 1: models="),
            ("alice: canary\nalice: other", "line 2: the name of an earlier line"),
            ("alice: canary\nbob: canary", "line 2: the key of an earlier line"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.starts_with(why) && !error.contains("canary"), "{text}: {error}");
        }
    }
}
