//! The front matter of a model card: the YAML between `---` lines at the head of README.md.
//!
//! Only what model cards use is understood: top-level keys with a scalar, a flow list or a block list of
//! scalars. Everything else is passed over; a card is a courtesy, not a source of weights.

use std::collections::BTreeMap;

/// Top-level keys and their scalars; a single scalar is a list of one.
#[derive(Default, Debug)]
pub(super) struct Card {
    keys: BTreeMap<String, Vec<String>>,
}

impl Card {
    pub fn parse(readme: &str) -> Card {
        let mut card = Card::default();
        let mut lines = readme.lines();
        if lines.next() != Some("---") {
            return card;
        }
        let mut current: Option<String> = None;
        for line in lines.take_while(|l| *l != "---") {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            if let Some(item) = trimmed.strip_prefix("- ") {
                // a list of maps is not a list of scalars
                let scalar = scalar(item).filter(|_| !is_map(item));
                match (&current, scalar) {
                    (Some(key), Some(value)) => card.keys.entry(key.clone()).or_default().push(value),
                    (Some(key), None) => {
                        card.keys.remove(key);
                        current = None;
                    }
                    (None, _) => {}
                }
                continue;
            }
            if line.starts_with([' ', '\t']) {
                continue;
            }
            let Some((key, value)) = line.split_once(':') else {
                current = None;
                continue;
            };
            current = Some(key.trim().to_owned());
            let value = value.trim();
            if let Some(list) = value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
                card.keys.insert(key.trim().to_owned(), list.split(',').filter_map(|v| scalar(v.trim())).collect());
            } else if let Some(value) = scalar(value) {
                card.keys.insert(key.trim().to_owned(), vec![value]);
            }
        }
        card
    }

    /// All scalars of a key.
    pub fn list(&self, key: &str) -> &[String] {
        self.keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// The first scalar among `keys` that is there.
    pub fn first(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().find_map(|k| self.list(k).first()).map(String::as_str)
    }
}

/// `name: x`, but not `org/name` or a URL.
fn is_map(item: &str) -> bool {
    !item.starts_with(['"', '\'']) && (item.contains(": ") || item.ends_with(':'))
}

fn scalar(text: &str) -> Option<String> {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest.split(quote).next().map(str::to_owned);
        }
    }
    let text = text.split(" #").next().unwrap_or(text).trim();
    let nothing = text.is_empty() || text == "null" || text == "~" || text.starts_with(['|', '>', '{', '&', '*', '#']);
    (!nothing).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_and_lists() {
        let card = Card::parse(
            "---\nlicense: apache-2.0\ntags:\n- text-generation\n  - \"b: c\"\nlanguage: [en, 'de']\nbase_model: # none\n  - a/b\nmodels:\n- name: x\n  results: y\n# no: no\n---\nlicense: mit\n",
        );
        assert_eq!(card.first(&["license"]), Some("apache-2.0"));
        assert_eq!(card.list("tags"), ["text-generation", "b: c"]);
        assert_eq!(card.list("language"), ["en", "de"]);
        assert_eq!(card.list("base_model"), ["a/b"]);
        assert!(card.list("models").is_empty() && card.list("no").is_empty());
        assert!(Card::parse("# A model\nlicense: mit").first(&["license"]).is_none());
    }
}
