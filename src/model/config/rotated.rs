//! Rotated weights: the keys `prism.hadamard.*` of PrismML's Bonsai 2 and of files made like them.
//!
//! A rotated matrix was multiplied along its inputs by signs and the Walsh-Hadamard transform, and stands in the file as
//! any other; the keys name it. Its inputs are rotated before every product, rows of a rotated table of embeddings are
//! rotated back. A program that reads the weights and not the keys writes gibberish.

use std::collections::{BTreeMap, BTreeSet};

use trine_formats::gguf::{Metadata, Value};

use super::keys::Keys;
use crate::model::Problem;
use crate::ops::hadamard::Hadamard;

/// How all keys begin.
const PREFIX: &str = "prism.hadamard.";
/// The only table of embeddings that is rotated.
pub const TABLE: &str = "token_embd.weight";
/// The only transform and axis that files name.
const STATED: [(&str, &str); 2] =
    [("transform", "normalized-sylvester-walsh-hadamard"), ("axis", "input-last-dimension")];
/// The largest block; longer ones are no blocks of a row of any model.
const MOST: u32 = 1 << 16;
/// Tensors of a block that can be rotated.
const KINDS: &[&str] = &[
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_gate",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_down_exps",
    "ffn_gate_up_exps",
    "ffn_gate_shexp",
    "ffn_up_shexp",
    "ffn_down_shexp",
    "ssm_out",
];

/// The rotated tensors of a model.
#[derive(Clone, Debug)]
pub struct Rotated {
    /// Elements of a block.
    block: usize,
    /// Signs by width of a row; `None` where no element has one.
    signs: Option<BTreeMap<usize, Vec<f32>>>,
    /// Matrices whose inputs are rotated.
    pub weights: BTreeSet<String>,
    /// True if rows of the embedding table are rotated back.
    pub table: bool,
    /// True if the output matrix is the rotated embedding table.
    pub tied: bool,
    /// True if the columns of `ssm_out` are in the order of the heads' training: the heads of a key follow each other.
    pub grouped: bool,
}

impl Rotated {
    /// The rotation of rows of `width` elements for a matrix.
    ///
    /// # Errors
    /// The reason why such rows cannot be rotated.
    pub fn rotation(&self, width: usize) -> Result<Hadamard, String> {
        let block = self.block;
        if !width.is_multiple_of(block) {
            return Err(format!("its rows of {width} weights are no whole blocks of {block}"));
        }
        let signs = match &self.signs {
            Some(signs) => signs.get(&width).cloned().ok_or_else(|| format!("there are no signs of width {width}"))?,
            None => Vec::new(),
        };
        Ok(Hadamard { block, signs, inverse: false })
    }

    /// The keys of a file; `None` where it has none. What is wrong with them is noted.
    pub(super) fn read(k: &mut Keys<'_>) -> Option<Rotated> {
        if !k.meta.iter().any(|(key, _)| key.starts_with(PREFIX)) {
            return None;
        }
        let read = Reader(k.meta).rotated();
        read.map_err(|problem| k.problems.push(problem)).ok()
    }
}

/// A problem of one of the keys.
fn wrong(key: &str, what: impl Into<String>) -> Problem {
    Problem::Key { key: format!("{PREFIX}{key}"), what: what.into() }
}

/// Reads the keys; the first problem ends it, with the key's name.
struct Reader<'a>(&'a Metadata);

impl Reader<'_> {
    fn rotated(&self) -> Result<Rotated, Problem> {
        let version = self.u32("version")?;
        if !(1..=2).contains(&version) {
            return Err(wrong("version", format!("is {version}; trine knows 1 and 2")));
        }
        let block = self.u32("block_size")?;
        if !block.is_power_of_two() || block > MOST {
            return Err(wrong("block_size", format!("is {block}, it must be a power of two up to {MOST}")));
        }
        for (key, only) in STATED {
            let found = self.text(key)?;
            if found != only {
                return Err(wrong(key, format!("is '{found}'; trine knows '{only}'")));
            }
        }
        let block = block as usize;
        let signs = match self.text("sign_mode")?.as_str() {
            "identity" => None,
            "explicit" => Some(self.signs(block)?),
            other => return Err(wrong("sign_mode", format!("is '{other}'; trine knows 'identity' and 'explicit'"))),
        };
        let tied = self.bool("tied_output")?.unwrap_or(false);
        if tied != (version == 2) {
            return Err(wrong("tied_output", "has to be true in version 2 and is not part of version 1"));
        }
        let weights = self.weights()?;
        let table = self.table(&weights)?;
        if tied && (!table || weights.contains("output.weight")) {
            let wanted = format!("{TABLE} in {PREFIX}inverse_weight_names, and no output.weight");
            return Err(wrong("tied_output", format!("wants {wanted}")));
        }
        let grouped = self.bool("gdn_v_grouped")?.unwrap_or(false);
        Ok(Rotated { block, signs, weights, table, tied, grouped })
    }

    fn signs(&self, block: usize) -> Result<BTreeMap<usize, Vec<f32>>, Problem> {
        let (widths, values) = (self.ints("sign_widths")?, self.ints("sign_values")?);
        let mut values = values.into_iter();
        let mut signs = BTreeMap::new();
        for width in widths {
            let width = usize::try_from(width).ok().filter(|&w| w > 0 && w.is_multiple_of(block));
            let width =
                width.ok_or_else(|| wrong("sign_widths", format!("has a width that is no whole blocks of {block}")))?;
            // no more than the file has, whatever the width says
            let own: Vec<i128> = values.by_ref().take(width).collect();
            let own = own.iter().map(|&sign| match sign {
                1 => Ok(1.0),
                -1 | 0xFFFF_FFFF => Ok(-1.0),
                other => Err(wrong("sign_values", format!("has {other}, where signs are 1 and -1"))),
            });
            let own = own.collect::<Result<Vec<f32>, Problem>>()?;
            if own.len() < width || signs.insert(width, own).is_some() {
                return Err(wrong(
                    "sign_values",
                    format!(
                        "does not fit {PREFIX}sign_widths: one sign for each element of each width, no width twice"
                    ),
                ));
            }
        }
        if signs.is_empty() || values.next().is_some() {
            return Err(wrong(
                "sign_values",
                format!("does not fit {PREFIX}sign_widths: one sign for each element of each width"),
            ));
        }
        Ok(signs)
    }

    /// The names of matrices, each of a kind that is multiplied by.
    fn weights(&self) -> Result<BTreeSet<String>, Problem> {
        let mut names = BTreeSet::new();
        for name in self.texts("weight_names")? {
            let kind = || -> Option<bool> {
                let (number, kind) = name.strip_prefix("blk.")?.split_once('.')?;
                number.parse::<u32>().ok()?;
                Some(KINDS.contains(&kind.strip_suffix(".weight")?))
            };
            if name != "output.weight" && kind() != Some(true) {
                return Err(wrong("weight_names", format!("names {name:?}, whose inputs trine does not rotate")));
            }
            if !names.insert(name.clone()) {
                return Err(wrong("weight_names", format!("names {name} twice")));
            }
        }
        if names.is_empty() {
            return Err(wrong("weight_names", "is empty"));
        }
        Ok(names)
    }

    /// True if the embedding table is rotated.
    fn table(&self, weights: &BTreeSet<String>) -> Result<bool, Problem> {
        let names = match self.get("inverse_weight_names") {
            Some(_) => self.texts("inverse_weight_names")?,
            None => Vec::new(),
        };
        match &names[..] {
            [] => Ok(false),
            [only] if only == TABLE && !weights.contains(TABLE) => Ok(true),
            _ => Err(wrong("inverse_weight_names", format!("can name {TABLE} and nothing else"))),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(&format!("{PREFIX}{key}"))
    }

    fn required(&self, key: &str) -> Result<&Value, Problem> {
        self.get(key)
            .ok_or_else(|| wrong(key, format!("is missing, and other keys {PREFIX}* say that weights are rotated")))
    }

    fn u32(&self, key: &str) -> Result<u32, Problem> {
        let value = self.required(key)?;
        match value {
            Value::U32(n) => Ok(*n),
            other => Err(wrong(key, format!("has type {}, expected u32", other.type_name()))),
        }
    }

    fn text(&self, key: &str) -> Result<String, Problem> {
        self.required(key)?;
        let text = self.0.get_str(&format!("{PREFIX}{key}"))?;
        Ok(text.unwrap_or_default().to_owned())
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, Problem> {
        Ok(self.0.get_bool(&format!("{PREFIX}{key}"))?)
    }

    fn elements(&self, key: &str) -> Result<impl Iterator<Item = Value>, Problem> {
        match self.required(key)? {
            Value::Array(array) => Ok((0..array.len()).filter_map(|i| array.value(i))),
            other => Err(wrong(key, format!("has type {}, expected an array", other.type_name()))),
        }
    }

    fn ints(&self, key: &str) -> Result<Vec<i128>, Problem> {
        let int = |value: Value| {
            value
                .as_int()
                .ok_or_else(|| wrong(key, format!("has elements of type {}, expected integers", value.type_name())))
        };
        self.elements(key)?.map(int).collect()
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, Problem> {
        let text = |value: Value| match value {
            Value::Str(text) => String::from_utf8(text.0).map_err(|_| wrong(key, "has a name that is no UTF-8")),
            other => Err(wrong(key, format!("has elements of type {}, expected strings", other.type_name()))),
        };
        self.elements(key)?.map(text).collect()
    }
}
