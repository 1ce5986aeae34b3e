//! Differences of two files: metadata, tensors, weights.

use std::io::{self, Write};

use rayon::prelude::*;
use serde_json::{Value as Json, json};
use trine_formats::gguf::{Metadata, ModelFile, PackingOptions, TensorView, Value};
use trine_formats::types::TypeId;

use super::text::{described, type_name};
use crate::progress::byte_bar;
use crate::shown;

/// Two files side by side.
pub struct Diff {
    /// Keys of either file whose values are not the same, with their values.
    pub keys: Vec<KeyDiff>,
    /// Keys that say the same in both.
    pub same_keys: usize,
    /// Tensors of the first file alone.
    pub only_first: Vec<String>,
    /// Tensors of the second file alone.
    pub only_second: Vec<String>,
    /// Tensors of both, in the order of the second file.
    pub tensors: Vec<TensorDiff>,
}

/// A key that the files do not agree on.
pub struct KeyDiff {
    /// Its name.
    pub key: String,
    /// The value in the first file, with the type in front.
    pub first: Option<String>,
    /// The value in the second file.
    pub second: Option<String>,
}

/// One tensor of both files.
pub struct TensorDiff {
    /// Its name.
    pub name: String,
    /// Its types.
    pub types: (TypeId, TypeId),
    /// Comparison of its weights.
    pub weights: Weights,
}

/// How the weights of a tensor compare.
pub enum Weights {
    /// Both have the same bytes.
    SameBytes,
    /// The same values, in another type or spelled in other bytes.
    SameValues,
    /// Other values.
    Differ(Distance),
    /// Other shapes.
    Shapes(Vec<u64>, Vec<u64>),
    /// They cannot be read, and why.
    Unreadable(String),
}

/// How far the weights of one tensor are from those of another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distance {
    /// Weights that are not equal.
    pub changed: u64,
    /// All weights.
    pub of: u64,
    /// The largest difference.
    pub largest: f64,
    /// Sum of squared differences.
    squares: f64,
    /// Sum of squared weights of the first file.
    first_squares: f64,
}

impl Distance {
    /// Root of the mean squared difference as a share of that of the first file's weights.
    pub fn relative_error(&self) -> f64 {
        if self.squares == 0.0 { 0.0 } else { (self.squares / self.first_squares).sqrt() }
    }

    fn add(&mut self, first: &[f32], second: &[f32]) {
        for (&a, &b) in first.iter().zip(second) {
            let d = (f64::from(a) - f64::from(b)).abs();
            let same = a == b || a.to_bits() == b.to_bits();
            self.of += 1;
            self.changed += u64::from(!same);
            if !same {
                self.largest = self.largest.max(d);
                self.squares += d * d;
            }
            self.first_squares += f64::from(a) * f64::from(a);
        }
    }
}

impl Diff {
    /// Compares two files. `packing` says how I2_S, TL1 and TL2 are laid out where a file does not.
    pub fn new(first: &ModelFile, second: &ModelFile, packing: &PackingOptions) -> Diff {
        let (keys, same_keys) = keys(first.meta(), second.meta());
        let missing = |a: &ModelFile, b: &ModelFile| {
            let only = a.tensors().filter(|t| b.tensor_info(&t.name).is_none());
            only.map(|t| t.name.clone()).collect()
        };
        let names: Vec<&str> =
            second.tensors().filter(|t| first.tensor_info(&t.name).is_some()).map(|t| t.name.as_str()).collect();
        let bytes = names.iter().filter_map(|n| second.tensor_info(n));
        let bar = byte_bar(bytes.map(|t| t.bytes).sum());
        let tensors = names
            .into_par_iter()
            .filter_map(|name| {
                let (a, b) = (first.tensor(name)?, second.tensor(name)?);
                let weights = weights(&Side::new(&a, first, packing), &Side::new(&b, second, packing));
                bar.inc(b.info.bytes);
                Some(TensorDiff { name: name.to_owned(), types: (a.info.ty, b.info.ty), weights })
            })
            .collect();
        bar.finish_and_clear();
        Diff { keys, same_keys, only_first: missing(first, second), only_second: missing(second, first), tensors }
    }

    /// True if both files have the same metadata and the same weights, in whatever types.
    pub fn is_lossless(&self) -> bool {
        let kept = |t: &TensorDiff| matches!(t.weights, Weights::SameBytes | Weights::SameValues);
        self.only_first.is_empty() && self.only_second.is_empty() && self.tensors.iter().all(kept)
    }

    /// Writes the comparison for people.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "metadata: {} keys the same, {} not", self.same_keys, self.keys.len())?;
        for KeyDiff { key, first, second } in &self.keys {
            let value = |v: &Option<String>| v.clone().unwrap_or_else(|| "(none)".to_owned());
            writeln!(out, "  {}: {} -> {}", shown::name(key), value(first), value(second))?;
        }
        let count = |what: fn(&Weights) -> bool| self.tensors.iter().filter(|t| what(&t.weights)).count();
        let same_bytes = count(|w| matches!(w, Weights::SameBytes));
        let same_values = count(|w| matches!(w, Weights::SameValues));
        writeln!(
            out,
            "tensors: {} in both: {same_bytes} with the same bytes, {same_values} with the same values in other bytes, {} not the same",
            self.tensors.len(),
            self.tensors.len() - same_bytes - same_values,
        )?;
        for (which, names) in [("first", &self.only_first), ("second", &self.only_second)] {
            for name in names {
                writeln!(out, "  only in the {which} file: {}", shown::name(name))?;
            }
        }
        for t in &self.tensors {
            let name = shown::name(&t.name);
            let (a, b) = t.types;
            match &t.weights {
                Weights::SameBytes | Weights::SameValues => {}
                Weights::Differ(d) => writeln!(
                    out,
                    "  {name}: {a} -> {b}, {} of {} weights differ, by at most {:.3e}, relative error {:.3e}",
                    d.changed,
                    d.of,
                    d.largest,
                    d.relative_error()
                )?,
                Weights::Shapes(a, b) => writeln!(out, "  {name}: shape {a:?} -> {b:?}")?,
                Weights::Unreadable(why) => {
                    writeln!(out, "  {name}: {a} -> {b}, not compared: {}", shown::message(why))?
                }
            }
        }
        let verdict = match (self.is_lossless(), self.keys.is_empty()) {
            (true, true) => "the files say the same",
            (true, false) => "all weights are the same; the metadata is not",
            (false, _) => "the files hold different models",
        };
        writeln!(out, "{verdict}")
    }

    /// The comparison as JSON.
    pub fn json(&self) -> Json {
        let keys = self.keys.iter().map(|k| json!({"key": k.key, "first": k.first, "second": k.second}));
        let tensors = self.tensors.iter().map(|t| {
            let mut row = json!({"name": t.name, "first": t.types.0.to_string(), "second": t.types.1.to_string()});
            match &t.weights {
                Weights::SameBytes => row["weights"] = "same bytes".into(),
                Weights::SameValues => row["weights"] = "same values".into(),
                Weights::Differ(d) => {
                    row["weights"] = "differ".into();
                    row["changed"] = d.changed.into();
                    row["of"] = d.of.into();
                    row["largest"] = d.largest.into();
                    row["relative_error"] = d.relative_error().into();
                }
                Weights::Shapes(a, b) => row["shapes"] = json!([a, b]),
                Weights::Unreadable(why) => row["not_compared"] = why.clone().into(),
            }
            row
        });
        json!({
            "lossless": self.is_lossless(),
            "metadata": {"same": self.same_keys, "differ": keys.collect::<Vec<_>>()},
            "only_first": self.only_first,
            "only_second": self.only_second,
            "tensors": tensors.collect::<Vec<_>>(),
        })
    }
}

/// Keys that are not the same, as text, and how many are.
fn keys(first: &Metadata, second: &Metadata) -> (Vec<KeyDiff>, usize) {
    let text = |value: Option<&Value>| value.map(|v| format!("{} {}", type_name(v), described(v)));
    let mut differ = Vec::new();
    let mut same = 0;
    for (key, value) in first.iter() {
        let other = second.get(key);
        if other.is_some_and(|o| is_same(value, o)) {
            same += 1;
        } else {
            differ.push(KeyDiff { key: key.to_owned(), first: text(Some(value)), second: text(other) });
        }
    }
    let added = second.iter().filter(|(key, _)| first.get(key).is_none());
    differ.extend(added.map(|(key, value)| KeyDiff { key: key.to_owned(), first: None, second: text(Some(value)) }));
    (differ, same)
}

/// Equal, where a NaN equals itself.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => a.to_bits() == b.to_bits(),
        (Value::F64(a), Value::F64(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

/// One tensor with what its file says about it.
struct Side<'a> {
    view: &'a TensorView,
    meta: &'a Metadata,
    packing: &'a PackingOptions,
}

impl<'a> Side<'a> {
    fn new(view: &'a TensorView, file: &'a ModelFile, packing: &'a PackingOptions) -> Side<'a> {
        Side { view, meta: file.meta(), packing }
    }

    /// A reader of its rows, several at a time.
    fn rows(&self) -> Result<TensorRows<'a>, String> {
        let info = &self.view.info;
        let ty = info.ty.info().ok_or_else(|| format!("{} has no decoder", info.ty))?;
        if ty.is_per_tensor() {
            let codes = self.view.ternary_codes(self.meta, self.packing);
            let (codes, scale) = codes.map_err(|e| e.to_string())?;
            return Ok(TensorRows::Codes(codes, scale));
        }
        let decode = ty.decode.ok_or_else(|| format!("{} has no decoder", info.ty))?;
        let bytes = ty.row_bytes(info.columns()).and_then(|b| usize::try_from(b).ok());
        match bytes {
            Some(bytes @ 1..) => Ok(TensorRows::Blocks(&self.view.data, bytes, decode)),
            _ => Err("it has no rows".to_owned()),
        }
    }
}

/// The weights of a tensor, row by row.
enum TensorRows<'a> {
    Codes(Vec<i8>, f32),
    Blocks(&'a [u8], usize, fn(&[u8], &mut [f32])),
}

impl TensorRows<'_> {
    fn read(&self, row: usize, out: &mut [f32]) {
        let n = out.len();
        match self {
            TensorRows::Codes(codes, scale) => {
                let codes = &codes[row * n..][..n];
                out.iter_mut().zip(codes).for_each(|(o, &c)| *o = f32::from(c) * scale);
            }
            TensorRows::Blocks(data, bytes, decode) => decode(&data[row * bytes..][..*bytes], out),
        }
    }
}

fn weights(first: &Side<'_>, second: &Side<'_>) -> Weights {
    let (a, b) = (&first.view.info, &second.view.info);
    if a.shape != b.shape {
        return Weights::Shapes(a.shape.clone(), b.shape.clone());
    }
    if a.ty == b.ty && first.view.data[..] == second.view.data[..] {
        return Weights::SameBytes;
    }
    let (rows, other) = match (first.rows(), second.rows()) {
        (Ok(rows), Ok(other)) => (rows, other),
        (Err(why), _) | (_, Err(why)) => return Weights::Unreadable(why),
    };
    let (Ok(columns), Ok(n)) = (usize::try_from(a.columns()), usize::try_from(a.rows())) else {
        return Weights::Unreadable("it is too large for this machine".to_owned());
    };
    let mut distance = Distance::default();
    let (mut x, mut y) = (vec![0f32; columns], vec![0f32; columns]);
    for row in 0..n {
        rows.read(row, &mut x);
        other.read(row, &mut y);
        distance.add(&x, &y);
    }
    match distance.changed {
        0 => Weights::SameValues,
        _ => Weights::Differ(distance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_add_up() {
        let mut d = Distance::default();
        d.add(&[1.0, -0.0, f32::NAN], &[1.0, 0.0, f32::NAN]);
        assert_eq!((d.changed, d.of), (0, 3));
        let mut d = Distance::default();
        d.add(&[3.0, 4.0], &[3.0, 5.0]);
        assert_eq!((d.changed, d.of, d.largest, d.relative_error()), (1, 2, 1.0, 0.2));
    }
}
