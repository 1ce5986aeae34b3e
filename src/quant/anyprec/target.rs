//! The request: the name of a target and the options beside it.

use super::cluster::{Method, Nesting};
use super::outliers::{Rule, Shares};
use super::sensitivity::Sensitivity;

/// A target by its name: `AP3-8`, `AP4`, `AP`, `SQ4`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Whose outlier rules go with the name.
    pub rule: Rule,
    /// The seed and parent bits; `None` leaves them to the model.
    pub range: Option<Nesting>,
}

impl Target {
    /// Reads a name in any case. `AP3-8` has all widths from 3 to 8, `AP4` one; `SQ4` is the same with
    /// SqueezeLLM's rules for outliers. `AP` starts at 3 and ends where the model's rows carry the tables.
    pub fn parse(text: &str) -> Option<Target> {
        let (family, rest) = text.split_at_checked(2)?;
        let bits = |text: &str| text.parse().ok().filter(|_| text.len() == 1);
        let one = |text| bits(text).and_then(|b| Nesting::new(b, b));
        match (family.to_ascii_uppercase().as_str(), rest) {
            ("AP", "") => Some(Target { rule: Rule::AnyPrecision, range: None }),
            ("AP", rest) => {
                let range = match rest.split_once('-') {
                    Some((seed, parent)) => Nesting::new(bits(seed)?, bits(parent)?),
                    None => one(rest),
                };
                Some(Target { rule: Rule::AnyPrecision, range: Some(range?) })
            }
            ("SQ", rest) => Some(Target { rule: Rule::SqueezeLlm, range: Some(one(rest)?) }),
            _ => None,
        }
    }

    /// The name.
    pub fn name(self) -> String {
        let family = match self.rule {
            Rule::AnyPrecision => "AP",
            Rule::SqueezeLlm => "SQ",
        };
        match self.range {
            None => family.to_owned(),
            Some(n) if n.seed_bits == n.parent_bits => format!("{family}{}", n.seed_bits),
            Some(n) => format!("{family}{}-{}", n.seed_bits, n.parent_bits),
        }
    }
}

/// Options of codebooks.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of the target's.
    pub seed_bits: Option<u8>,
    /// Instead of the target's.
    pub parent_bits: Option<u8>,
    /// Widths that get tables; all from the seed to the parent when `None`.
    pub widths: Option<Vec<u8>>,
    /// Groups of columns with codebooks of their own.
    pub groups: u32,
    /// Tables of each width that the rows of a matrix share; `None`: every row has its own.
    pub tables: Option<u32>,
    /// Method of clustering.
    pub method: Method,
    /// Weights that are kept as they are.
    pub outliers: Option<Shares>,
    /// Sensitivity of each weight.
    pub sensitivity: Sensitivity,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed_bits: None,
            parent_bits: None,
            widths: None,
            groups: 1,
            tables: None,
            method: Method::Exact,
            outliers: None,
            sensitivity: Sensitivity::Uniform,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, name) in
            [("ap3-8", "AP3-8"), ("AP4", "AP4"), ("AP5-5", "AP5"), ("Ap", "AP"), ("sq3", "SQ3"), ("AP1-2", "AP1-2")]
        {
            assert_eq!(Target::parse(text).unwrap().name(), name);
        }
        for text in
            ["", "A", "AP9", "AP0", "AP8-3", "AP3-", "AP-8", "AP3-8-9", "SQ", "SQ3-4", "AP+3", "AP03", "é1", "APé"]
        {
            assert_eq!(Target::parse(text), None, "{text}");
        }
    }
}
