//! Names of models: `USER/REPO`, and `USER/REPO:QUANT`.

use std::fmt;

use crate::HubError;

/// A repository of a hub, and perhaps the type of the file that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The account.
    pub user: String,
    /// The repository of the account.
    pub repo: String,
    /// The type, such as `Q4_K_M`, or `None`.
    pub tag: Option<String>,
}

/// How an address of the hub's pages begins, which is left out.
const ADDRESSES: [&str; 4] = ["https://huggingface.co/", "huggingface.co/", "https://hf.co/", "hf.co/"];

/// The most bytes of an account, a repository or a type.
const LONGEST: usize = 96;

impl Name {
    /// Reads `USER/REPO` or `USER/REPO:QUANT`; the address of a repository's page is one too.
    ///
    /// # Errors
    /// Anything else. Letters, digits and `.`, `_` and `-` between them are allowed, so that a name is never a path.
    pub fn parse(text: &str) -> Result<Name, HubError> {
        let wrong = || HubError::NotAName(text.to_owned());
        let short = ADDRESSES.iter().find_map(|start| text.strip_prefix(start)).unwrap_or(text);
        let (both, tag) = match short.rsplit_once(':') {
            Some((both, tag)) => (both, Some(tag)),
            None => (short, None),
        };
        let (user, repo) = both.trim_end_matches('/').split_once('/').ok_or_else(wrong)?;
        if ![user, repo].into_iter().chain(tag).all(is_word) {
            return Err(wrong());
        }
        Ok(Name { user: user.to_owned(), repo: repo.to_owned(), tag: tag.map(str::to_owned) })
    }

    /// `USER/REPO`.
    pub fn both(&self) -> String {
        format!("{}/{}", self.user, self.repo)
    }

    /// The name of its folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.user, self.repo)
    }
}

/// True for a part of a name: it cannot lead out of a folder, and `--` would be read as a slash.
fn is_word(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let edges = part.starts_with(['.', '-']) || part.ends_with(['.', '-']);
    !part.is_empty()
        && part.len() <= LONGEST
        && part.chars().all(allowed)
        && !edges
        && !part.contains("--")
        && !part.contains("..")
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.user, self.repo)?;
        match &self.tag {
            Some(tag) => write!(out, ":{tag}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_of_repositories() {
        for (text, both, tag) in [
            ("a/b", "a/b", None),
            ("prism-ml/Ternary-Bonsai-8B-gguf:Q2_0", "prism-ml/Ternary-Bonsai-8B-gguf", Some("Q2_0")),
            ("hf.co/a/b_1.5:q4_k_m", "a/b_1.5", Some("q4_k_m")),
            ("https://huggingface.co/a/b/", "a/b", None),
        ] {
            let name = Name::parse(text).unwrap();
            assert_eq!((name.both().as_str(), name.tag.as_deref()), (both, tag), "{text}");
        }
    }

    #[test]
    fn paths_are_no_names() {
        for text in
            ["", "a", "a/", "/a", "a/b/c", "../a", "a/..", "a/b:", "a/b:c:d", "a--b/c", "a/b c", "a/b\n", "./a", "a/.b"]
        {
            assert!(Name::parse(text).is_err(), "{text}");
        }
        assert!(Name::parse(&format!("a/{}", "b".repeat(97))).is_err());
    }
}
