//! The names a model goes by: each of its own names, and each with the bits behind it, as in `NAME:4bit`.

use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::Fields;
use crate::service::Service;

/// The names of the model that is served.
#[derive(Clone, Debug)]
pub struct Names {
    /// At least one; the first is the id.
    pub names: Vec<String>,
    /// Bits per weight that may be asked for; none where the model has one width.
    pub widths: Vec<u8>,
    /// Whether other names are refused.
    pub strict: bool,
}

/// Most bytes of a model's name in a request.
const NAME: usize = 256;

impl Names {
    /// The id of the model.
    pub fn id(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The name that the answer gives, and the bits that are asked for, by the name or by `bits`.
    ///
    /// # Errors
    /// The name is another model's and that matters; the two contradict one another.
    pub fn resolve(&self, f: &Fields<'_>) -> Result<(String, Option<u8>), ApiError> {
        let bits = f.integer("bits", 1..=8)?.map(|b| b as u8);
        let Some(model) = f.short_text("model", NAME)? else {
            return Ok((self.id().to_owned(), bits));
        };
        let suffix = model.rsplit_once(':').and_then(|(name, width)| {
            let width = width.strip_suffix("bit")?.parse::<u8>().ok()?;
            Some((name, width))
        });
        let known = |name: &str| self.names.iter().any(|n| n == name);
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
            (Some(a), Some(b)) if a != b => Err(ApiError::field(
                "bits",
                format!("{b} contradicts the {a} bits of 'model'"),
            )),
            (named, bits) => Ok((model.to_owned(), named.or(bits))),
        }
    }

    /// All ids: the names, and each with each width.
    fn ids(&self) -> impl Iterator<Item = (String, Option<u8>)> {
        let plain = (self.id().to_owned(), None);
        let wide = self
            .widths
            .iter()
            .map(|w| (format!("{}:{w}bit", self.id()), Some(*w)));
        std::iter::once(plain).chain(wide)
    }
}

/// What `/v1/models` answers.
pub fn list(service: &Service) -> Value {
    let names = &service.names;
    let about = &service.about;
    let model = service.engine.model();
    let config = model.weights().config();
    let vocabulary = model
        .metadata()
        .get_str("tokenizer.ggml.model")
        .ok()
        .flatten();
    let data: Vec<Value> = names
        .ids()
        .map(|(id, bits)| {
            json!({
                "id": id,
                "aliases": names.names,
                "tags": [],
                "object": "model",
                "created": about.created,
                "owned_by": "llamacpp",
                "meta": {
                    "vocab_type": vocabulary,
                    "n_vocab": config.n_vocab,
                    "n_ctx": service.engine.options().n_ctx(),
                    "n_ctx_train": config.n_ctx_train,
                    "n_embd": config.n_embd,
                    "n_params": about.n_params,
                    "size": about.size,
                    "bits": bits.or(service.engine.options().bits),
                },
            })
        })
        .collect();
    let models = json!([{
        "name": names.id(),
        "model": names.id(),
        "type": "model",
        "digest": about.sha256,
        "size": about.size.to_string(),
        "capabilities": ["completion"],
        "details": {"format": "gguf", "family": model.metadata().get_str("general.architecture").ok().flatten()},
    }]);
    json!({"models": models, "object": "list", "data": data})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(widths: &[u8], strict: bool) -> Names {
        Names {
            names: vec!["m".to_owned(), "alias".to_owned()],
            widths: widths.to_vec(),
            strict,
        }
    }

    fn resolve(names: &Names, body: Value) -> Result<(String, Option<u8>), u16> {
        names
            .resolve(&Fields::of(&body).unwrap())
            .map_err(|e| e.status)
    }

    #[test]
    fn names_with_bits() {
        let n = names(&[3, 4, 8], false);
        assert_eq!(resolve(&n, json!({})), Ok(("m".into(), None)));
        assert_eq!(
            resolve(&n, json!({"model": "m:4bit"})),
            Ok(("m:4bit".into(), Some(4)))
        );
        assert_eq!(
            resolve(&n, json!({"model": "alias:4bit", "bits": 4})),
            Ok(("alias:4bit".into(), Some(4)))
        );
        assert_eq!(
            resolve(&n, json!({"model": "gpt:3bit"})),
            Ok(("gpt:3bit".into(), Some(3)))
        );
        assert_eq!(
            resolve(&n, json!({"model": "gpt"})),
            Ok(("gpt".into(), None))
        );
        assert_eq!(resolve(&n, json!({"model": "m:4bit", "bits": 3})), Err(400));
        assert_eq!(resolve(&n, json!({"model": "m", "bits": 9})), Err(400));
        assert_eq!(resolve(&n, json!({"model": "x".repeat(257)})), Err(400));
    }

    #[test]
    fn a_model_of_one_width() {
        // The engine refuses the bits; a foreign name that only looks like ours is left alone.
        let n = names(&[], false);
        assert_eq!(
            resolve(&n, json!({"model": "m:4bit"})),
            Ok(("m:4bit".into(), Some(4)))
        );
        assert_eq!(
            resolve(&n, json!({"model": "other:4bit"})),
            Ok(("other:4bit".into(), None))
        );
    }

    #[test]
    fn strict_names() {
        let n = names(&[4], true);
        assert_eq!(
            resolve(&n, json!({"model": "alias:4bit"})),
            Ok(("alias:4bit".into(), Some(4)))
        );
        assert_eq!(resolve(&n, json!({"model": "gpt"})), Err(404));
        assert_eq!(resolve(&n, json!({})), Ok(("m".into(), None)));
    }
}
