//! The names a model goes by: each of its own names, and each with the bits behind it, as in `NAME:4bit`.

use crate::error::ApiError;

/// Most bytes of the name of a model in a request.
pub const LONGEST_NAME: usize = 256;

/// The names of the model that is served.
#[derive(Clone, Debug)]
pub struct Names {
    /// At least one; the first is the id.
    pub names: Vec<String>,
    /// Bits per weight that may be asked for; none where the model has one width.
    pub widths: Vec<u8>,
    /// True if other names are refused.
    pub strict: bool,
}

impl Names {
    /// The id of the model.
    pub fn id(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The name that the answer gives, and the bits that are asked for, by the name or by `bits`.
    ///
    /// # Errors
    /// The name is another model's and that matters; the two contradict one another.
    pub fn resolve(&self, model: Option<&str>, bits: Option<u8>) -> Result<(String, Option<u8>), ApiError> {
        let Some(model) = model else {
            return Ok((self.id().to_owned(), bits));
        };
        let suffix = model.rsplit_once(':').and_then(|(name, width)| {
            let width = width.strip_suffix("bit")?.parse::<u8>().ok()?;
            Some((name, width))
        });
        let known = |name: &str| self.names.iter().any(|n| n == name);
        let asked = model;
        // Ollama's clients put this behind names that have no other tag.
        let model = asked.strip_suffix(":latest").filter(|name| known(name)).unwrap_or(asked);
        let own = suffix.filter(|(name, _)| known(name) || !self.widths.is_empty());
        let (name, named) = own.map_or((model, None), |(name, width)| (name, Some(width)));
        if self.strict && !known(name) {
            return Err(ApiError::new(
                404,
                "not_found_error",
                format!("the model '{model}' is not here; GET /v1/models lists the names"),
            ));
        }
        match (named, bits) {
            (Some(a), Some(b)) if a != b => {
                Err(ApiError::field("bits", format!("{b} contradicts the {a} bits of 'model'")))
            }
            (named, bits) => Ok((asked.to_owned(), named.or(bits))),
        }
    }

    /// All ids: the names, and each with each width.
    pub fn ids(&self) -> impl Iterator<Item = (String, Option<u8>)> {
        let plain = (self.id().to_owned(), None);
        let wide = self.widths.iter().map(|w| (format!("{}:{w}bit", self.id()), Some(*w)));
        std::iter::once(plain).chain(wide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(widths: &[u8], strict: bool) -> Names {
        Names { names: vec!["m".to_owned(), "alias".to_owned()], widths: widths.to_vec(), strict }
    }

    fn resolve(names: &Names, model: Option<&str>, bits: Option<u8>) -> Result<(String, Option<u8>), u16> {
        names.resolve(model, bits).map_err(|e| e.status)
    }

    #[test]
    fn names_with_bits() {
        let n = names(&[3, 4, 8], false);
        assert_eq!(resolve(&n, None, None), Ok(("m".into(), None)));
        assert_eq!(resolve(&n, Some("m:4bit"), None), Ok(("m:4bit".into(), Some(4))));
        assert_eq!(resolve(&n, Some("alias:4bit"), Some(4)), Ok(("alias:4bit".into(), Some(4))));
        assert_eq!(resolve(&n, Some("gpt:3bit"), None), Ok(("gpt:3bit".into(), Some(3))));
        assert_eq!(resolve(&n, Some("gpt"), None), Ok(("gpt".into(), None)));
        assert_eq!(resolve(&n, Some("m:4bit"), Some(3)), Err(400));
    }

    #[test]
    fn a_model_of_one_width() {
        // The engine refuses the bits; a foreign name that only looks like ours is left alone.
        let n = names(&[], false);
        assert_eq!(resolve(&n, Some("m:4bit"), None), Ok(("m:4bit".into(), Some(4))));
        assert_eq!(resolve(&n, Some("other:4bit"), None), Ok(("other:4bit".into(), None)));
    }

    #[test]
    fn strict_names() {
        let n = names(&[4], true);
        assert_eq!(resolve(&n, Some("alias:4bit"), None), Ok(("alias:4bit".into(), Some(4))));
        assert_eq!(resolve(&n, Some("m:latest"), None), Ok(("m:latest".into(), None)));
        assert_eq!(resolve(&n, Some("gpt"), None), Err(404));
        assert_eq!(resolve(&n, None, None), Ok(("m".into(), None)));
    }
}
