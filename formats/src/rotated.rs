//! Rotated weights: the keys `prism.hadamard.*` of PrismML's Bonsai 2 and of files made like them.
//!
//! A rotated matrix was multiplied along its inputs by signs and the Walsh-Hadamard transform, and stands in the file as
//! any other; the keys name it. Its inputs are rotated before every product, rows of a rotated table of embeddings are
//! rotated back. A program that reads the weights and not the keys writes gibberish.
//!
//! With the signs `s` of a row and the symmetric matrix `H` of entries `(-1)^popcount(i & j) / sqrt(block)`, a stored row
//! is `H (s . w)` of the row `w` that it stands for, each block for itself; and the inputs `x` of its matrix become
//! `H (s . x)`.
//!
//! | key `prism.hadamard.` | type | |
//! |---|---|---|
//! | `version` | u32 | 1; 2 where the embedding table is the output matrix too |
//! | `block_size` | u32 | elements of a block, a power of two |
//! | `transform`, `axis` | string | `normalized-sylvester-walsh-hadamard`, `input-last-dimension` |
//! | `sign_mode` | string | `identity` or `explicit` |
//! | `sign_widths`, `sign_values` | arrays of i32 | widths of rows, and the signs of each width one after the other |
//! | `weight_names` | array of strings | matrices whose inputs are rotated |
//! | `inverse_weight_names` | array of strings | `token_embd.weight`, where its rows are rotated |
//! | `gdn_v_grouped` | bool | the columns of `ssm_out` are in the order of the heads' training |
//! | `tied_output` | bool | true in version 2 |

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::gguf::{Array, Metadata, Value};

/// Prefix of all keys.
pub const PREFIX: &str = "prism.hadamard.";
/// The only table of embeddings that is rotated.
pub const TABLE: &str = "token_embd.weight";
/// The output matrix.
pub const OUTPUT: &str = "output.weight";
/// The only transform and axis that files name.
const STATED: [(&str, &str); 2] =
    [("transform", "normalized-sylvester-walsh-hadamard"), ("axis", "input-last-dimension")];
/// The largest block; longer ones are no blocks of a row of any model.
pub const MOST_BLOCK: u32 = 1 << 16;
/// Tensors of a block that PrismML's programs rotate. Those of other architectures have more.
pub const KINDS: &[&str] = &[
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

/// Keys that cannot be read; the message names the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RotatedError(String);

/// The rotated tensors of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotated {
    /// Elements of a block, a power of two.
    pub block: usize,
    /// Signs, 1 or -1, by width of a row; `None` where no element has one.
    pub signs: Option<BTreeMap<usize, Vec<f32>>>,
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
    /// True of a file with any of the keys.
    pub fn is_in(meta: &Metadata) -> bool {
        meta.iter().any(|(key, _)| key.starts_with(PREFIX))
    }

    /// True if the keys can name a matrix of this name; whether a model multiplies by it is another question.
    pub fn can_name(name: &str) -> bool {
        name == OUTPUT || block_and_kind(name).is_some_and(|(_, kind)| !kind.contains("norm"))
    }

    /// The signs of rows of `width` elements; none where all are 1.
    ///
    /// # Errors
    /// Rows that are no whole blocks, or that have no signs.
    pub fn signs_of(&self, width: usize) -> Result<&[f32], RotatedError> {
        let block = self.block;
        if !width.is_multiple_of(block) {
            return Err(RotatedError(format!("its rows of {width} weights are no whole blocks of {block}")));
        }
        let Some(signs) = &self.signs else {
            return Ok(&[]);
        };
        let own = signs.get(&width).map(Vec::as_slice);
        own.ok_or_else(|| RotatedError(format!("there are no signs of width {width}")))
    }

    /// True if the columns of this matrix are in the order of the heads' training.
    pub fn is_grouped(&self, name: &str) -> bool {
        self.grouped && name.contains(".ssm_out.")
    }

    /// The keys of a file; `None` where it has none.
    ///
    /// # Errors
    /// The first problem of the keys.
    pub fn read(meta: &Metadata) -> Result<Option<Rotated>, RotatedError> {
        if !Rotated::is_in(meta) {
            return Ok(None);
        }
        Reader(meta).rotated().map(Some).map_err(RotatedError)
    }

    /// Writes the keys, in place of those that are there.
    pub fn write(&self, meta: &mut Metadata) {
        Rotated::remove(meta);
        let mut set = |key: &str, value: Value| meta.set(&format!("{PREFIX}{key}"), value);
        set("version", Value::U32(if self.tied { 2 } else { 1 }));
        set("block_size", Value::U32(self.block as u32));
        for (key, only) in STATED {
            set(key, Value::str(only));
        }
        set("sign_mode", Value::str(if self.signs.is_some() { "explicit" } else { "identity" }));
        set("weight_names", Value::Array(Array::Str(self.weights.iter().collect())));
        if let Some(signs) = &self.signs {
            set("sign_widths", Value::Array(Array::I32(signs.keys().map(|&width| width as i32).collect())));
            let values = signs.values().flatten().map(|&sign| sign as i32);
            set("sign_values", Value::Array(Array::I32(values.collect())));
        }
        if self.table {
            set("inverse_weight_names", Value::Array(Array::Str([TABLE].into_iter().collect())));
        }
        if self.grouped {
            set("gdn_v_grouped", Value::Bool(true));
        }
        if self.tied {
            set("tied_output", Value::Bool(true));
        }
    }

    /// Removes the keys.
    pub fn remove(meta: &mut Metadata) {
        let keys = meta.iter().map(|(key, _)| key).filter(|key| key.starts_with(PREFIX));
        let keys: Vec<String> = keys.map(str::to_owned).collect();
        keys.iter().for_each(|key| {
            meta.remove(key);
        });
    }
}

/// The number of the block and the kind of a matrix `blk.N.KIND.weight`, or `enc.blk.N.KIND.weight` of an encoder.
pub fn block_and_kind(name: &str) -> Option<(u32, &str)> {
    let name = name.strip_prefix("enc.").unwrap_or(name);
    let (number, kind) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, kind.strip_suffix(".weight")?))
}

/// Reads the keys; the first problem ends it, with the key's name.
struct Reader<'a>(&'a Metadata);

impl Reader<'_> {
    fn rotated(&self) -> Result<Rotated, String> {
        let version = self.u32("version")?;
        if !(1..=2).contains(&version) {
            return Err(format!("{PREFIX}version is {version}; trine knows 1 and 2"));
        }
        let block = self.u32("block_size")?;
        if !block.is_power_of_two() || block > MOST_BLOCK {
            return Err(format!("{PREFIX}block_size is {block}, it must be a power of two up to {MOST_BLOCK}"));
        }
        for (key, only) in STATED {
            let found = self.text(key)?;
            if found != only {
                return Err(format!("{PREFIX}{key} is '{found}'; trine knows '{only}'"));
            }
        }
        let block = block as usize;
        let signs = match self.text("sign_mode")?.as_str() {
            "identity" => None,
            "explicit" => Some(self.signs(block)?),
            other => return Err(format!("{PREFIX}sign_mode is '{other}'; trine knows 'identity' and 'explicit'")),
        };
        let tied = self.bool("tied_output")?.unwrap_or(false);
        if tied != (version == 2) {
            return Err(format!("{PREFIX}tied_output has to be true in version 2 and is not part of version 1"));
        }
        let weights = self.weights()?;
        let table = self.table(&weights)?;
        if tied && (!table || weights.contains(OUTPUT)) {
            let wanted = format!("{TABLE} in {PREFIX}inverse_weight_names, and no {OUTPUT}");
            return Err(format!("{PREFIX}tied_output wants {wanted}"));
        }
        let grouped = self.bool("gdn_v_grouped")?.unwrap_or(false);
        Ok(Rotated { block, signs, weights, table, tied, grouped })
    }

    fn signs(&self, block: usize) -> Result<BTreeMap<usize, Vec<f32>>, String> {
        let (widths, values) = (self.ints("sign_widths")?, self.ints("sign_values")?);
        let mut values = values.into_iter();
        let mut signs = BTreeMap::new();
        for width in widths {
            let width = usize::try_from(width).ok().filter(|&w| w > 0 && w.is_multiple_of(block));
            let width =
                width.ok_or_else(|| format!("{PREFIX}sign_widths has a width that is no whole blocks of {block}"))?;
            // no more than the file has, whatever the width says
            let own: Vec<i128> = values.by_ref().take(width).collect();
            let own = own.iter().map(|&sign| match sign {
                1 => Ok(1.0),
                -1 | 0xFFFF_FFFF => Ok(-1.0),
                other => Err(format!("{PREFIX}sign_values has {other}, where signs are 1 and -1")),
            });
            let own = own.collect::<Result<Vec<f32>, String>>()?;
            if own.len() < width || signs.insert(width, own).is_some() {
                return Err(format!(
                    "{PREFIX}sign_values does not fit {PREFIX}sign_widths: one sign for each element of each width, no width twice"
                ));
            }
        }
        if signs.is_empty() || values.next().is_some() {
            return Err(format!(
                "{PREFIX}sign_values does not fit {PREFIX}sign_widths: one sign for each element of each width"
            ));
        }
        Ok(signs)
    }

    /// The names of matrices, each of a kind that is multiplied by.
    fn weights(&self) -> Result<BTreeSet<String>, String> {
        let mut names = BTreeSet::new();
        for name in self.texts("weight_names")? {
            if !Rotated::can_name(&name) {
                return Err(format!("{PREFIX}weight_names names {name:?}, whose inputs trine does not rotate"));
            }
            if !names.insert(name.clone()) {
                return Err(format!("{PREFIX}weight_names names {name} twice"));
            }
        }
        if names.is_empty() {
            return Err(format!("{PREFIX}weight_names is empty"));
        }
        Ok(names)
    }

    /// True if the embedding table is rotated.
    fn table(&self, weights: &BTreeSet<String>) -> Result<bool, String> {
        let names = match self.get("inverse_weight_names") {
            Some(_) => self.texts("inverse_weight_names")?,
            None => Vec::new(),
        };
        match &names[..] {
            [] => Ok(false),
            [only] if only == TABLE && !weights.contains(TABLE) => Ok(true),
            _ => Err(format!("{PREFIX}inverse_weight_names can name {TABLE} and nothing else")),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(&format!("{PREFIX}{key}"))
    }

    fn required(&self, key: &str) -> Result<&Value, String> {
        self.get(key)
            .ok_or_else(|| format!("{PREFIX}{key} is missing, and other keys {PREFIX}* say that weights are rotated"))
    }

    fn u32(&self, key: &str) -> Result<u32, String> {
        let value = self.required(key)?;
        match value {
            Value::U32(n) => Ok(*n),
            other => Err(format!("{PREFIX}{key} has type {}, expected u32", other.type_name())),
        }
    }

    fn text(&self, key: &str) -> Result<String, String> {
        self.required(key)?;
        let text = self.0.get_str(&format!("{PREFIX}{key}")).map_err(|e| e.to_string())?;
        Ok(text.unwrap_or_default().to_owned())
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, String> {
        self.0.get_bool(&format!("{PREFIX}{key}")).map_err(|e| e.to_string())
    }

    fn elements(&self, key: &str) -> Result<impl Iterator<Item = Value>, String> {
        match self.required(key)? {
            Value::Array(array) => Ok((0..array.len()).filter_map(|i| array.value(i))),
            other => Err(format!("{PREFIX}{key} has type {}, expected an array", other.type_name())),
        }
    }

    fn ints(&self, key: &str) -> Result<Vec<i128>, String> {
        let int = |value: Value| {
            value
                .as_int()
                .ok_or_else(|| format!("{PREFIX}{key} has elements of type {}, expected integers", value.type_name()))
        };
        self.elements(key)?.map(int).collect()
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        let text = |value: Value| match value {
            Value::Str(text) => {
                String::from_utf8(text.0).map_err(|_| format!("{PREFIX}{key} has a name that is no UTF-8"))
            }
            other => Err(format!("{PREFIX}{key} has elements of type {}, expected strings", other.type_name())),
        };
        self.elements(key)?.map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut meta = Metadata::default();
        meta.set("a", Value::U32(1));
        let plain = meta.clone();
        assert_eq!(Rotated::read(&meta), Ok(None));
        let signs = [(4, vec![1.0, -1.0, -1.0, 1.0]), (8, vec![-1.0; 8])];
        let weights = ["blk.0.ssm_out.weight", "blk.10.ffn_down.weight"].map(str::to_owned);
        let tied = Rotated {
            block: 4,
            signs: Some(signs.into()),
            weights: weights.into(),
            table: true,
            tied: true,
            grouped: true,
        };
        let bare = Rotated { signs: None, table: false, tied: false, grouped: false, ..tied.clone() };
        for rotated in [tied, bare] {
            rotated.write(&mut meta);
            assert_eq!(Rotated::read(&meta), Ok(Some(rotated)));
        }
        // nothing is left of the first ones
        assert!(meta.get("prism.hadamard.sign_values").is_none());
        Rotated::remove(&mut meta);
        assert_eq!(meta, plain);
    }

    #[test]
    fn names_are_of_matrices_that_are_multiplied_by() {
        for name in ["output.weight", "blk.0.attn_q.weight", "blk.63.ffn_down_exps.weight", "enc.blk.1.attn_q.weight"] {
            assert!(Rotated::can_name(name), "{name}");
        }
        for name in ["token_embd.weight", "blk.0.attn_q.bias", "blk.x.attn_q.weight", "blk.0.attn_norm.weight"] {
            assert!(!Rotated::can_name(name), "{name}");
        }
    }
}
