//! A model file as text: its keys, its tensors, and the seed of its random weights.
//!
//! One line each, in file order; `testdata/archs/README.md` describes them.

use std::collections::HashMap;

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Array, Metadata, StrArray, Value};
use trine_formats::types::TypeId;

use super::weights;

/// Contents of the text.
pub struct Listing {
    seed: u64,
    deviation: f32,
    meta: Metadata,
    tensors: Vec<NewTensor>,
    /// Tensors whose first elements, of this number, are repeated over the rest.
    repeated: HashMap<String, usize>,
    /// Tensors of numbers below this one.
    ids: HashMap<String, usize>,
    /// Tensors of different numbers below this one.
    places: HashMap<String, i64>,
}

impl Listing {
    /// Reads a listing; panics with the line that is wrong.
    pub fn parse(text: &str) -> Listing {
        let mut listing = Listing {
            seed: 0,
            deviation: 0.0,
            meta: Metadata::default(),
            tensors: Vec::new(),
            repeated: HashMap::new(),
            ids: HashMap::new(),
            places: HashMap::new(),
        };
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            listing.line(line).unwrap_or_else(|| panic!("{line}"));
        }
        listing
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        let mut words = rest.split(' ');
        match what {
            "weights" => {
                self.seed = words.next()?.parse().ok()?;
                self.deviation = words.next()?.parse().ok()?;
            }
            "key" => {
                let (key, rest) = rest.split_once(' ')?;
                let (ty, text) = rest.split_once(' ').unwrap_or((rest, ""));
                self.meta.set(key, value(ty, text)?);
            }
            "tensor" => {
                let names = numbered(words.next()?)?;
                let shape: Option<Vec<u64>> = words.map(|w| w.parse().ok()).collect();
                let shape = shape?;
                let tensor = |name| NewTensor::new(name, shape.clone(), TypeId::F32);
                self.tensors.extend(names.into_iter().map(tensor));
            }
            "ids" => {
                let (name, mut numbers) = (words.next()?, words.map(|w| w.parse::<u64>().ok()));
                let (most, shape) = (numbers.next()??, [numbers.next()??, numbers.next()??]);
                self.ids.insert(name.to_owned(), most as usize);
                self.tensors.push(NewTensor::new(name, shape.to_vec(), TypeId::I32));
            }
            "places" => {
                let (name, mut numbers) = (words.next()?, words.map(|w| w.parse::<u64>().ok()));
                let (most, count) = (numbers.next()??, numbers.next()??);
                self.places.insert(name.to_owned(), most as i64);
                self.tensors.push(NewTensor::new(name, vec![count], TypeId::I64));
            }
            "repeat" => {
                let names = numbered(words.next()?)?;
                let period: usize = words.next()?.parse().ok()?;
                self.repeated.extend(names.into_iter().map(|n| (n, period)));
            }
            _ => return None,
        }
        Some(())
    }

    /// The value of the key `general.architecture`.
    pub fn architecture(&self) -> String {
        let name = self.meta.get_str("general.architecture");
        name.expect("a text").expect("an architecture").to_owned()
    }

    /// The same model with zeros for weights that are drawn, for tests that look at shapes alone.
    pub fn undrawn(self) -> Listing {
        Listing { deviation: 0.0, ..self }
    }

    /// The bytes of the file.
    pub fn file(&self) -> Vec<u8> {
        self.file_with("", 0.0)
    }

    /// The same with another first value in the tensor of this name.
    pub fn file_with(&self, tensor_name: &str, first: f32) -> Vec<u8> {
        let layout = Layout::new(&self.meta, &self.tensors).expect("a layout");
        let mut bytes = layout.header().to_vec();
        for tensor in layout.tensors() {
            if let Some(&most) = self.ids.get(&tensor.name) {
                let columns = tensor.shape[0] as usize;
                let id = |i: usize| (i / columns + i % columns * (most - 1)) % most;
                bytes.extend((0..tensor.elements() as usize).flat_map(|i| (id(i) as u32).to_le_bytes()));
                bytes.resize(bytes.len().next_multiple_of(32), 0);
                continue;
            }
            if let Some(&most) = self.places.get(&tensor.name) {
                bytes.extend((0..tensor.shape[0] as i64).flat_map(|i| ((7 * i + 3) % most).to_le_bytes()));
                bytes.resize(bytes.len().next_multiple_of(32), 0);
                continue;
            }
            let mut values = vec![0f32; tensor.elements() as usize];
            weights::fill(&tensor.name, self.seed, self.deviation, &mut values);
            if let Some(&period) = self.repeated.get(&tensor.name) {
                (period..values.len()).for_each(|i| values[i] = values[i - period]);
            }
            if tensor.name == tensor_name {
                values[0] = first;
            }
            bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            bytes.resize(bytes.len().next_multiple_of(32), 0);
        }
        assert_eq!(bytes.len() as u64, layout.file_bytes());
        bytes
    }
}

/// `NAME{A..B}REST` stands for a name with each number from A up to but not including B, `{A..B:S}` for every S-th.
pub(super) fn numbered(text: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = text.split_once('{') else {
        return Some(vec![text.to_owned()]);
    };
    let (range, after) = rest.split_once('}')?;
    let (range, step) = range.split_once(':').unwrap_or((range, "1"));
    let (from, to) = range.split_once("..")?;
    let range = from.parse::<u32>().ok()?..to.parse().ok()?;
    Some(range.step_by(step.parse().ok()?).map(|i| format!("{before}{i}{after}")).collect())
}

pub(super) fn value(ty: &str, text: &str) -> Option<Value> {
    Some(match ty {
        "str" => Value::str(&text.replace("\\n", "\n")),
        "bool" => Value::Bool(text.parse().ok()?),
        "u32" => Value::U32(text.parse().ok()?),
        "i32" => Value::I32(text.parse().ok()?),
        "u64" => Value::U64(text.parse().ok()?),
        "f32" => Value::F32(text.parse().ok()?),
        "[str]" => Value::Array(Array::Str(strings(text)?)),
        "[u32]" => Value::Array(Array::U32(elements(text)?)),
        "[u64]" => Value::Array(Array::U64(elements(text)?)),
        "[i32]" => Value::Array(Array::I32(elements(text)?)),
        "[f32]" => Value::Array(Array::F32(elements(text)?)),
        "[bool]" => Value::Array(Array::Bool(elements(text)?)),
        _ => return None,
    })
}

fn strings(text: &str) -> Option<StrArray> {
    let mut out = StrArray::default();
    for word in text.split_whitespace() {
        for s in numbered(word)? {
            out.push(s.as_bytes()).then_some(())?;
        }
    }
    Some(out)
}

/// Numbers, where `V*N` stands for N times V.
fn elements<T: std::str::FromStr + Copy>(text: &str) -> Option<Vec<T>> {
    let mut out = Vec::new();
    for word in text.split_whitespace() {
        let (value, times) = word.split_once('*').unwrap_or((word, "1"));
        let value: T = value.parse().ok()?;
        out.extend(std::iter::repeat_n(value, times.parse().ok()?));
    }
    Some(out)
}
